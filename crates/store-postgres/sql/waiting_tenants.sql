-- From tenant to tenant through the index, one step each, however many jobs a tenant has.
WITH RECURSIVE step AS (
    (SELECT tenant, id FROM waiting WHERE shard = $1 AND bucket = $2 AND tenant > $3
     ORDER BY shard, bucket, tenant, id LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.id FROM step,
        LATERAL (SELECT w.tenant, w.id FROM waiting w WHERE w.shard = $1 AND w.bucket = $2 AND w.tenant > step.tenant
                 ORDER BY w.shard, w.bucket, w.tenant, w.id LIMIT 1) n
)
SELECT tenant, id FROM step LIMIT $4
