-- Tenants in the agenda, each with its first job there that nothing has happened to.
SELECT a.tenant, f.id
FROM agenda a, LATERAL (
    SELECT j.id FROM jobs j
    WHERE j.tenant = a.tenant AND j.id >= a.from_id AND j.id < a.to_id AND j.run_at >= $2::integer::bigint * 600000
      AND j.run_at < ($2::integer::bigint + 1) * 600000 AND j.shard = $1
      AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                      AND e.run_at = j.run_at AND e.run_at >= $2::integer::bigint * 600000
                      AND e.run_at < ($2::integer::bigint + 1) * 600000 LIMIT 1) IS NULL
    ORDER BY j.tenant, j.id LIMIT 1) f
WHERE a.shard = $1 AND a.bucket = $2 AND a.tenant > $3
ORDER BY a.shard, a.bucket, a.tenant LIMIT $4
