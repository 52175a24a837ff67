-- What is asked for changes by a user's hand only: another priority, an edited replay, a run that is planned anew.
INSERT INTO events (tenant, run_at, id, seq, state, attempt, at, body_seq, status, kind, spec, payload, number)
SELECT *, (SELECT nextval('numbers'))
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::integer[], $5::smallint[], $6::integer[], $7::bigint[],
    $8::integer[], $9::bytea[], $10::text[], $11::bytea[], $12::bytea[])
