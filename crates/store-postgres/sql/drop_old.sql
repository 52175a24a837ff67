-- Ended jobs one by one, a limited number at a time: those in the default partitions, and those that ended on a day
-- before their own. All others go with their day.
WITH old AS (
    (SELECT e.tenant, e.run_at, e.id, e.seq, e.state FROM events_default e
     WHERE e.state IN (3, 5, 6, 7, 8) AND e.at < $1
       AND (SELECT n.seq FROM events n WHERE n.tenant = e.tenant AND n.id = e.id AND n.seq = e.seq + 1
                       AND n.run_at = e.run_at LIMIT 1) IS NULL
     LIMIT $2)
    UNION
    (SELECT e.tenant, e.run_at, e.id, e.seq, e.state FROM early_ends x
     JOIN events e ON e.tenant = x.tenant AND e.id = x.id AND e.seq = x.seq AND e.run_at = x.run_at
     WHERE x.finished_at < $1
       AND (SELECT n.seq FROM events n WHERE n.tenant = x.tenant AND n.id = x.id AND n.seq = x.seq + 1
                       AND n.run_at = x.run_at LIMIT 1) IS NULL
     LIMIT $2)
), history AS (
    DELETE FROM events e USING old WHERE e.tenant = old.tenant AND e.id = old.id AND e.run_at = old.run_at
), bodies AS (
    DELETE FROM jobs j USING old WHERE j.tenant = old.tenant AND j.id = old.id AND j.run_at = old.run_at
), counted AS (
    INSERT INTO tallies (tenant, state, delta)
    SELECT tenant, state, -count(*) FROM old WHERE state <> 8 GROUP BY tenant, state
)
SELECT count(*) FILTER (WHERE state <> 8), count(*) FROM old
