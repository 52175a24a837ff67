INSERT INTO audit_chains (chain, seq, at, hash, anchor_seq, anchor_at, anchor_hash)
SELECT chain, 0, 0, $2::bytea, 0, 0, $2::bytea FROM unnest($1::smallint[]) AS chain ORDER BY chain
ON CONFLICT (chain) DO NOTHING
