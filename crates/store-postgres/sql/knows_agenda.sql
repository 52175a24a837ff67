-- That all places that a batch puts jobs into are there, and none of its jobs lies below what
-- counts as begun, or soon will. If it is otherwise, a text that is no number has the database
-- refuse all that comes behind, and its log say why. Looked at once the lock of those who write is
-- held: see `marks`.
SELECT CASE WHEN count(*) = 0 THEN 1
            ELSE ('tidewheel looks again: ' || count(*) || ' places are new or begun')::integer END
FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[])
    AS k(shard, bucket, tenant, first_id)
WHERE ((SELECT greatest(g.from_id, g.pending) FROM agenda g
        WHERE g.shard = k.shard AND g.bucket = k.bucket AND g.tenant = k.tenant COLLATE "C"
        LIMIT 1) <= k.first_id) IS NOT TRUE
