-- Up to the first job that nothing has happened to, but not beyond $3: what is submitted for now should not be late. Looks at
-- no more than about $4 jobs, twice: first at equally many of each place, then at more of those that go on. Says whether
-- some still do. Jobs and their first events are gone through side by side, in the order of both.
WITH places AS MATERIALIZED (
    SELECT o.row, o.shard, o.bucket, o.tenant, o.from_id, o.to_id
    FROM generate_series(0, $1::integer - 1) AS s(shard)
    CROSS JOIN LATERAL (
        SELECT w.ctid AS row, w.shard, w.bucket, w.tenant, w.from_id, w.to_id FROM agenda w
        WHERE w.shard = s.shard::smallint AND w.bucket <= $2 AND w.pending IS NULL
        ORDER BY w.shard, w.bucket OFFSET 0) o
    LIMIT $4::bigint
), looked AS MATERIALIZED (
    SELECT p.row, p.shard, p.bucket, p.tenant, p.from_id, p.to_id, f.id, f.id IS NOT NULL AND NOT f.waits AS goes_on
    FROM places p
    LEFT JOIN LATERAL (
        SELECT n.id, n.waits
        FROM (SELECT j.id, e.id IS NULL AS waits, row_number() OVER (ORDER BY j.id) AS number
              FROM (SELECT b.id FROM jobs b
                    WHERE b.tenant = p.tenant AND b.id >= p.from_id AND b.id < p.to_id
                      AND b.run_at >= p.bucket::bigint * 600000 AND b.run_at < (p.bucket::bigint + 1) * 600000
                      AND b.shard = p.shard
                    ORDER BY b.tenant, b.id
                    LIMIT (SELECT greatest(2, $4::bigint / greatest(1, count(*))) FROM places)) j
              LEFT JOIN (SELECT h.id FROM events h
                    WHERE h.tenant = p.tenant AND h.id >= p.from_id AND h.id < p.to_id AND h.seq = 1
                      AND h.run_at >= p.bucket::bigint * 600000 AND h.run_at < (p.bucket::bigint + 1) * 600000
                    ORDER BY h.tenant, h.id OFFSET 0) e ON e.id = j.id) n
        WHERE n.waits OR n.number = (SELECT greatest(2, $4::bigint / greatest(1, count(*))) FROM places)
        ORDER BY n.id LIMIT 1) f ON true
), passed AS MATERIALIZED (
    SELECT l.row, l.from_id, l.to_id, CASE WHEN l.goes_on THEN g.id ELSE l.id END AS id,
           l.goes_on AND g.id IS NOT NULL AND NOT g.waits AS goes_on
    FROM looked l
    LEFT JOIN LATERAL (
        SELECT n.id, n.waits
        FROM (SELECT j.id, e.id IS NULL AS waits, row_number() OVER (ORDER BY j.id) AS number
              FROM (SELECT b.id FROM jobs b
                    WHERE l.goes_on AND b.tenant = l.tenant AND b.id >= l.id AND b.id < l.to_id
                      AND b.run_at >= l.bucket::bigint * 600000 AND b.run_at < (l.bucket::bigint + 1) * 600000
                      AND b.shard = l.shard
                    ORDER BY b.tenant, b.id
                    LIMIT (SELECT greatest(2, $4::bigint / greatest(1, count(*))) FROM looked WHERE goes_on)) j
              LEFT JOIN (SELECT h.id FROM events h
                    WHERE l.goes_on AND h.tenant = l.tenant AND h.id >= l.id AND h.id < l.to_id AND h.seq = 1
                      AND h.run_at >= l.bucket::bigint * 600000 AND h.run_at < (l.bucket::bigint + 1) * 600000
                    ORDER BY h.tenant, h.id OFFSET 0) e ON e.id = j.id) n
        WHERE n.waits OR n.number = (SELECT greatest(2, $4::bigint / greatest(1, count(*))) FROM looked WHERE goes_on)
        ORDER BY n.id LIMIT 1) g ON true
), said AS (
    UPDATE agenda a SET pending = least(COALESCE(p.id, p.to_id), $3::uuid)
    FROM passed p
    WHERE a.ctid = p.row AND least(COALESCE(p.id, p.to_id), $3::uuid) > p.from_id
)
SELECT COALESCE(bool_or(goes_on AND id < $3::uuid), false) OR count(*) >= $4::bigint FROM passed
