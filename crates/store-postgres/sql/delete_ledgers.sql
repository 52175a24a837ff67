DELETE FROM ledger l USING unnest($1::text[], $2::uuid[]) AS k(tenant, schedule)
WHERE l.tenant = k.tenant COLLATE "C" AND l.schedule = k.schedule
