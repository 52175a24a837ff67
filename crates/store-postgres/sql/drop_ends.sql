-- Ended jobs one by one, a limited number at a time: those in the default partitions, and those that ended long
-- before the time they were set for. All others go with their partition.
WITH old AS (
    SELECT tenant, run_at, id FROM ends WHERE finished_at < $1 LIMIT $2
), ended AS (
    DELETE FROM ends e USING old WHERE e.tenant = old.tenant AND e.run_at = old.run_at AND e.id = old.id
    RETURNING e.tenant, e.run_at, e.id, e.state
), bodies AS (
    DELETE FROM jobs j USING ended WHERE j.tenant = ended.tenant AND j.run_at = ended.run_at AND j.id = ended.id
), counted AS (
    INSERT INTO tallies (tenant, state, delta) SELECT tenant, state, -count(*) FROM ended GROUP BY tenant, state
)
SELECT count(*) FROM ended
