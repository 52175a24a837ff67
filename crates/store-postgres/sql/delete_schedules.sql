DELETE FROM schedules s USING unnest($1::text[], $2::uuid[], $3::bigint[]) AS k(tenant, id, revision)
WHERE s.tenant = k.tenant COLLATE "C" AND s.id = k.id AND s.revision = k.revision
