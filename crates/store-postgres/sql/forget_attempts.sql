DELETE FROM attempts a
WHERE (SELECT n.seq FROM events n WHERE n.tenant = a.tenant AND n.id = a.id AND n.seq = a.seq + 1
              AND n.run_at = a.run_at LIMIT 1) IS NOT NULL
