SELECT e.id, e.seq, e.body_seq, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.status, p.due_at, p.size
FROM (SELECT $3::text COLLATE "C" AS tenant, n.id, n.run_at, n.seq, n.size, n.due_at,
             sum(n.size) OVER (ORDER BY n.due_at, n.id) AS bytes, row_number() OVER (ORDER BY n.due_at, n.id) AS number
      FROM (SELECT id, run_at, seq, size, due_at FROM timers
            WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND (due_at, id) > ($4::bigint, $5::uuid) AND due_at <= $6
            ORDER BY shard, bucket, tenant, due_at, id LIMIT $7) n) p
CROSS JOIN LATERAL (
    SELECT l.tenant, l.id, l.run_at, l.seq, l.state, l.body_seq, l.status FROM events l
    WHERE l.tenant = p.tenant AND l.id = p.id AND l.seq = p.seq AND l.run_at = p.run_at LIMIT 1) e
CROSS JOIN LATERAL (
    SELECT o.shard, o.kind, o.spec, o.payload FROM jobs o
    WHERE o.tenant = e.tenant AND o.id = e.id AND o.run_at = e.run_at LIMIT 1) j
LEFT JOIN LATERAL (
    SELECT c.kind, c.spec, c.payload FROM events c
    WHERE e.body_seq IS NOT NULL AND c.tenant = e.tenant AND c.id = e.id AND c.seq = e.body_seq
      AND c.run_at = e.run_at LIMIT 1) b ON true
WHERE p.bytes - p.size <= $8 OR p.number <= 2
ORDER BY p.due_at, p.id
