DELETE FROM dead_letters d USING unnest($1::text[], $2::uuid[], $3::integer[]) AS k(tenant, id, seq)
WHERE d.tenant = k.tenant COLLATE "C" AND d.id = k.id AND d.seq = k.seq
