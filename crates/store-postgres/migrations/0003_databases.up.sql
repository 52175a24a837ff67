-- Which of how many databases of a cluster this is: fixed when it is made. A cluster that is in one database is the usual.
-- All databases of a cluster have the same id.
ALTER TABLE settings
    ADD COLUMN databases smallint NOT NULL DEFAULT 1 CHECK (databases > 0),
    ADD COLUMN place smallint NOT NULL DEFAULT 0 CHECK (place >= 0),
    ADD COLUMN cluster uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD CONSTRAINT settings_place_is_one_of_the_databases CHECK (place < databases);
