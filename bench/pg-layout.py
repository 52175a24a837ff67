#!/usr/bin/env python3
"""What a job costs the database, in two layouts side by side: rows that only are added to (the store's own migration and
statements), and narrow rows that move from table to table (pg-layout-narrow.sql).

    scripts/with-postgres bench/pg-layout.py

Batches of 1,000 jobs, 190-byte payloads, one connection, fsync off. Counted is the CPU time of the backend (/proc), which
other programs on the machine disturb less than the clock; look at ratios all the same. The two take turns, each without
and with a transaction that was left open before they began and has written something. About two minutes.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STORE = HERE.parent / "crates" / "store-postgres"
URL = os.environ.get("TIDEWHEEL_TEST_POSTGRES") or sys.exit("run it with scripts/with-postgres")
BATCHES, ROUNDS, SIZE = 8, 8, 1000
WAITING = 100_000
BUCKET = 2_991_168
BUCKET_MS = 600_000
# As the store's own connections are set; each layout with what suits it.
PLANNING = (
    "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_seqscan=off "
    "-c enable_bitmapscan=off -c max_parallel_workers_per_gather=0"
)
PLANNING_APPENDED = PLANNING + " -c enable_material=off -c enable_memoize=off"
TICKS = os.sysconf("SC_CLK_TCK")


class Session:
    """A psql whose backend is watched."""

    def __init__(self, schema):
        planning = PLANNING_APPENDED if schema.startswith("appended") else PLANNING
        env = {**os.environ, "PGOPTIONS": f"-c search_path={schema} {planning}"}
        command = ["psql", URL, "-qAtX", "-v", "ON_ERROR_STOP=1"]
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.pid = self.run("SELECT pg_backend_pid();")

    def run(self, sql):
        """Runs statements; returns the first line they print."""
        self.psql.stdin.write(sql + "\n\\echo --done--\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line.strip() == "--done--":
                return lines[0] if lines else ""
            lines.append(line.strip())
        raise SystemExit("psql has ended")

    def cpu(self):
        """Seconds, by the scheduler's own count where there is one."""
        try:
            return int(pathlib.Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9
        except OSError:
            fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


def statement(name, *arguments):
    """A statement of the store, with its parameters replaced."""
    sql = (STORE / "sql" / f"{name}.sql").read_text()
    sql = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
    return re.sub(r"\$(\d+)", lambda found: arguments[int(found.group(1)) - 1], sql)


def appended_functions():
    keys = "tenants text[], run_ats bigint[], ids uuid[]"
    span = ("(SELECT min(x) FROM unnest(run_ats) x)", "(SELECT max(x) FROM unnest(run_ats) x)")
    find = statement("find_jobs", "tenants", "ids", "run_ats", "low", "high")
    read = f"""
        DECLARE found bigint; low bigint := {span[0]}; high bigint := {span[1]};
        BEGIN
            SELECT sum(octet_length(q.payload) + octet_length(q.spec) + COALESCE(octet_length(q.status), 0)) INTO found
            FROM ({find}) q;
            RETURN found;
        END"""
    event = statement(
        "insert_events", "tenants", "run_ats", "ids", "seqs", "states", "attempts", "run_ats", "nothing", "statuses"
    )
    write = f"""
        DECLARE states smallint[] := array_fill(state_, ARRAY[{SIZE}]); attempts integer[] := array_fill(1, ARRAY[{SIZE}]);
            nothing integer[] := array_fill(NULL::integer, ARRAY[{SIZE}]);
        BEGIN {event}; END"""
    first = "ARRAY[shards[1]], ARRAY[buckets[1]], ARRAY[tenants[1]]"
    agenda = statement("insert_agenda", *first.split(", "), "ARRAY[ids[1]]", "ARRAY['ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid]")
    numbers = f"array_fill(1, ARRAY[{SIZE}])"
    late = statement(
        "insert_late", *first.split(", "), "ARRAY[ids[1]]", numbers, "ids", "run_ats", numbers, "run_ats[1]", "statuses[1]"
    )
    jobs = statement("insert_jobs", "tenants", "run_ats", "ids", "shards", "kinds", "specs", "payloads")
    last = "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid"
    due = statement("due_fresh", "shard_", "bucket_", "tenant_", "after", last, "1000", "100000000")
    return f"""
        CREATE FUNCTION submit({keys}, shards smallint[], buckets integer[], kinds text[], specs bytea[], payloads bytea[],
            statuses bytea[]) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN {jobs}; {agenda}; {late}; END $$;
        CREATE FUNCTION due(shard_ smallint, bucket_ integer, tenant_ text, after uuid) RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE found bigint;
        BEGIN SELECT sum(octet_length(q.payload) + octet_length(q.spec)) INTO found FROM ({due}) q; RETURN found; END $$;
        CREATE FUNCTION claim_read({keys}, shards smallint[], buckets integer[]) RETURNS bigint LANGUAGE plpgsql AS $$ {read} $$;
        CREATE FUNCTION finish_read({keys}) RETURNS bigint LANGUAGE plpgsql AS $$ {read} $$;
        CREATE FUNCTION add({keys}, seqs integer[], state_ smallint, statuses bytea[]) RETURNS void LANGUAGE plpgsql AS $$
        {write} $$;
        CREATE FUNCTION claim_write({keys}, shards smallint[], buckets integer[], statuses bytea[]) RETURNS void LANGUAGE plpgsql
        AS $$ BEGIN PERFORM add(tenants, run_ats, ids, array_fill(1, ARRAY[{SIZE}]), 1::smallint, statuses); END $$;
        CREATE FUNCTION heartbeat({keys}, n integer, statuses bytea[]) RETURNS void LANGUAGE plpgsql
        AS $$ BEGIN PERFORM add(tenants, run_ats, ids, array_fill(n + 1, ARRAY[{SIZE}]), 1::smallint, statuses); END $$;
        CREATE FUNCTION finish_write({keys}, seqs integer[], statuses bytea[]) RETURNS void LANGUAGE plpgsql
        AS $$ BEGIN PERFORM add(tenants, run_ats, ids, array_fill(seqs[1] + 1, ARRAY[{SIZE}]), 3::smallint, statuses); END $$;
    """


def prepare(name, schema):
    session = Session(schema)
    session.run(f"CREATE SCHEMA {schema};")
    if name == "appended":
        session.run((STORE / "migrations" / "0001_first.up.sql").read_text())
        session.run(appended_functions())
    else:
        session.run((HERE / "pg-layout-narrow.sql").read_text())
    # Ids as the program makes them, in order; one tenant, one bucket.
    session.run(f"""
        CREATE TABLE batches AS SELECT b, array_agg('acme'::text) AS tenants, array_agg(ms) AS run_ats, array_agg(id) AS ids,
            array_agg(3::smallint) AS shards, array_agg({BUCKET}) AS buckets, array_agg('mail.send'::text) AS kinds,
            array_agg('\\x01000764656661756c7402df5d000000000000'::bytea) AS specs,
            array_agg((repeat(md5(id::text), 6))::bytea) AS payloads,
            array_agg(decode(repeat(md5(id::text), 2), 'hex')) AS statuses
        FROM (SELECT i / {SIZE} AS b, i, {BUCKET}::bigint * {BUCKET_MS} + i / 1000 AS ms,
                     (lpad(to_hex({BUCKET}::bigint * {BUCKET_MS} + i / 1000), 12, '0') || lpad(to_hex(i), 6, '0')
                      || substr(md5(i::text), 1, 14))::uuid AS id
              FROM generate_series(0, {ROUNDS * BATCHES * SIZE - 1}) i ORDER BY i) x GROUP BY b;
        CREATE INDEX ON batches (b);""")
    # Others that wait, in a later bucket.
    where = f"{BUCKET + 100}"
    session.run(f"""
        SELECT submit(array_agg('later'::text), array_agg(ms), array_agg(id), array_agg(4::smallint), array_agg({where}),
            array_agg('mail.send'::text), array_agg('\\x01'::bytea), array_agg(repeat('x', 190)::bytea), array_agg('\\x'::bytea))
        FROM (SELECT i / {SIZE} AS b, {where}::bigint * {BUCKET_MS} + i AS ms,
                     (lpad(to_hex({where}::bigint * {BUCKET_MS} + i), 12, '0') || substr(md5(i::text), 1, 20))::uuid AS id
              FROM generate_series(0, {WAITING - 1}) i ORDER BY i) x GROUP BY b;""")
    return session


KEYS = "tenants, run_ats, ids"
STEPS = {
    "submit": f"submit({KEYS}, shards, buckets, kinds, specs, payloads, statuses)",
    "due": "due(3::smallint, buckets[1], 'acme', ids[1])",
    "claim: read": f"claim_read({KEYS}, shards, buckets)",
    "claim: write": f"claim_write({KEYS}, shards, buckets, statuses)",
    "heartbeat": f"heartbeat({KEYS}, 1, statuses)",
    "finish: read": f"finish_read({KEYS})",
    "finish: write": f"finish_write({KEYS}, array_fill(2, ARRAY[{SIZE}]), statuses)",
}


def one_round(session, number, costs):
    first, last = number * BATCHES, (number + 1) * BATCHES - 1
    wal = session.run("SELECT pg_current_wal_insert_lsn();")
    for step, call in STEPS.items():
        before = session.cpu()
        calls = [f"SELECT {call} FROM batches WHERE b = {b};" for b in range(first, last + 1)]
        session.run("\n".join(calls))
        costs.setdefault(step, []).append((session.cpu() - before) * 1e6 / (BATCHES * SIZE))
    bytes_written = session.run(f"SELECT pg_current_wal_insert_lsn() - '{wal}'::pg_lsn;")
    costs.setdefault("WAL bytes", []).append(float(bytes_written) / (BATCHES * SIZE))


def dead_rows(session, schema):
    session.run("SELECT pg_stat_force_next_flush();")
    return session.run(f"SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = '{schema}';")


def main():
    results = {}
    for held in (False, True):
        holder = None
        sessions = {name: prepare(name, f"{name}_{int(held)}") for name in ("narrow", "appended")}
        if held:
            holder = Session("public")
            holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class; SELECT txid_current();")
        for number in range(ROUNDS):
            for name, session in sessions.items():
                one_round(session, number, results.setdefault((name, held), {}))
        for name, session in sessions.items():
            results[name, held]["dead rows"] = [float(dead_rows(session, f"{name}_{int(held)}") or 0)]
            session.close()
        if holder:
            holder.close()
    steps = [*STEPS, "WAL bytes", "dead rows"]
    print("| | " + " | ".join(steps) + " |")
    print("|---" * (len(steps) + 1) + "|")
    for (name, held), costs in sorted(results.items(), key=lambda item: (item[0][1], item[0][0])):
        # The first round warms up; of the others the median, since the machine may have other work.
        means = {step: statistics.median(values[1:] or values) for step, values in costs.items()}
        label = name + (", an old transaction open" if held else "")
        print(f"| {label} | " + " | ".join(f"{means[step]:.1f}" if means[step] < 100 else f"{means[step]:,.0f}" for step in steps) + " |")
    for held in (False, True):
        ratios = []
        for step in STEPS:
            narrow, appended = (statistics.median(results[name, held][step][1:]) for name in ("narrow", "appended"))
            ratios.append(f"{step} {narrow / appended:.2f}")
        print(f"\nnarrow to appended{', an old transaction open' if held else ''}: " + ", ".join(ratios))


main()
