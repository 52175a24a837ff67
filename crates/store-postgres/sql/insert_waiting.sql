INSERT INTO waiting (shard, bucket, tenant, id, run_at, size)
SELECT * FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[], $5::bigint[], $6::integer[])
