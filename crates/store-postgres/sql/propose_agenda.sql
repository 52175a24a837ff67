-- Up to the first job that nothing has happened to, but not beyond $3: what is submitted for now should not be late.
UPDATE agenda a SET pending = p.upto
FROM (SELECT o.row, o.from_id, least(COALESCE(f.id, o.to_id), $3::uuid) AS upto
      FROM generate_series(0, $1::integer - 1) AS s(shard)
      CROSS JOIN LATERAL (
          SELECT w.ctid AS row, w.shard, w.bucket, w.tenant, w.from_id, w.to_id FROM agenda w
          WHERE w.shard = s.shard::smallint AND w.bucket <= $2 AND w.pending IS NULL
          ORDER BY w.shard, w.bucket OFFSET 0) o
      LEFT JOIN LATERAL (
          SELECT j.id FROM jobs j
          WHERE j.tenant = o.tenant AND j.id >= o.from_id AND j.id < o.to_id
            AND j.run_at >= o.bucket::bigint * 600000 AND j.run_at < (o.bucket::bigint + 1) * 600000
            AND j.shard = o.shard
            AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                            AND e.run_at = j.run_at LIMIT 1) IS NULL
          ORDER BY j.tenant, j.id LIMIT 1) f ON true
      OFFSET 0) p
WHERE a.ctid = p.row AND p.upto > p.from_id
