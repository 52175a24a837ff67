DELETE FROM timers WHERE ctid = ANY (ARRAY(
    SELECT r.row FROM unnest($1::text[], $2::uuid[]) AS k(tenant, id)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS row FROM timers t WHERE t.tenant = k.tenant COLLATE "C" AND t.id = k.id LIMIT 1) r))
