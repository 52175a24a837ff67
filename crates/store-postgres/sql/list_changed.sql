-- One tenant's jobs below an id that something has happened to, latest first, as they stand. Those that wait and never
-- ran may be many, and none of them is looked at.
SELECT e.id, j.shard, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.seq, e.state, e.body_seq, e.status
FROM (SELECT DISTINCT ON (l.tenant, l.id) l.tenant, l.run_at, l.id, l.seq, l.state, l.body_seq, l.status FROM events l
      WHERE l.tenant = $1 AND l.id < $3 AND l.run_at <= $2 AND l.run_at >= $4
      ORDER BY l.tenant DESC, l.id DESC, l.seq DESC LIMIT $5) e
CROSS JOIN LATERAL (
    SELECT o.shard, o.kind, o.spec, o.payload FROM jobs o
    WHERE o.tenant = e.tenant AND o.id = e.id AND o.run_at = e.run_at AND o.run_at <= $2 AND o.run_at >= $4 LIMIT 1) j
LEFT JOIN LATERAL (
    SELECT c.kind, c.spec, c.payload FROM events c
    WHERE e.body_seq IS NOT NULL AND c.tenant = e.tenant AND c.id = e.id AND c.seq = e.body_seq
      AND c.run_at = e.run_at AND c.run_at <= $2 AND c.run_at >= $4 LIMIT 1) b ON true
ORDER BY e.id DESC
