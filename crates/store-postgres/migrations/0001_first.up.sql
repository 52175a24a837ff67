-- The first layout. Tables stand in a schema of their own, which the connection's search_path names.
--
-- A job's body (`jobs`) is written once. Where the job stands is one row in exactly one of five tables: `waiting`
-- (nothing has happened to it yet), `timers` (waits again: retried, moved, run again), `running`, `dead_letters`,
-- `ends`. Every change takes that row out and puts another in, so a change that lost a race finds its row gone.

CREATE TABLE settings (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    shards      integer NOT NULL CHECK (shards BETWEEN 1 AND 4096),
    bucket_ms   bigint NOT NULL CHECK (bucket_ms > 0),
    zones       text
);

-- Bodies. `run_at` is the time in the id: with the tenant, the id is the whole key, and says which partition.
-- The default partition holds what lies beyond the partitions made so far, and what outlived its own.
CREATE TABLE jobs (
    tenant      text COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 64),
    run_at      bigint NOT NULL CHECK (run_at BETWEEN 0 AND 281474976710655),
    id          uuid NOT NULL,
    kind        text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 128),
    spec        bytea NOT NULL,
    payload     bytea NOT NULL CHECK (octet_length(payload) <= 65536),
    PRIMARY KEY (tenant, id, run_at)
) PARTITION BY RANGE (run_at);
CREATE TABLE jobs_default PARTITION OF jobs DEFAULT;

-- Succeeded, cancelled, skipped or expired; beside the body, and dropped with it.
CREATE TABLE ends (
    tenant      text COLLATE "C" NOT NULL,
    run_at      bigint NOT NULL,
    id          uuid NOT NULL,
    state       smallint NOT NULL CHECK (state IN (3, 5, 6, 7)),
    finished_at bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq >= 0),
    status      bytea NOT NULL,
    PRIMARY KEY (tenant, id, run_at)
) PARTITION BY RANGE (run_at);
CREATE TABLE ends_default PARTITION OF ends DEFAULT;
-- Blocks fill in the order of ends, so a few bytes per block range find what ended late.
CREATE INDEX ends_finished ON ends USING brin (finished_at) WITH (autosummarize = on);

-- Nothing has happened to these yet: due at the time in their id. Rows are put in and taken out, never changed.
CREATE TABLE waiting (
    shard       smallint NOT NULL CHECK (shard >= 0),
    bucket      integer NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    size        integer NOT NULL CHECK (size > 0),
    PRIMARY KEY (shard, bucket, tenant, id),
    CHECK (bucket = run_at / 600000)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Waiting again, at a time that need not be the one in their id.
CREATE TABLE timers (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    shard       smallint NOT NULL CHECK (shard >= 0),
    bucket      integer NOT NULL,
    due_at      bigint NOT NULL,
    run_at      bigint NOT NULL,
    state       smallint NOT NULL CHECK (state IN (0, 2)),
    seq         integer NOT NULL CHECK (seq >= 0),
    size        integer NOT NULL CHECK (size > 0),
    status      bytea NOT NULL,
    PRIMARY KEY (tenant, id),
    CHECK (bucket = greatest(due_at, 0) / 600000)
);
CREATE UNIQUE INDEX timers_due ON timers (shard, bucket, tenant, due_at, id);

-- Attempts under way. A heartbeat changes `seq` and `status`, which no index covers.
CREATE TABLE running (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    attempt     integer NOT NULL CHECK (attempt BETWEEN 1 AND 1048575),
    status      bytea NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

CREATE TABLE dead_letters (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    finished_at bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    status      bytea NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- How many jobs are in which state: the sum of `delta`. Every batch adds rows; now and then they are folded.
CREATE TABLE tallies (
    tenant      text COLLATE "C" NOT NULL,
    state       smallint NOT NULL CHECK (state BETWEEN 0 AND 7),
    delta       bigint NOT NULL
);
CREATE INDEX tallies_tenant ON tallies (tenant);

CREATE TABLE keys (
    tenant      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL CHECK (char_length(key) BETWEEN 1 AND 255),
    used_for    smallint NOT NULL CHECK (used_for BETWEEN 0 AND 3),
    target      uuid CHECK ((used_for = 3) = (target IS NULL)),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    until       bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX keys_until ON keys (until);

-- The lock of a schedule's row is what orders everything about it and the jobs it made.
CREATE TABLE schedules (
    tenant      text COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 64),
    id          uuid NOT NULL,
    name        text COLLATE "C",
    revision    bigint NOT NULL CHECK (revision > 0),
    record      bytea NOT NULL,
    PRIMARY KEY (tenant, id),
    -- Looked at when a batch commits: within it, names may change hands.
    CONSTRAINT schedules_name UNIQUE (tenant, name) DEFERRABLE INITIALLY DEFERRED
) WITH (fillfactor = 70);

CREATE SEQUENCE ledger_numbers;
CREATE TABLE ledger (
    tenant      text COLLATE "C" NOT NULL,
    schedule    uuid NOT NULL,
    from_at     bigint NOT NULL,
    number      bigint NOT NULL,
    decided_at  bigint NOT NULL,
    record      bytea NOT NULL,
    PRIMARY KEY (tenant, schedule, from_at, number, decided_at)
) PARTITION BY RANGE (decided_at);
CREATE TABLE ledger_default PARTITION OF ledger DEFAULT;

CREATE TABLE calendars (
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    dates       integer[] NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE checkpoints (
    shard       smallint PRIMARY KEY CHECK (shard >= 0),
    record      bytea NOT NULL
) WITH (fillfactor = 50);

-- Who has what. The epoch is part of a key, so that whoever changes it waits for the claims that hold it (FOR KEY
-- SHARE), while extending a lease waits for nobody.
CREATE SEQUENCE epochs;
CREATE TABLE leases (
    name        text COLLATE "C" PRIMARY KEY,
    epoch       bigint NOT NULL CHECK (epoch > 0),
    node        text COLLATE "C",
    until       timestamptz NOT NULL,
    UNIQUE (name, epoch)
) WITH (fillfactor = 50);
CREATE TABLE shard_leases (
    shard       smallint PRIMARY KEY CHECK (shard >= 0),
    epoch       bigint NOT NULL CHECK (epoch > 0),
    node        text COLLATE "C",
    until       timestamptz NOT NULL,
    UNIQUE (shard, epoch)
) WITH (fillfactor = 50);

CREATE TABLE nodes (
    id          text COLLATE "C" PRIMARY KEY,
    address     text NOT NULL,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    until       timestamptz NOT NULL
) WITH (fillfactor = 50);
