-- In the order of chains, as everybody locks them, so that nobody waits for somebody who waits for them.
SELECT chain, seq, at, hash FROM audit_chains WHERE chain = ANY ($1) ORDER BY chain FOR UPDATE
