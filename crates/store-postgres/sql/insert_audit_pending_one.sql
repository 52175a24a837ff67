INSERT INTO audit_pending (chain, at, content) VALUES ($1, $2, $3)
