-- That no lease of these shards is over, or of another epoch than is given; each is held until the
-- batch commits. A division by zero if it is otherwise, which has the database refuse all that
-- comes behind. A shard is given once.
SELECT 1 / (count(*) = 0)::integer
FROM (SELECT shard, epoch, until FROM shard_leases WHERE shard = ANY ($1::smallint[])
      FOR KEY SHARE) l
WHERE l.until <= clock_timestamp()
   OR l.epoch <> ($2::bigint[])[array_position($1::smallint[], l.shard)]
