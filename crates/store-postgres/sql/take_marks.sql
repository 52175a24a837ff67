-- One node at a time, and none more often than it is worth.
SELECT settled, candidate, attempts_from, writers IS NOT NULL AS waits,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
FROM marks
WHERE writers IS NULL OR at <= clock_timestamp() - $1::bigint * interval '1 ms'
FOR UPDATE SKIP LOCKED
