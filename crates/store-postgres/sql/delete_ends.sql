DELETE FROM ends e USING unnest($1::text[], $2::bigint[], $3::uuid[], $4::integer[]) AS k(tenant, run_at, id, seq)
WHERE e.tenant = k.tenant COLLATE "C" AND e.run_at = k.run_at AND e.id = k.id AND e.seq = k.seq
