-- Which databases were used goes.
ALTER TABLE settings DROP COLUMN used;
