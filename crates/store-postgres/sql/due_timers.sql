SELECT p.id, p.size, j.kind, j.spec, j.payload, p.status
FROM (SELECT n.id, n.run_at, n.size, n.due_at, n.status, sum(n.size) OVER (ORDER BY n.due_at, n.id) AS bytes,
             row_number() OVER (ORDER BY n.due_at, n.id) AS number
      FROM (SELECT id, run_at, size, due_at, status FROM timers
            WHERE shard = $1 AND bucket = $2 AND tenant = $3 AND (due_at, id) > ($4::bigint, $5::uuid) AND due_at <= $6
            ORDER BY shard, bucket, tenant, due_at, id LIMIT $7) n) p
JOIN jobs j ON j.tenant = $3 AND j.run_at = p.run_at AND j.id = p.id
WHERE p.bytes - p.size <= $8 OR p.number <= 2
ORDER BY p.due_at, p.id
