INSERT INTO leases AS l (name, epoch, node, until)
VALUES ($1, nextval('epochs'), $2, clock_timestamp() + $3::bigint * interval '1 ms')
ON CONFLICT (name) DO UPDATE SET
    epoch = CASE WHEN l.node = $2 AND l.until > clock_timestamp() THEN l.epoch ELSE excluded.epoch END,
    node = $2, until = excluded.until
WHERE l.node = $2 OR l.until <= clock_timestamp()
RETURNING epoch
