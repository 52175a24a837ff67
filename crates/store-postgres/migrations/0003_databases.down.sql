-- What a database is among others goes.
ALTER TABLE settings DROP COLUMN databases, DROP COLUMN place, DROP COLUMN cluster;
