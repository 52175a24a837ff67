SELECT chain, seq, at, kind, previous, hash, content
FROM audit
WHERE at >= $1 AND at < $2
  AND ($3::bigint IS NULL OR (at, chain, seq) > ($3, $4::smallint, $5::bigint))
ORDER BY at, chain, seq
LIMIT $6
