INSERT INTO running (tenant, id, run_at, seq, attempt, status)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::integer[], $5::integer[], $6::bytea[])
