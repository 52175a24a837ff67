-- The key is the fence: whoever acts on a state that is no longer the last finds the number taken. All rows of a
-- statement have one place in the order.
INSERT INTO events (tenant, run_at, id, seq, state, attempt, at, body_seq, status, number)
SELECT *, (SELECT nextval('numbers'))
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::integer[], $5::smallint[], $6::integer[], $7::bigint[],
    $8::integer[], $9::bytea[])
