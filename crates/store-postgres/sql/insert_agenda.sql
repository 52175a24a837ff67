-- The keys come sorted, so that two batches never wait for each other.
INSERT INTO agenda (shard, bucket, tenant, from_id, to_id)
SELECT * FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[], $5::uuid[])
ON CONFLICT (shard, bucket, tenant) DO NOTHING
