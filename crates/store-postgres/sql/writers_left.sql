-- Whether somebody who wrote when they were noted still does.
SELECT EXISTS (
    SELECT FROM pg_locks l, marks m
    WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = $1::bigint::oid AND l.objid = $2::bigint::oid AND l.virtualtransaction = ANY (m.writers))
