-- One tenant's jobs below an id, latest first, as they stand in small tables only: $6 timers, $7 attempts under way, $8
-- dead letters, $9 timers of what is tried again.
SELECT e.id, j.shard, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.seq, e.state, e.body_seq, e.status
FROM (SELECT tenant, run_at, id, seq FROM (
        (SELECT tenant, run_at, id, seq FROM timers
         WHERE $6::boolean AND tenant = $1 AND id < $3 AND run_at BETWEEN $4 AND $2
         ORDER BY tenant DESC, id DESC LIMIT $5)
        UNION ALL
        (SELECT u.tenant, u.run_at, u.id, u.seq
         FROM ((SELECT tenant, run_at, id, seq FROM attempts WHERE tenant = $1 AND id < $3)
               UNION ALL
               (SELECT e.tenant, e.run_at, e.id, e.seq FROM events e
                WHERE e.state = 1 AND e.number >= (SELECT attempts_from FROM marks) AND e.tenant = $1 AND e.id < $3
                ORDER BY e.number OFFSET 0)) u
         WHERE $7::boolean AND u.run_at BETWEEN $4 AND $2
           AND (SELECT n.seq FROM events n WHERE n.tenant = u.tenant AND n.id = u.id AND n.seq = u.seq + 1
                           AND n.run_at = u.run_at LIMIT 1) IS NULL
         ORDER BY u.id DESC LIMIT $5)
        UNION ALL
        (SELECT tenant, run_at, id, seq FROM timers
         WHERE $9::boolean AND state = 2 AND tenant = $1 AND id < $3 AND run_at BETWEEN $4 AND $2
         ORDER BY tenant DESC, id DESC LIMIT $5)
        UNION ALL
        (SELECT tenant, run_at, id, seq FROM dead_letters
         WHERE $8::boolean AND tenant = $1 AND id < $3 AND run_at BETWEEN $4 AND $2
         ORDER BY tenant DESC, id DESC LIMIT $5)) p
      ORDER BY id DESC LIMIT $5) p
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
ORDER BY e.id DESC
