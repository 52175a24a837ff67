DELETE FROM jobs j USING unnest($1::text[], $2::bigint[], $3::uuid[]) AS k(tenant, run_at, id)
WHERE j.tenant = k.tenant COLLATE "C" AND j.run_at = k.run_at AND j.id = k.id
