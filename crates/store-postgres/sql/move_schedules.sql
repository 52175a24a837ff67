-- Most changes leave the name alone; not touching it spares its index.
UPDATE schedules s SET revision = k.revision, record = k.record
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bytea[], $5::bigint[])
     AS k(tenant, id, revision, record, old_revision)
WHERE s.tenant = k.tenant COLLATE "C" AND s.id = k.id AND s.revision = k.old_revision
