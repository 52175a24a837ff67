-- What is settled, once: from where the last fold ended. For each tenant, and for all together.
WITH taken AS (
    DELETE FROM tallies WHERE number >= $1 AND number < $2 RETURNING tenant, state, delta
)
INSERT INTO counts AS c (tenant, state, count)
SELECT CASE WHEN grouping(tenant) = 1 THEN '' ELSE tenant END, state, sum(delta) FROM taken
GROUP BY GROUPING SETS ((tenant, state), (state))
ON CONFLICT (tenant, state) DO UPDATE SET count = c.count + excluded.count
