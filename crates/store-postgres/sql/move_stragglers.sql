-- Jobs that still wait in a bucket that was over long ago get timers, a limited number at a time: otherwise each read from
-- there passes all that has begun behind them. Only the first $6 of a place are looked at: where marks stand, the first waits.
-- One that is claimed at this moment is left alone.
WITH late AS (
    SELECT f.tenant, f.id, f.run_at, o.shard, o.bucket, f.size
    FROM generate_series(0, $1::integer - 1) AS s(shard)
    CROSS JOIN LATERAL (
        SELECT w.shard, w.bucket, w.tenant, w.from_id, w.to_id FROM agenda w
        WHERE w.shard = s.shard::smallint AND w.bucket <= $2 ORDER BY w.shard, w.bucket OFFSET 0) o
    CROSS JOIN LATERAL (
        SELECT n.tenant, n.id, n.run_at, n.size
        FROM (SELECT j.tenant, j.id, j.run_at, octet_length(j.payload) + 512 AS size FROM jobs j
              WHERE j.tenant = o.tenant AND j.id >= o.from_id AND j.id < o.to_id
                AND j.run_at >= o.bucket::bigint * 600000 AND j.run_at < (o.bucket::bigint + 1) * 600000
                AND j.shard = o.shard
              ORDER BY j.tenant, j.id LIMIT $6) n
        WHERE (SELECT e.seq FROM events e WHERE e.tenant = n.tenant AND e.id = n.id AND e.seq = 1
               AND e.run_at = n.run_at LIMIT 1) IS NULL
        LIMIT $3) f
    LIMIT $3
), told AS (
    INSERT INTO events (tenant, run_at, id, seq, state, attempt, at, status, number)
    SELECT tenant, run_at, id, 1, 0, 0, $4::bigint, $5::bytea, (SELECT nextval('numbers')) FROM late
    ON CONFLICT DO NOTHING RETURNING tenant, id
)
INSERT INTO timers (tenant, id, shard, bucket, due_at, run_at, state, seq, size)
SELECT l.tenant, l.id, l.shard, l.bucket, l.run_at, l.run_at, 0, 1, l.size
FROM late l JOIN told t ON t.tenant = l.tenant AND t.id = l.id
