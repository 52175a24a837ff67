-- Of a place in the agenda the first $4 jobs are looked at: it is named if one of them waits, and if all of them have begun.
SELECT least(
    (SELECT a.bucket
     FROM agenda a, LATERAL (
        SELECT n.id
        FROM (SELECT j.id, row_number() OVER (ORDER BY j.tenant, j.id) AS number,
                     (SELECT e.seq FROM events e WHERE e.tenant = j.tenant AND e.id = j.id AND e.seq = 1
                                     AND e.run_at = j.run_at LIMIT 1) IS NULL AS waits
              FROM jobs j
              WHERE j.tenant = a.tenant AND j.id >= a.from_id AND j.id < a.to_id
                AND j.run_at >= a.bucket::bigint * 600000 AND j.run_at < (a.bucket::bigint + 1) * 600000
                AND j.shard = $1
              ORDER BY j.tenant, j.id) n
        WHERE n.waits OR n.number >= $4 LIMIT 1) f
     WHERE a.shard = $1 AND a.bucket BETWEEN $2 AND $3
     ORDER BY a.shard, a.bucket, a.tenant LIMIT 1),
    (SELECT bucket FROM timers WHERE shard = $1 AND bucket BETWEEN $2 AND $3 ORDER BY shard, bucket LIMIT 1))
