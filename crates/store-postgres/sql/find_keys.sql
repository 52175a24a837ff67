SELECT k.ord, s.used_for, s.target, s.fingerprint, s.until
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(tenant, key, ord)
JOIN keys s ON s.tenant = k.tenant COLLATE "C" AND s.key = k.key COLLATE "C"
