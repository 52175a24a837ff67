UPDATE shard_leases l SET node = NULL, until = '-infinity'
FROM unnest($1::smallint[], $2::bigint[]) AS k(shard, epoch)
WHERE l.shard = k.shard AND l.epoch = k.epoch AND l.node = $3
