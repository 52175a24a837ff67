-- The places of the other databases that were used with this one, which is the first. An empty one in such a place is not taken in.
ALTER TABLE settings ADD COLUMN used smallint[] NOT NULL DEFAULT '{}';
