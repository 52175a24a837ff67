-- The leases of shards that are claimed in, held until the batch commits.
SELECT shard, epoch, until > clock_timestamp() AS holds FROM shard_leases WHERE shard = ANY ($1::smallint[])
FOR KEY SHARE
