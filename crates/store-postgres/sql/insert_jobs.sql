INSERT INTO jobs (tenant, run_at, id, kind, spec, payload)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[])
