UPDATE schedules s SET name = k.name, revision = k.revision, record = k.record
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $6::bigint[])
     AS k(tenant, id, name, revision, record, old_revision)
WHERE s.tenant = k.tenant COLLATE "C" AND s.id = k.id AND s.revision = k.old_revision
