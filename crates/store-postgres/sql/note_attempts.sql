-- Attempts that began some time ago and go on; so many are looked at, at most. Says up to where.
WITH stop AS MATERIALIZED (
    SELECT least($2::bigint, greatest($1::bigint + 1, COALESCE((
        SELECT e.number FROM events e WHERE e.state = 1 AND e.number >= $1 AND e.number < $2
        ORDER BY e.number OFFSET $3 LIMIT 1), $2))) AS upto
), noted AS (
    INSERT INTO attempts (tenant, id, run_at, seq)
    SELECT e.tenant, e.id, e.run_at, e.seq
    FROM (SELECT tenant, id, run_at, seq FROM events
          WHERE state = 1 AND number >= $1 AND number < (SELECT upto FROM stop)
          ORDER BY number OFFSET 0) e
    WHERE (SELECT n.seq FROM events n WHERE n.tenant = e.tenant AND n.id = e.id AND n.seq = e.seq + 1
                      AND n.run_at = e.run_at LIMIT 1) IS NULL
)
SELECT upto FROM stop
