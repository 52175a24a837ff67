-- What is settled, once: from where the last fold ended, so many rows at most. For each tenant, and for all together. Says
-- up to where.
WITH stop AS MATERIALIZED (
    SELECT least($2::bigint, greatest($1::bigint + 1, COALESCE((
        SELECT t.number FROM tallies t WHERE t.number >= $1 AND t.number < $2
        ORDER BY t.number OFFSET $3 LIMIT 1), $2))) AS upto
), taken AS (
    DELETE FROM tallies WHERE number >= $1 AND number < (SELECT upto FROM stop) RETURNING tenant, state, delta
), folded AS (
    INSERT INTO counts AS c (tenant, state, count)
    SELECT CASE WHEN grouping(tenant) = 1 THEN '' ELSE tenant END, state, sum(delta) FROM taken
    GROUP BY GROUPING SETS ((tenant, state), (state))
    ON CONFLICT (tenant, state) DO UPDATE SET count = c.count + excluded.count
)
SELECT upto FROM stop
