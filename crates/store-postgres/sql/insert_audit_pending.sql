INSERT INTO audit_pending (chain, at, content) SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bytea[])
