-- Whoever takes the row out has the job: another who wants it too waits here, and then finds it gone.
DELETE FROM waiting w
USING unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[]) AS k(shard, bucket, tenant, id)
WHERE w.shard = k.shard AND w.bucket = k.bucket AND w.tenant = k.tenant COLLATE "C" AND w.id = k.id
