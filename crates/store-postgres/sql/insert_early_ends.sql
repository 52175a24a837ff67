INSERT INTO early_ends (tenant, id, run_at, seq, finished_at)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::integer[], $5::bigint[])
