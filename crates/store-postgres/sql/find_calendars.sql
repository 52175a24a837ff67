SELECT k.ord, c.dates FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(tenant, name, ord)
JOIN calendars c ON c.tenant = k.tenant COLLATE "C" AND c.name = k.name COLLATE "C"
