WITH taken AS (DELETE FROM tallies RETURNING tenant, state, delta)
INSERT INTO tallies (tenant, state, delta)
SELECT tenant, state, sum(delta) FROM taken GROUP BY tenant, state HAVING sum(delta) <> 0
