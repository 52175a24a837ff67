UPDATE audit_chains c SET seq = n.seq, at = n.at, hash = n.hash
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[]) AS n (chain, seq, at, hash)
WHERE c.chain = n.chain
