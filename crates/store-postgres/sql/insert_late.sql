-- Of the places that a batch puts jobs into, some have their first new job below what counts as
-- begun, or soon will; others have been closed since the batch found them. Jobs of these that lie
-- below get a timer. Looked at once the lock of those who write is held: see `marks`. Jobs come
-- with the number of their place.
WITH places AS MATERIALIZED (
    SELECT k.ord, k.shard, k.bucket, k.tenant, a.begun
    FROM unnest($1::smallint[], $2::integer[], $3::text[], $4::uuid[]) WITH ORDINALITY
        AS k(shard, bucket, tenant, first_id, ord)
    LEFT JOIN LATERAL (
        SELECT greatest(g.from_id, g.pending) AS begun FROM agenda g
        WHERE g.shard = k.shard AND g.bucket = k.bucket AND g.tenant = k.tenant COLLATE "C"
        LIMIT 1) a ON true
    WHERE a.begun IS NULL OR a.begun > k.first_id
), late AS MATERIALIZED (
    SELECT p.shard, p.bucket, p.tenant, j.id, j.run_at, j.size
    FROM places p
    CROSS JOIN LATERAL (
        SELECT u.id, u.run_at, u.size
        FROM unnest($5::integer[], $6::uuid[], $7::bigint[], $8::integer[])
            AS u(place, id, run_at, size)
        WHERE u.place = p.ord AND (p.begun IS NULL OR u.id < p.begun) OFFSET 0) j
), told AS (
    INSERT INTO events (tenant, run_at, id, seq, state, attempt, at, status, number)
    SELECT tenant, run_at, id, 1, 0, 0, $9::bigint, $10::bytea, (SELECT nextval('numbers'))
    FROM late
)
INSERT INTO timers (tenant, id, shard, bucket, due_at, run_at, state, seq, size)
SELECT tenant, id, shard, bucket, run_at, run_at, 0, 1, size FROM late
