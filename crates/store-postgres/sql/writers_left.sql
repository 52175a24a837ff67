-- Whether somebody who wrote when they were noted still does.
SELECT EXISTS (
    SELECT FROM pg_locks l, marks m
    WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = 1953064037::oid AND l.objid = hashtext(current_schema())::oid
      AND l.virtualtransaction = ANY (m.writers))
