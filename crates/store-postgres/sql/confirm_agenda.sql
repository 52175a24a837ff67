-- What was pending becomes so, as far as nothing came in below it meanwhile; a place that is through goes. Looks at no more
-- than about $1 jobs, twice, as when it was proposed: where there are more, a part becomes so, and the rest stays pending.
-- Says whether some does.
WITH places AS MATERIALIZED (
    SELECT a.ctid AS row, a.shard, a.bucket, a.tenant, a.from_id, a.to_id, a.pending FROM agenda a
    WHERE a.pending IS NOT NULL
    LIMIT $1::bigint
), looked AS MATERIALIZED (
    SELECT p.row, p.shard, p.bucket, p.tenant, p.to_id, p.pending, f.id, f.id IS NOT NULL AND NOT f.waits AS goes_on
    FROM places p
    LEFT JOIN LATERAL (
        SELECT n.id, n.waits
        FROM (SELECT j.id, e.id IS NULL AS waits, row_number() OVER (ORDER BY j.id) AS number
              FROM (SELECT b.id FROM jobs b
                    WHERE b.tenant = p.tenant AND b.id >= p.from_id AND b.id < p.pending
                      AND b.run_at >= p.bucket::bigint * 600000 AND b.run_at < (p.bucket::bigint + 1) * 600000
                      AND b.shard = p.shard
                    ORDER BY b.tenant, b.id
                    LIMIT (SELECT greatest(2, $1::bigint / greatest(1, count(*))) FROM places)) j
              LEFT JOIN (SELECT h.id FROM events h
                    WHERE h.tenant = p.tenant AND h.id >= p.from_id AND h.id < p.pending AND h.seq = 1
                      AND h.run_at >= p.bucket::bigint * 600000 AND h.run_at < (p.bucket::bigint + 1) * 600000
                    ORDER BY h.tenant, h.id OFFSET 0) e ON e.id = j.id) n
        WHERE n.waits OR n.number = (SELECT greatest(2, $1::bigint / greatest(1, count(*))) FROM places)
        ORDER BY n.id LIMIT 1) f ON true
), passed AS MATERIALIZED (
    SELECT l.row, l.to_id, l.pending, CASE WHEN l.goes_on THEN g.id ELSE l.id END AS id,
           l.goes_on AND g.id IS NOT NULL AND NOT g.waits AS goes_on
    FROM looked l
    LEFT JOIN LATERAL (
        SELECT n.id, n.waits
        FROM (SELECT j.id, e.id IS NULL AS waits, row_number() OVER (ORDER BY j.id) AS number
              FROM (SELECT b.id FROM jobs b
                    WHERE l.goes_on AND b.tenant = l.tenant AND b.id >= l.id AND b.id < l.pending
                      AND b.run_at >= l.bucket::bigint * 600000 AND b.run_at < (l.bucket::bigint + 1) * 600000
                      AND b.shard = l.shard
                    ORDER BY b.tenant, b.id
                    LIMIT (SELECT greatest(2, $1::bigint / greatest(1, count(*))) FROM looked WHERE goes_on)) j
              LEFT JOIN (SELECT h.id FROM events h
                    WHERE l.goes_on AND h.tenant = l.tenant AND h.id >= l.id AND h.id < l.pending AND h.seq = 1
                      AND h.run_at >= l.bucket::bigint * 600000 AND h.run_at < (l.bucket::bigint + 1) * 600000
                    ORDER BY h.tenant, h.id OFFSET 0) e ON e.id = j.id) n
        WHERE n.waits OR n.number = (SELECT greatest(2, $1::bigint / greatest(1, count(*))) FROM looked WHERE goes_on)
        ORDER BY n.id LIMIT 1) g ON true
), closed AS (
    DELETE FROM agenda a USING passed p WHERE a.ctid = p.row AND p.id IS NULL AND p.pending = p.to_id
), moved AS (
    UPDATE agenda a SET from_id = COALESCE(p.id, p.pending), pending = CASE WHEN p.goes_on THEN p.pending END
    FROM passed p WHERE a.ctid = p.row AND (p.id IS NOT NULL OR p.pending < p.to_id)
)
SELECT COALESCE(bool_or(goes_on), false) OR count(*) >= $1::bigint FROM passed
