-- Whoever writes now. Whoever begins later sees what was pending before.
UPDATE marks SET writers = ARRAY(
    SELECT l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = 1953064037::oid AND l.objid = hashtext(current_schema())::oid AND l.pid <> pg_backend_pid())
