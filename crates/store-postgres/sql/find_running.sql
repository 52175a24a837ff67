-- Of the jobs asked for, those with an attempt under way: what an outcome usually finds.
SELECT k.ord, j.kind, j.spec, j.payload, r.seq, r.status
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS k(tenant, id, run_at, ord)
JOIN running r ON r.tenant = k.tenant COLLATE "C" AND r.id = k.id
JOIN jobs j ON j.tenant = k.tenant COLLATE "C" AND j.run_at = k.run_at AND j.id = k.id
