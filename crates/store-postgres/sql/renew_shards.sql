UPDATE shard_leases l SET until = clock_timestamp() + $4::bigint * interval '1 ms'
FROM unnest($1::smallint[], $2::bigint[]) AS k(shard, epoch)
WHERE l.shard = k.shard AND l.epoch = k.epoch AND l.node = $3 AND l.until > clock_timestamp()
RETURNING l.shard, l.epoch
