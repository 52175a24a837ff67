SELECT tenant, name, version, bytes
FROM documents
WHERE kind = $1
  AND ($2::text IS NULL OR tenant = $2)
  AND ($3::text IS NULL OR (tenant, name) > ($3 COLLATE "C", $4 COLLATE "C"))
ORDER BY tenant, name
LIMIT $5
