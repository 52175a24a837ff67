-- The keys come sorted, so that two batches never wait for each other. Most are there, and cost a
-- look only.
INSERT INTO agenda (shard, bucket, tenant, from_id, to_id)
SELECT k.shard, k.bucket, k.tenant, k.from_id, k.to_id
FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[], $5::uuid[])
    AS k(shard, bucket, tenant, from_id, to_id)
WHERE (SELECT g.shard FROM agenda g
       WHERE g.shard = k.shard AND g.bucket = k.bucket AND g.tenant = k.tenant COLLATE "C"
       LIMIT 1) IS NULL
ON CONFLICT (shard, bucket, tenant) DO NOTHING
