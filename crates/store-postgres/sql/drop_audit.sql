-- Oldest first: what goes is the beginning of each chain.
DELETE FROM audit
WHERE ctid = ANY (ARRAY(SELECT ctid FROM audit WHERE at < $1 ORDER BY at, chain, seq LIMIT $2))
RETURNING chain, seq, at, hash
