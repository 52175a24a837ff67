INSERT INTO documents (kind, tenant, name, version, bytes) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (kind, tenant, name) DO UPDATE SET version = excluded.version, bytes = excluded.bytes
