SELECT least(
    (SELECT bucket FROM waiting WHERE shard = $1 AND bucket BETWEEN $2 AND $3 ORDER BY shard, bucket LIMIT 1),
    (SELECT bucket FROM timers WHERE shard = $1 AND bucket BETWEEN $2 AND $3 ORDER BY shard, bucket LIMIT 1))
