-- A page by number and by bytes, and one more to tell whether it goes on: jobs of a bucket that nothing has happened to,
-- from where the agenda says that they begin. Without a row there, there are none.
SELECT p.id, p.kind, p.spec, p.payload, p.size
FROM (SELECT n.id, n.kind, n.spec, n.payload, n.size, sum(n.size) OVER (ORDER BY n.id) AS bytes,
             row_number() OVER (ORDER BY n.id) AS number
      FROM (SELECT j.id, j.kind, j.spec, j.payload, octet_length(j.payload) + 512 AS size
            FROM jobs j
            WHERE j.tenant = $3 AND j.id >= $4 AND j.id < $5 AND j.run_at >= $2::integer::bigint * 600000
              AND j.run_at < ($2::integer::bigint + 1) * 600000
              AND j.id >= (SELECT a.from_id FROM agenda a WHERE a.shard = $1 AND a.bucket = $2 AND a.tenant = $3)
              AND j.shard = $1
              AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                              AND e.run_at = j.run_at AND e.run_at >= $2::integer::bigint * 600000
                              AND e.run_at < ($2::integer::bigint + 1) * 600000 LIMIT 1) IS NULL
            ORDER BY j.tenant, j.id LIMIT $6) n) p
WHERE p.bytes - p.size <= $7 OR p.number <= 2
ORDER BY p.id
