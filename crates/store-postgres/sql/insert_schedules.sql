INSERT INTO schedules (tenant, id, name, revision, record)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[])
