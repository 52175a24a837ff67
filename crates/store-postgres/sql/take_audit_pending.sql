DELETE FROM audit_pending
WHERE number = ANY (ARRAY(SELECT number FROM audit_pending ORDER BY number LIMIT $1))
RETURNING number, chain, at, content
