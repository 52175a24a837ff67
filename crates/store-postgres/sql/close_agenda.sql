-- Where all was to count as begun, and nothing came in meanwhile.
DELETE FROM agenda a
WHERE a.pending = a.to_id AND a.pending IS NOT NULL AND (
          SELECT j.id FROM jobs j
          WHERE j.tenant = a.tenant AND j.id >= a.from_id AND j.id < a.to_id
            AND j.run_at >= a.bucket::bigint * 600000 AND j.run_at < (a.bucket::bigint + 1) * 600000
            AND j.shard = a.shard
            AND (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                            AND e.run_at = j.run_at LIMIT 1) IS NULL
          ORDER BY j.tenant, j.id LIMIT 1) IS NULL
