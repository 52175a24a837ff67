-- All attempts under way, with their jobs: those noted as such, and those that began since. One that something happened
-- to since is over, or goes on under the next number.
SELECT e.tenant, e.id, COALESCE(b.kind, j.kind) AS kind, COALESCE(b.spec, j.spec) AS spec,
       COALESCE(b.payload, j.payload) AS payload, e.status
FROM (SELECT u.tenant, u.id, u.run_at, u.seq
      FROM ((SELECT tenant, id, run_at, seq FROM events
             WHERE state = 1 AND number >= (SELECT attempts_from FROM marks) ORDER BY number OFFSET 0)
            UNION ALL
            (SELECT tenant, id, run_at, seq FROM attempts)) u
      WHERE (SELECT n.seq FROM events n WHERE n.tenant = u.tenant AND n.id = u.id AND n.seq = u.seq + 1
                        AND n.run_at = u.run_at LIMIT 1) IS NULL
      ORDER BY u.tenant, u.id OFFSET 0) p
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
