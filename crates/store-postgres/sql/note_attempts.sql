-- Attempts that began some time ago and go on.
INSERT INTO attempts (tenant, id, run_at, seq)
SELECT e.tenant, e.id, e.run_at, e.seq
FROM (SELECT tenant, id, run_at, seq FROM events WHERE state = 1 AND number >= $1 AND number < $2
      ORDER BY number OFFSET 0) e
WHERE (SELECT n.seq FROM events n WHERE n.tenant = e.tenant AND n.id = e.id AND n.seq = e.seq + 1
                  AND n.run_at = e.run_at LIMIT 1) IS NULL
