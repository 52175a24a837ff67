-- From where the last look ended: rows that were taken before would have to be passed one by one while an old transaction
-- keeps them from being cleared away.
DELETE FROM audit_pending
WHERE number = ANY (ARRAY(
    SELECT number FROM audit_pending WHERE number >= (SELECT linked FROM audit_mark) ORDER BY number LIMIT $1))
RETURNING number, chain, at, content
