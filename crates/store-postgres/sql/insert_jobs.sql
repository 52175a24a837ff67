INSERT INTO jobs (tenant, run_at, id, shard, kind, spec, payload)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::smallint[], $5::text[], $6::bytea[], $7::bytea[])
