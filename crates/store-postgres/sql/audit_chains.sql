SELECT chain, seq, at, hash, anchor_seq, anchor_at, anchor_hash FROM audit_chains WHERE seq > 0 ORDER BY chain
