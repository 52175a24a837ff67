-- The first layout. Tables stand in a schema of their own, which the connection's search_path names.
--
-- A job is a row in `jobs`, written once, and a row in `events` for everything that has happened to it since, numbered
-- from 1 (`seq`) without a gap. The last of them says how the job stands; a job without one waits for its first time.
-- Whoever changes a job adds the next number, which is there once: of two that act on the same old state one fails.
-- Nothing is updated or deleted on that path. What is small stands in ordinary tables beside it.

CREATE TABLE settings (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    shards      integer NOT NULL CHECK (shards BETWEEN 1 AND 4096),
    bucket_ms   bigint NOT NULL CHECK (bucket_ms > 0),
    zones       text,
    -- The number of the newest change of a document.
    document_change bigint NOT NULL DEFAULT 0 CHECK (document_change >= 0)
);

-- What an operator sets and many requests go by: tenants, keys, secrets.
CREATE TABLE documents (
    kind        text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    version     bigint NOT NULL CHECK (version > 0),
    bytes       bytea NOT NULL,
    PRIMARY KEY (kind, tenant, name)
);

-- Numbers that order what is written, by the statement: see `marks`.
CREATE SEQUENCE numbers;

-- What was asked for. `run_at` is the time in the id: with the tenant, the id is the whole key, and says which
-- partition. The default partition holds what lies beyond the partitions made so far, and what outlived its own.
CREATE TABLE jobs (
    tenant      text COLLATE "C" NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 64),
    run_at      bigint NOT NULL CHECK (run_at BETWEEN 0 AND 281474976710655),
    id          uuid NOT NULL,
    shard       smallint NOT NULL CHECK (shard >= 0),
    kind        text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 128),
    spec        bytea NOT NULL,
    payload     bytea NOT NULL CHECK (octet_length(payload) <= 65536),
    PRIMARY KEY (tenant, id, run_at)
) PARTITION BY RANGE (run_at);
CREATE TABLE jobs_default PARTITION OF jobs DEFAULT;

-- What happened to jobs: how each stands since. State 8 is a job that was taken out; the others are those of the
-- program. Partitioned as `jobs` are, so that a number is there once, a look at a job is a look at one partition,
-- and a day goes as a whole. `body_seq` is the event that says what is asked for since, if that was changed.
CREATE TABLE events (
    tenant      text COLLATE "C" NOT NULL,
    run_at      bigint NOT NULL,
    id          uuid NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    state       smallint NOT NULL CHECK (state BETWEEN 0 AND 8),
    attempt     integer NOT NULL CHECK (attempt BETWEEN 0 AND 1048575),
    at          bigint NOT NULL,
    number      bigint NOT NULL DEFAULT nextval('numbers'),
    body_seq    integer CHECK (body_seq BETWEEN 1 AND seq),
    status      bytea NOT NULL,
    kind        text CHECK (octet_length(kind) BETWEEN 1 AND 128),
    spec        bytea,
    payload     bytea CHECK (octet_length(payload) <= 65536),
    PRIMARY KEY (tenant, id, seq, run_at),
    CONSTRAINT events_running_attempt CHECK (state <> 1 OR attempt > 0),
    CONSTRAINT events_body CHECK ((spec IS NULL) = (body_seq IS DISTINCT FROM seq) AND (spec IS NULL) = (kind IS NULL)
        AND (spec IS NULL) = (payload IS NULL))
) PARTITION BY RANGE (run_at);
CREATE TABLE events_default PARTITION OF events DEFAULT;
-- Attempts that began, in order: those under way are near its end.
CREATE INDEX events_began ON events (number) WHERE state = 1;
-- Only what stands in no day is taken out one by one.
CREATE INDEX events_default_over ON events_default (at) WHERE state IN (3, 5, 6, 7, 8);

-- Where jobs wait for their first time: a row for each tenant with such jobs in a bucket of a shard, not for each job.
-- They have ids from `from_id` up to before `to_id`, the end of the bucket. What is below `from_id` has begun. It is
-- moved up in two steps, see `marks`: `pending` is where it goes next, and what comes in below that stands in `timers`.
CREATE TABLE agenda (
    shard       smallint NOT NULL CHECK (shard >= 0),
    bucket      integer NOT NULL CHECK (bucket >= 0),
    tenant      text COLLATE "C" NOT NULL,
    from_id     uuid NOT NULL,
    to_id       uuid NOT NULL CHECK (to_id > from_id),
    pending     uuid CHECK (pending > from_id AND pending <= to_id),
    PRIMARY KEY (shard, bucket, tenant)
) WITH (fillfactor = 70);
CREATE INDEX agenda_pending ON agenda (shard, bucket, tenant) WHERE pending IS NOT NULL;

-- Jobs that wait at a time of their own: retried, moved, run again, or come in late.
CREATE TABLE timers (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    shard       smallint NOT NULL CHECK (shard >= 0),
    bucket      integer NOT NULL,
    due_at      bigint NOT NULL,
    run_at      bigint NOT NULL,
    state       smallint NOT NULL CHECK (state IN (0, 2)),
    seq         integer NOT NULL CHECK (seq > 0),
    size        integer NOT NULL CHECK (size > 0),
    PRIMARY KEY (tenant, id),
    CHECK (bucket = greatest(due_at, 0) / 600000)
);
CREATE UNIQUE INDEX timers_due ON timers (shard, bucket, tenant, due_at, id);
-- To list what is tried again without what only waits.
CREATE INDEX timers_again ON timers (tenant, id) WHERE state = 2;

-- Attempts that have been under way for more than a moment, or were when this was last gone through.
CREATE TABLE attempts (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    PRIMARY KEY (tenant, id, seq)
);

CREATE TABLE dead_letters (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    PRIMARY KEY (tenant, id)
);

-- Jobs that ended on a day before the one they were set for: when they are old, their day is not over yet.
CREATE TABLE early_ends (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    run_at      bigint NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    finished_at bigint NOT NULL,
    PRIMARY KEY (tenant, id, seq)
);
CREATE INDEX early_ends_finished ON early_ends (finished_at);

-- How many jobs are in which state: `counts`, and what every batch has added since, which is folded into it now and
-- then. The tenant '' stands for all together.
CREATE TABLE counts (
    tenant      text COLLATE "C" NOT NULL,
    state       smallint NOT NULL CHECK (state BETWEEN 0 AND 7),
    count       bigint NOT NULL,
    PRIMARY KEY (tenant, state)
) WITH (fillfactor = 50);
CREATE TABLE tallies (
    number      bigint NOT NULL DEFAULT nextval('numbers'),
    tenant      text COLLATE "C" NOT NULL,
    state       smallint NOT NULL CHECK (state BETWEEN 0 AND 7),
    delta       bigint NOT NULL
);
CREATE INDEX tallies_number ON tallies (number);

-- How far upkeep has come. Whatever has a number below `settled` is committed or undone, so that a read need not look
-- below it again. To move it up: a number is drawn (`candidate`), then those that write at that moment are noted
-- (`writers`: all of them hold a lock that keeps nobody out), and when they have ended, all below it is settled. What
-- `agenda` has pending becomes so in the same step. Attempts that began below `attempts_from` are in `attempts`.
CREATE TABLE marks (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    settled     bigint NOT NULL DEFAULT 0,
    candidate   bigint CHECK (candidate >= settled),
    writers     text[] CHECK (writers IS NULL OR candidate IS NOT NULL),
    attempts_from bigint NOT NULL DEFAULT 0 CHECK (attempts_from <= settled),
    at          timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO marks DEFAULT VALUES;

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
