-- Of the jobs asked for, those with an attempt under way: what an outcome usually finds.
SELECT k.ord, j.kind, j.spec, j.payload, r.seq, r.status
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, id, ord)
JOIN running r ON r.tenant = k.tenant COLLATE "C" AND r.id = k.id
JOIN jobs j ON j.tenant = r.tenant AND j.run_at = r.run_at AND j.id = r.id
