INSERT INTO tallies (tenant, state, delta) SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[])
