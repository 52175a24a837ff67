-- One tenant's jobs below an id, latest first, as they stand. An id begins with its time; `run_at` is named beside it
-- for the sake of partitions, which need not all be looked at.
SELECT j.id, j.shard, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.seq, e.state, e.body_seq, e.status
FROM (SELECT tenant, run_at, id, shard, kind, spec, payload FROM jobs
      WHERE tenant = $1 AND id < $3 AND run_at <= $2 AND run_at >= $4
      ORDER BY tenant DESC, id DESC LIMIT $5) j
LEFT JOIN LATERAL (
    SELECT l.tenant, l.id, l.run_at, l.seq, l.state, l.body_seq, l.status FROM events l
    WHERE l.tenant = j.tenant AND l.id = j.id AND l.run_at = j.run_at AND l.run_at <= $2 AND l.run_at >= $4
    ORDER BY l.seq DESC LIMIT 1) e ON true
LEFT JOIN LATERAL (
    SELECT c.kind, c.spec, c.payload FROM events c
    WHERE e.body_seq IS NOT NULL AND c.tenant = e.tenant AND c.id = e.id AND c.seq = e.body_seq
      AND c.run_at = e.run_at AND c.run_at <= $2 AND c.run_at >= $4 LIMIT 1) b ON true
ORDER BY j.id DESC
