DELETE FROM running r USING unnest($1::text[], $2::uuid[], $3::integer[]) AS k(tenant, id, seq)
WHERE r.tenant = k.tenant COLLATE "C" AND r.id = k.id AND r.seq = k.seq
