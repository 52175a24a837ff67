INSERT INTO keys (tenant, key, used_for, target, fingerprint, until)
SELECT * FROM unnest($1::text[], $2::text[], $3::smallint[], $4::uuid[], $5::bytea[], $6::bigint[])
