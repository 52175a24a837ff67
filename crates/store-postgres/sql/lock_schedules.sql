-- The keys come sorted, so that two batches never wait for each other. What was read before a wait is read again:
-- the row that is returned is the newest.
SELECT k.ord, s.revision, s.record
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, id, ord)
JOIN schedules s ON s.tenant = k.tenant COLLATE "C" AND s.id = k.id
FOR NO KEY UPDATE OF s
