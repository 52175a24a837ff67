SELECT k.ord, s.revision, s.record
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, id, ord)
JOIN schedules s ON s.tenant = k.tenant COLLATE "C" AND s.id = k.id
