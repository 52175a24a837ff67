WITH RECURSIVE step AS (
    (SELECT tenant, due_at FROM timers WHERE shard = $1 AND bucket = $2 AND tenant > $3
     ORDER BY shard, bucket, tenant, due_at, id LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.due_at FROM step,
        LATERAL (SELECT t.tenant, t.due_at FROM timers t WHERE t.shard = $1 AND t.bucket = $2 AND t.tenant > step.tenant
                 ORDER BY t.shard, t.bucket, t.tenant, t.due_at, t.id LIMIT 1) n
)
SELECT tenant, due_at FROM step LIMIT $4
