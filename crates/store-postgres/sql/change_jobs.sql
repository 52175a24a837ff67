-- A body changes by a user's hand only: another priority, an edited replay.
UPDATE jobs j SET kind = k.kind, spec = k.spec, payload = k.payload
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[])
     AS k(tenant, run_at, id, kind, spec, payload)
WHERE j.tenant = k.tenant COLLATE "C" AND j.run_at = k.run_at AND j.id = k.id
