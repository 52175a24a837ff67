-- The first of each kind beyond the instant a read ended at.
SELECT (SELECT id FROM waiting WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND id >= $4
        ORDER BY shard, bucket, tenant, id LIMIT 1) AS id,
       (SELECT due_at FROM timers WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND due_at > $5
        ORDER BY shard, bucket, tenant, due_at LIMIT 1) AS due_at
