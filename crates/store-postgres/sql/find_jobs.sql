-- Jobs as they stand, each of them asked for by its whole key: one statement, and so one snapshot. $4 and $5 are the first
-- and the last time in the ids; they spare opening the partitions of other days. Looks that give one row each leave a
-- plan no choice, also one that was made while tables were empty.
SELECT k.ord, j.shard, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.seq, e.state, e.body_seq, e.status
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS k(tenant, id, run_at, ord)
CROSS JOIN LATERAL (
    SELECT o.tenant, o.id, o.run_at, o.shard, o.kind, o.spec, o.payload FROM jobs o
    WHERE o.tenant = k.tenant COLLATE "C" AND o.id = k.id AND o.run_at = k.run_at AND o.run_at BETWEEN $4 AND $5
    LIMIT 1) j
LEFT JOIN LATERAL (
    SELECT l.tenant, l.id, l.run_at, l.seq, l.state, l.body_seq, l.status FROM events l
    WHERE l.tenant = j.tenant AND l.id = j.id AND l.run_at = j.run_at AND l.run_at BETWEEN $4 AND $5
    ORDER BY l.seq DESC LIMIT 1) e ON true
LEFT JOIN LATERAL (
    SELECT c.kind, c.spec, c.payload FROM events c
    WHERE e.body_seq IS NOT NULL AND c.tenant = e.tenant AND c.id = e.id AND c.seq = e.body_seq
      AND c.run_at = e.run_at AND c.run_at BETWEEN $4 AND $5 LIMIT 1) b ON true
