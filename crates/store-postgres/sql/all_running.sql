-- All attempts under way, with their jobs.
SELECT r.tenant, r.id, j.kind, j.spec, j.payload, r.status
FROM running r
JOIN jobs j ON j.tenant = r.tenant AND j.id = r.id
     AND j.run_at = r.run_at
ORDER BY r.tenant, r.id
