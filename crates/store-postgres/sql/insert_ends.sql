INSERT INTO ends (tenant, run_at, id, state, finished_at, seq, status)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::smallint[], $5::bigint[], $6::integer[], $7::bytea[])
