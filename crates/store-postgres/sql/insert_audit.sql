INSERT INTO audit (chain, seq, at, kind, previous, hash, content)
SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bytea[], $6::bytea[], $7::bytea[])
