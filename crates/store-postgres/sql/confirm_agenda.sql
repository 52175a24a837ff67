-- What was pending becomes so, as far as nothing came in below it meanwhile.
UPDATE agenda a SET pending = NULL, from_id = COALESCE((
          SELECT j.id FROM jobs j
          WHERE j.tenant = a.tenant AND j.id >= a.from_id AND j.id < a.pending
            AND j.run_at >= a.bucket::bigint * 600000 AND j.run_at < (a.bucket::bigint + 1) * 600000
            AND j.shard = a.shard
            AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                            AND e.run_at = j.run_at LIMIT 1) IS NULL
          ORDER BY j.tenant, j.id LIMIT 1), a.pending)
WHERE a.pending IS NOT NULL
