SELECT k.ord, s.id FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(tenant, name, ord)
JOIN schedules s ON s.tenant = k.tenant COLLATE "C" AND s.name = k.name COLLATE "C"
