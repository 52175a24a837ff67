-- The audit trail: records in chains, one chain to a shard, each record naming the hash of the one before it. Put in
-- once, never changed; old ones are taken out by whole days, oldest first, and the chain remembers the last of them.
CREATE TABLE audit_chains (
    chain       smallint PRIMARY KEY CHECK (chain >= 0),
    seq         bigint NOT NULL CHECK (seq >= anchor_seq),
    at          bigint NOT NULL,
    hash        bytea NOT NULL CHECK (octet_length(hash) = 32),
    anchor_seq  bigint NOT NULL CHECK (anchor_seq >= 0),
    anchor_at   bigint NOT NULL,
    anchor_hash bytea NOT NULL CHECK (octet_length(anchor_hash) = 32)
) WITH (fillfactor = 50);

-- The key is what keeps a chain from forking, whoever adds to it: a number is there once.
CREATE TABLE audit (
    chain       smallint NOT NULL,
    seq         bigint NOT NULL CHECK (seq > 0),
    at          bigint NOT NULL,
    kind        smallint NOT NULL CHECK (kind IN (0, 1)),
    previous    bytea NOT NULL CHECK (octet_length(previous) = 32),
    hash        bytea NOT NULL CHECK (octet_length(hash) = 32),
    content     bytea NOT NULL,
    PRIMARY KEY (chain, seq)
);
CREATE INDEX audit_place ON audit (at, chain, seq);
-- Acts are few among many changes of jobs.
CREATE INDEX audit_acts ON audit (at, chain, seq) WHERE kind = 0;

-- What became of jobs, put in with the change itself and linked into its chain a moment later by one node at a time:
-- no change waits for another's.
CREATE TABLE audit_pending (
    number      bigint PRIMARY KEY DEFAULT nextval('numbers'),
    chain       smallint NOT NULL CHECK (chain >= 0),
    at          bigint NOT NULL,
    content     bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- All that was put aside with a number below this is linked, so that nobody looks there again.
CREATE TABLE audit_mark (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    linked      bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO audit_mark DEFAULT VALUES;
