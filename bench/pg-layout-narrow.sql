-- What bench/pg-layout.py compares the store's layout with: a body written once, and a narrow row that moves from table to
-- table, so that every change takes one out and puts another in. One partition per table is enough here.
CREATE TABLE jobs (
    tenant text COLLATE "C" NOT NULL, run_at bigint NOT NULL, id uuid NOT NULL, kind text NOT NULL, spec bytea NOT NULL,
    payload bytea NOT NULL CHECK (octet_length(payload) <= 65536), PRIMARY KEY (tenant, id, run_at)
) PARTITION BY RANGE (run_at);
CREATE TABLE jobs_default PARTITION OF jobs DEFAULT;
CREATE TABLE ends (
    tenant text COLLATE "C" NOT NULL, run_at bigint NOT NULL, id uuid NOT NULL, state smallint NOT NULL,
    finished_at bigint NOT NULL, seq integer NOT NULL, status bytea NOT NULL, PRIMARY KEY (tenant, id, run_at)
) PARTITION BY RANGE (run_at);
CREATE TABLE ends_default PARTITION OF ends DEFAULT;
CREATE INDEX ends_finished ON ends USING brin (finished_at) WITH (autosummarize = on);
CREATE TABLE waiting (
    shard smallint NOT NULL, bucket integer NOT NULL, tenant text COLLATE "C" NOT NULL, id uuid NOT NULL,
    run_at bigint NOT NULL, size integer NOT NULL CHECK (size > 0), PRIMARY KEY (shard, bucket, tenant, id),
    CHECK (bucket = run_at / 600000)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE TABLE running (
    tenant text COLLATE "C" NOT NULL, id uuid NOT NULL, run_at bigint NOT NULL, seq integer NOT NULL,
    attempt integer NOT NULL, status bytea NOT NULL, PRIMARY KEY (tenant, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

CREATE FUNCTION submit(tenants text[], run_ats bigint[], ids uuid[], shards smallint[], buckets integer[], kinds text[],
    specs bytea[], payloads bytea[], statuses bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO jobs (tenant, run_at, id, kind, spec, payload)
    SELECT * FROM unnest(tenants, run_ats, ids, kinds, specs, payloads);
    INSERT INTO waiting (shard, bucket, tenant, id, run_at, size)
    SELECT *, 700 FROM unnest(shards, buckets, tenants, ids, run_ats);
END $$;

CREATE FUNCTION due(shard_ smallint, bucket_ integer, tenant_ text, after uuid) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    SELECT sum(octet_length(q.payload) + octet_length(q.spec)) INTO found FROM (
        SELECT p.id, p.size, j.kind, j.spec, j.payload
        FROM (SELECT n.id, n.run_at, n.size, sum(n.size) OVER (ORDER BY n.id) AS bytes,
                     row_number() OVER (ORDER BY n.id) AS number
              FROM (SELECT id, run_at, size FROM waiting
                    WHERE shard = shard_ AND bucket = bucket_ AND tenant = tenant_ AND id >= after
                    ORDER BY shard, bucket, tenant, id LIMIT 1000) n) p
        JOIN jobs j ON j.tenant = tenant_ AND j.run_at = p.run_at AND j.id = p.id
        WHERE p.bytes - p.size <= 100000000 OR p.number <= 2
        ORDER BY p.id) q;
    RETURN found;
END $$;

CREATE FUNCTION claim_read(tenants text[], run_ats bigint[], ids uuid[], shards smallint[], buckets integer[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    SELECT sum(octet_length(j.payload) + octet_length(j.spec)) INTO found
    FROM unnest(tenants, ids, shards, buckets) WITH ORDINALITY AS k(tenant, id, shard, bucket, ord)
    JOIN waiting w ON w.shard = k.shard AND w.bucket = k.bucket AND w.tenant = k.tenant COLLATE "C" AND w.id = k.id
    JOIN jobs j ON j.tenant = w.tenant AND j.run_at = w.run_at AND j.id = w.id;
    RETURN found;
END $$;

CREATE FUNCTION claim_write(tenants text[], run_ats bigint[], ids uuid[], shards smallint[], buckets integer[],
    statuses bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM waiting w USING unnest(shards, buckets, tenants, ids) AS k(shard, bucket, tenant, id)
    WHERE w.shard = k.shard AND w.bucket = k.bucket AND w.tenant = k.tenant COLLATE "C" AND w.id = k.id;
    INSERT INTO running (tenant, id, run_at, seq, attempt, status)
    SELECT t, i, r, 1, 1, s FROM unnest(tenants, ids, run_ats, statuses) AS k(t, i, r, s);
END $$;

CREATE FUNCTION heartbeat(tenants text[], run_ats bigint[], ids uuid[], n integer, statuses bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE running r SET seq = n + 1, status = k.s FROM unnest(tenants, ids, statuses) AS k(t, i, s)
    WHERE r.tenant = k.t COLLATE "C" AND r.id = k.i AND r.seq = n;
END $$;

CREATE FUNCTION finish_read(tenants text[], run_ats bigint[], ids uuid[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    SELECT sum(octet_length(j.payload) + octet_length(j.spec) + octet_length(r.status)) INTO found
    FROM unnest(tenants, ids) WITH ORDINALITY AS k(tenant, id, ord)
    JOIN running r ON r.tenant = k.tenant COLLATE "C" AND r.id = k.id
    JOIN jobs j ON j.tenant = r.tenant AND j.run_at = r.run_at AND j.id = r.id;
    RETURN found;
END $$;

CREATE FUNCTION finish_write(tenants text[], run_ats bigint[], ids uuid[], seqs integer[], statuses bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM running r USING unnest(tenants, ids, seqs) AS k(tenant, id, seq)
    WHERE r.tenant = k.tenant COLLATE "C" AND r.id = k.id AND r.seq = k.seq;
    INSERT INTO ends (tenant, run_at, id, state, finished_at, seq, status)
    SELECT t, r, i, 3, r, 2, s FROM unnest(tenants, run_ats, ids, statuses) AS k(t, r, i, s);
END $$;
