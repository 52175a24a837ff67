INSERT INTO dead_letters (tenant, id, run_at, seq)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::integer[])
