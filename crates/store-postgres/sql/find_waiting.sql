-- Of the jobs asked for, those nothing has happened to yet: what a claim usually finds.
SELECT k.ord, j.kind, j.spec, j.payload
FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::integer[])
     WITH ORDINALITY AS k(tenant, id, shard, bucket, ord)
JOIN waiting w ON w.shard = k.shard AND w.bucket = k.bucket AND w.tenant = k.tenant COLLATE "C" AND w.id = k.id
JOIN jobs j ON j.tenant = w.tenant AND j.run_at = w.run_at AND j.id = w.id
