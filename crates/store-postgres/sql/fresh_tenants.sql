-- Tenants in the agenda, each with its first job there that nothing has happened to. Jobs and what happened to them are read side
-- by side; DISTINCT says that none is there twice, which spares going back.
SELECT a.tenant, f.id
FROM agenda a, LATERAL (
    SELECT w.id
    FROM (SELECT j.id FROM jobs j
          WHERE j.tenant = a.tenant AND j.id >= a.from_id AND j.id < a.to_id AND j.shard = $1
            AND j.run_at >= $2::integer::bigint * 600000 AND j.run_at < ($2::integer::bigint + 1) * 600000) w
    LEFT JOIN (SELECT DISTINCT e.id FROM events e
               WHERE e.tenant = a.tenant AND e.id >= a.from_id AND e.id < a.to_id AND e.seq = 1
                 AND e.run_at >= $2::integer::bigint * 600000 AND e.run_at < ($2::integer::bigint + 1) * 600000) b
        ON b.id = w.id
    WHERE b.id IS NULL
    ORDER BY w.id LIMIT 1) f
WHERE a.shard = $1 AND a.bucket = $2 AND a.tenant > $3
ORDER BY a.shard, a.bucket, a.tenant LIMIT $4
