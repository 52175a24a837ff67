-- Jobs as they stand, each of them asked for by its whole key. One statement, and so one snapshot: a job that moves
-- from table to table meanwhile is seen in exactly one of them.
SELECT k.ord, j.kind, j.spec, j.payload,
       w.id IS NOT NULL AS fresh,
       CASE WHEN t.id IS NOT NULL THEN 1::smallint WHEN r.id IS NOT NULL THEN 2::smallint
            WHEN d.id IS NOT NULL THEN 3::smallint WHEN e.id IS NOT NULL THEN 4::smallint END AS place,
       COALESCE(t.seq, r.seq, d.seq, e.seq) AS seq,
       COALESCE(t.status, r.status, d.status, e.status) AS status
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::smallint[], $5::integer[])
     WITH ORDINALITY AS k(tenant, id, run_at, shard, bucket, ord)
JOIN jobs j ON j.tenant = k.tenant COLLATE "C" AND j.run_at = k.run_at AND j.id = k.id
LEFT JOIN waiting w ON w.shard = k.shard AND w.bucket = k.bucket AND w.tenant = k.tenant COLLATE "C" AND w.id = k.id
LEFT JOIN timers t ON t.tenant = k.tenant COLLATE "C" AND t.id = k.id
LEFT JOIN running r ON r.tenant = k.tenant COLLATE "C" AND r.id = k.id
LEFT JOIN dead_letters d ON d.tenant = k.tenant COLLATE "C" AND d.id = k.id
LEFT JOIN ends e ON e.tenant = k.tenant COLLATE "C" AND e.run_at = k.run_at AND e.id = k.id
