SELECT shard, epoch, node, until <= clock_timestamp() AS is_over FROM shard_leases ORDER BY shard
