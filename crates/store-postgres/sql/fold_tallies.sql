-- Only where there is something to fold: a tenant nothing happened to is left alone.
WITH many AS (
    SELECT tenant, state FROM tallies GROUP BY tenant, state HAVING count(*) > 1
), taken AS (
    DELETE FROM tallies t USING many WHERE t.tenant = many.tenant AND t.state = many.state
    RETURNING t.tenant, t.state, t.delta
)
INSERT INTO tallies (tenant, state, delta)
SELECT tenant, state, sum(delta) FROM taken GROUP BY tenant, state HAVING sum(delta) <> 0
