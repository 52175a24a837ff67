DELETE FROM timers t USING unnest($1::text[], $2::uuid[], $3::integer[]) AS k(tenant, id, seq)
WHERE t.tenant = k.tenant COLLATE "C" AND t.id = k.id AND t.seq = k.seq
