INSERT INTO dead_letters (tenant, id, run_at, finished_at, seq, status)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::integer[], $6::bytea[])
