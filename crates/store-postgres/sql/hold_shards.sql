-- Keys come sorted, so that two nodes never wait for each other. What is held in time keeps its epoch.
INSERT INTO shard_leases AS l (shard, epoch, node, until)
SELECT k.shard, nextval('epochs'), $2, clock_timestamp() + $3::bigint * interval '1 ms'
FROM unnest($1::smallint[]) AS k(shard)
ON CONFLICT (shard) DO UPDATE SET
    epoch = CASE WHEN l.node = $2 AND l.until > clock_timestamp() THEN l.epoch ELSE excluded.epoch END,
    node = $2, until = excluded.until
WHERE l.node IS NULL OR l.node = $2 OR l.until <= clock_timestamp()
RETURNING shard, epoch
