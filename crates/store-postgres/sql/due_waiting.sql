-- A page by number and by bytes, and one more to tell whether it goes on. Sizes are beside the keys, so bodies
-- beyond that are not read.
SELECT p.id, p.size, j.kind, j.spec, j.payload
FROM (SELECT n.id, n.run_at, n.size, sum(n.size) OVER (ORDER BY n.id) AS bytes,
             row_number() OVER (ORDER BY n.id) AS number
      FROM (SELECT id, run_at, size FROM waiting
            WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND id >= $4 AND id < $5
            ORDER BY shard, bucket, tenant, id LIMIT $6) n) p
JOIN jobs j ON j.tenant = $3 AND j.run_at = p.run_at AND j.id = p.id
WHERE p.bytes - p.size <= $7 OR p.number <= 2
ORDER BY p.id
