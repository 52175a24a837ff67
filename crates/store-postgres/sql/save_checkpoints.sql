INSERT INTO checkpoints (shard, record) SELECT * FROM unnest($1::smallint[], $2::bytea[])
ON CONFLICT (shard) DO UPDATE SET record = excluded.record
