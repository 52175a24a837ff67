-- From tenant to tenant through the index, one step each.
WITH RECURSIVE step AS (
    (SELECT tenant FROM schedules WHERE tenant > $1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT n.tenant FROM step,
        LATERAL (SELECT s.tenant FROM schedules s WHERE s.tenant > step.tenant ORDER BY s.tenant LIMIT 1) n
)
SELECT tenant FROM step LIMIT $2
