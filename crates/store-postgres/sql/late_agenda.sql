-- Of the places that a batch has put jobs into, those whose first new job lies below what counts as begun, or soon will;
-- or which have been closed since the batch found them. Asked after the jobs are put in: see `marks`.
SELECT k.ord, a.begun
FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[]) WITH ORDINALITY AS k(shard, bucket, tenant, first_id, ord)
LEFT JOIN LATERAL (
    SELECT greatest(g.from_id, g.pending) AS begun FROM agenda g
    WHERE g.shard = k.shard AND g.bucket = k.bucket AND g.tenant = k.tenant COLLATE "C" LIMIT 1) a ON true
WHERE a.begun IS NULL OR a.begun > k.first_id
