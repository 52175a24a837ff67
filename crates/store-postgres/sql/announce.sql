INSERT INTO nodes (id, address, version, until)
VALUES ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 ms')
ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, until = excluded.until
