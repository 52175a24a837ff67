-- The first of each kind beyond the instant a read ended at.
SELECT (SELECT j.id FROM jobs j
        WHERE j.tenant = $3 AND j.id >= $4 AND j.run_at >= $2::integer::bigint * 600000 AND j.run_at < ($2::integer::bigint + 1) * 600000
          AND j.id >= (SELECT a.from_id FROM agenda a WHERE a.shard = $1 AND a.bucket = $2 AND a.tenant = $3)
          AND j.id < (SELECT a.to_id FROM agenda a WHERE a.shard = $1 AND a.bucket = $2 AND a.tenant = $3)
          AND j.shard = $1
          AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                          AND e.run_at = j.run_at AND e.run_at >= $2::integer::bigint * 600000
                          AND e.run_at < ($2::integer::bigint + 1) * 600000 LIMIT 1) IS NULL
        ORDER BY j.tenant, j.id LIMIT 1) AS id,
       (SELECT due_at FROM timers WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND due_at > $5
        ORDER BY shard, bucket, tenant, due_at LIMIT 1) AS due_at
