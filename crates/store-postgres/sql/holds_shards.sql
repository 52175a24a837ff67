-- That no lease of these shards is over, or of another epoch than is given; each is held until the
-- batch commits. If it is otherwise, a text that is no number has the database refuse all that
-- comes behind, and its log say why. A shard is given once.
SELECT CASE WHEN count(*) = 0 THEN 1
            ELSE ('tidewheel looks again: leases of ' || count(*) || ' shards are not held')::integer END
FROM (SELECT shard, epoch, until FROM shard_leases WHERE shard = ANY ($1::smallint[])
      FOR KEY SHARE) l
WHERE l.until <= clock_timestamp()
   OR l.epoch <> ($2::bigint[])[array_position($1::smallint[], l.shard)]
