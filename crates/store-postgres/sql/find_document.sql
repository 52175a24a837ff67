SELECT tenant, name, version, bytes FROM documents WHERE kind = $1 AND tenant = $2 AND name = $3
