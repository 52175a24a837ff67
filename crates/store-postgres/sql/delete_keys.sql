-- A key that is free again makes room for its next use; only if it is still the use that was looked at.
DELETE FROM keys s
USING unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[]) AS k(tenant, key, fingerprint, until)
WHERE s.tenant = k.tenant COLLATE "C" AND s.key = k.key COLLATE "C" AND s.fingerprint = k.fingerprint
  AND s.until = k.until
