DELETE FROM keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM keys WHERE until <= $1 ORDER BY until LIMIT $2))
