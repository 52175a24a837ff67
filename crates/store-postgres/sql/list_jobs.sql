-- One tenant's jobs below an id, latest first, as they stand. An id begins with its time; `run_at` is named beside it
-- for the sake of partitions, which need not all be looked at. A job whose id ends with the mark of a sub-shard is in that
-- one of the tenant's shards, every other in the first.
SELECT j.id, j.kind, j.spec, j.payload,
       w.id IS NOT NULL AS fresh,
       CASE WHEN t.id IS NOT NULL THEN 1::smallint WHEN r.id IS NOT NULL THEN 2::smallint
            WHEN d.id IS NOT NULL THEN 3::smallint WHEN e.id IS NOT NULL THEN 4::smallint END AS place,
       COALESCE(t.seq, r.seq, d.seq, e.seq) AS seq,
       COALESCE(t.status, r.status, d.status, e.status) AS status
FROM (SELECT tenant, run_at, id, kind, spec, payload FROM jobs
      WHERE tenant = $1 AND id < $3 AND run_at <= $2 AND run_at >= $4
      ORDER BY tenant DESC, id DESC LIMIT $5) j
LEFT JOIN waiting w ON w.shard = ($6::smallint[])[1 + CASE WHEN j.id::text LIKE '%5bd1e_'
                                                           THEN get_byte(uuid_send(j.id), 15) % 16 ELSE 0 END]
      AND w.bucket = (j.run_at / $7::bigint)::integer AND w.tenant = j.tenant AND w.id = j.id
LEFT JOIN timers t ON t.tenant = j.tenant AND t.id = j.id
LEFT JOIN running r ON r.tenant = j.tenant AND r.id = j.id
LEFT JOIN dead_letters d ON d.tenant = j.tenant AND d.id = j.id
LEFT JOIN ends e ON e.tenant = j.tenant AND e.run_at = j.run_at AND e.id = j.id
ORDER BY j.id DESC
