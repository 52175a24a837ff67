INSERT INTO timers (tenant, id, shard, bucket, due_at, run_at, state, seq, size)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::integer[], $5::bigint[], $6::bigint[], $7::smallint[],
    $8::integer[], $9::integer[])
