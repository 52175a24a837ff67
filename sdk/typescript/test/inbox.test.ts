/** The inbox in real databases. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import Database from "better-sqlite3";
import pg from "pg";
import { Worker } from "tidewheel";
import * as inbox from "tidewheel/inbox";
import { madeUpJob, runHandler, startServer, waitFor } from "tidewheel/testing";

describe("inbox in SQLite", () => {
  function database(): Database.Database {
    const db = new Database(":memory:");
    inbox.createTable(db);
    inbox.createTable(db);
    db.exec("CREATE TABLE effects (note TEXT)");
    return db;
  }
  const effects = (db: Database.Database) => db.prepare("SELECT note FROM effects").pluck().all();

  test("a duplicate is skipped", () => {
    const db = database();
    const work = (tx: Database.Database) => tx.prepare("INSERT INTO effects VALUES ('done')").run().changes;
    assert.deepEqual(inbox.once(db, "k", work), { skipped: false, value: 1 });
    assert.deepEqual(inbox.once(db, "k", work), { skipped: true });
    assert.deepEqual(inbox.once(db, { job: madeUpJob({ payload: 1, idempotencyKey: "other" }) }, work), { skipped: false, value: 1 });
    assert.deepEqual(effects(db), ["done", "done"]);
  });

  test("work that fails leaves nothing and runs again", () => {
    const db = database();
    const broken = () => inbox.once(db, "k", () => {
      db.exec("INSERT INTO effects VALUES ('half')");
      throw new Error("broken");
    });
    assert.throws(broken, /broken/);
    assert.throws(() => inbox.once(db, "k", () => Promise.resolve(1)), /synchronous/);
    assert.deepEqual(effects(db), []);
    assert.equal(inbox.once(db, "k", () => 1).skipped, false);
  });

  test("work that is refused for going on later disturbs nobody when it fails", async (t) => {
    const unheard: unknown[] = [];
    const hear = (reason: unknown) => unheard.push(reason);
    process.on("unhandledRejection", hear);
    t.after(() => process.off("unhandledRejection", hear));
    assert.throws(() => inbox.once(database(), "k", () => Promise.reject(new Error("later"))), /synchronous/);
    await new Promise(setImmediate);
    assert.deepEqual(unheard, []);
  });

  test("an open transaction is joined, and decides", () => {
    const db = database();
    db.exec("BEGIN");
    assert.equal(inbox.once(db, "k", () => db.exec("INSERT INTO effects VALUES ('inner')")).skipped, false);
    assert.throws(() => inbox.once(db, "k2", () => { throw new Error("broken"); }), /broken/);
    assert.equal(inbox.record(db, "k"), false);
    db.exec("ROLLBACK");
    assert.deepEqual(effects(db), []);
    assert.equal(inbox.record(db, "k"), true);
  });

  test("the table is that of the Python package", () => {
    const db = database();
    assert.deepEqual(db.prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name = 'tidewheel_inbox'").pluck().all(), [
      "CREATE TABLE tidewheel_inbox (consumer text NOT NULL, key text NOT NULL, recorded_at REAL NOT NULL, PRIMARY KEY (consumer, key))",
      "CREATE INDEX tidewheel_inbox_recorded_at ON tidewheel_inbox (recorded_at)",
    ]);
    const before = Date.now() / 1_000;
    inbox.record(db, "ours");
    const row = db.prepare("SELECT consumer, key, typeof(recorded_at) FROM tidewheel_inbox").raw().get();
    assert.deepEqual(row, ["", "ours", "real"]);
    const at = db.prepare<[], number>("SELECT recorded_at FROM tidewheel_inbox").pluck().get() ?? 0;
    assert.ok(before <= at && at <= Date.now() / 1_000, `${at}`);
    db.prepare("INSERT INTO tidewheel_inbox (consumer, key, recorded_at) VALUES ('', 'theirs', ?)").run(before);
    assert.deepEqual(inbox.once(db, "theirs", () => 1), { skipped: true });
  });

  test("consumers have keys of their own", () => {
    const db = database();
    for (const consumer of ["mails", "invoices"]) {
      assert.equal(inbox.once(db, "k", () => 1, { consumer }).skipped, false, consumer);
      assert.equal(inbox.record(db, "k", { consumer }), false, consumer);
    }
    assert.equal(inbox.record(db, "k"), true);
  });

  test("the table may be in a schema, and has a name", () => {
    const db = database();
    db.exec("ATTACH ':memory:' AS app");
    const options = { table: "app.keys" };
    inbox.createTable(db, options);
    assert.equal(inbox.record(db, "k", options), true);
    assert.equal(inbox.prune(db, options), 0);
    assert.deepEqual(db.prepare("SELECT name FROM app.sqlite_master WHERE sql IS NOT NULL").pluck().all(), ["keys", "keys_recorded_at"]);
    for (const table of ["", "x; DROP TABLE effects", "a.b.c", '"x"', "keys\n"]) {
      assert.throws(() => inbox.record(db, "k", { table }), RangeError, table);
    }
  });

  test("old keys are forgotten, oldest first and so many at once", () => {
    const db = database();
    const put = (days: number, consumer = "") => {
      db.prepare("INSERT INTO tidewheel_inbox VALUES (?, ?, ?)").run(consumer, `${days} days`, Date.now() / 1_000 - days * 86_400);
    };
    const kept = () => db.prepare("SELECT key FROM tidewheel_inbox WHERE consumer = '' ORDER BY recorded_at").pluck().all();
    for (const days of [13, 20, 15, 30]) put(days);
    put(20, "other");
    inbox.record(db, "new");
    assert.equal(inbox.prune(db, { countMax: 2 }), 2);
    assert.deepEqual(kept(), ["15 days", "13 days", "new"]);
    assert.equal(inbox.prune(db), 1);
    assert.equal(inbox.prune(db, { olderThan: "1w" }), 1);
    assert.deepEqual(kept(), ["new"]);
    assert.equal(inbox.prune(db, { consumer: "other" }), 1);
    for (const countMax of [0, -1, 1.5]) assert.throws(() => inbox.prune(db, { countMax }), RangeError);
    assert.throws(() => inbox.prune(db, { olderThan: "a while" }), RangeError);
  });

  test("no more than 10,000 keys are forgotten at once", () => {
    const db = database();
    const count = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10001)";
    db.exec(`INSERT INTO tidewheel_inbox ${count} SELECT '', n, 1.5 FROM n`);
    assert.deepEqual([inbox.prune(db), inbox.prune(db), inbox.prune(db)], [10_000, 1, 0]);
  });

  test("a job that is delivered twice has its effect once", async () => {
    const db = database();
    const server = await startServer();
    const client = server.client();
    const worker = new Worker(client, { signals: false });
    worker.handler<string>("note", (note, context) => {
      const { skipped } = inbox.once(db, context, () => db.prepare("INSERT INTO effects VALUES (?)").run(note));
      // The crash that a retry is for: the work is committed, the outcome is not reported.
      if (context.job.attempt === 1) throw new Error("crashed after the commit");
      return { skipped };
    });
    const run = worker.run();
    const { id } = await client.submit({ type: "note", payload: "hello", retry: { policy: "fixed", base: "10ms" } });
    assert.deepEqual((await waitFor(client, id)).result, { skipped: true });
    assert.deepEqual(effects(db), ["hello"]);
    await worker.drain();
    await run;
    await server.stop();
  });
});

const url = process.env["TIDEWHEEL_TEST_POSTGRES"];

describe("inbox in PostgreSQL", { skip: url === undefined && process.env["CI"] !== "true" ? "TIDEWHEEL_TEST_POSTGRES is not set" : false }, () => {
  let pool: pg.Pool;
  const schema = `inbox_${randomUUID().replaceAll("-", "")}`;
  const options = { table: `${schema}.keys` };
  before(async () => {
    assert.ok(url !== undefined, "in CI TIDEWHEEL_TEST_POSTGRES must name a PostgreSQL server");
    pool = new pg.Pool({ connectionString: url, max: 8 });
    await pool.query(`CREATE SCHEMA ${schema}`);
    await pool.query(`CREATE TABLE ${schema}.effects (note text)`);
    await inbox.createTable(pool, options);
    await inbox.createTable(pool, options);
  });
  after(async () => {
    if (url === undefined) return;
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  });
  const effects = async () => (await pool.query<{ note: string }>(`SELECT note FROM ${schema}.effects ORDER BY note`)).rows.map(({ note }) => note);
  const insert = (note: string) => (client: pg.PoolClient) => client.query(`INSERT INTO ${schema}.effects VALUES ($1)`, [note]);

  test("of many deliveries at a time one does the work", async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => inbox.once(pool, "k", insert("once"), options)));
    assert.equal(all.filter(({ skipped }) => !skipped).length, 1);
    assert.deepEqual(await effects(), ["once"]);
  });

  test("work that fails leaves nothing and runs again", async () => {
    const broken = inbox.once(pool, "k2", async (client: pg.PoolClient) => {
      await insert("half")(client);
      throw new Error("broken");
    }, options);
    await assert.rejects(broken, /broken/);
    assert.ok(!(await effects()).includes("half"));
    assert.equal((await inbox.once(pool, "k2", insert("whole"), options)).skipped, false);
    assert.ok((await effects()).includes("whole"));
  });

  test("work that goes on after a failed statement is no success", async () => {
    const careless = inbox.once(pool, "k5", async (client: pg.PoolClient) => {
      await insert("careless")(client);
      await client.query("SELECT 1 / 0").catch(() => undefined);
    }, options);
    await assert.rejects(careless, /rolled the work back/);
    assert.ok(!(await effects()).includes("careless"));
    assert.equal((await inbox.once(pool, "k5", insert("careful"), options)).skipped, false);
  });

  test("a connection that breaks ends the work, and nothing else", async () => {
    const cut = (client: pg.PoolClient) => client.query("SELECT pg_terminate_backend(pg_backend_pid())");
    await assert.rejects(inbox.once(pool, "k6", cut, options));
    assert.equal((await inbox.once(pool, "k6", insert("mended"), options)).skipped, false);
  });

  test("the caller's own transaction decides", async () => {
    const client = await pool.connect();
    await client.query("BEGIN");
    assert.equal(await inbox.record(client, "k3", options), true);
    assert.equal(await inbox.record(client, "k3", options), false);
    await client.query("ROLLBACK");
    assert.equal((await inbox.once(client, "k3", () => Promise.resolve(3), options)).skipped, false);
    client.release();
  });

  test("the table is that of the Python package", async () => {
    const columns = await pool.query<{ column_name: string; data_type: string; is_nullable: string }>(
      "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'keys' ORDER BY ordinal_position",
      [schema],
    );
    assert.deepEqual(columns.rows.map((column) => [column.column_name, column.data_type, column.is_nullable]), [
      ["consumer", "text", "NO"],
      ["key", "text", "NO"],
      ["recorded_at", "timestamp with time zone", "NO"],
    ]);
    const indexes = await pool.query<{ indexdef: string }>("SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = 'keys' ORDER BY indexname", [schema]);
    assert.deepEqual(indexes.rows.map(({ indexdef }) => indexdef), [
      `CREATE UNIQUE INDEX keys_pkey ON ${schema}.keys USING btree (consumer, key)`,
      `CREATE INDEX keys_recorded_at ON ${schema}.keys USING btree (recorded_at)`,
    ]);
    await pool.query(`INSERT INTO ${options.table} (consumer, key, recorded_at) VALUES ('', 'theirs', now())`);
    assert.deepEqual(await inbox.once(pool, "theirs", insert("theirs"), options), { skipped: true });
    assert.equal((await inbox.once(pool, "theirs", insert("ours"), { ...options, consumer: "ours" })).skipped, false);
  });

  test("old keys are forgotten, oldest first and so many at once", async () => {
    const own = { ...options, consumer: "pruned" };
    const put = (days: number) =>
      pool.query(`INSERT INTO ${options.table} VALUES ('pruned', $1, now() - make_interval(days => $2))`, [`${days} days`, days]);
    const kept = async () =>
      (await pool.query<{ key: string }>(`SELECT key FROM ${options.table} WHERE consumer = 'pruned' ORDER BY recorded_at`)).rows.map(({ key }) => key);
    for (const days of [13, 20, 15, 30]) await put(days);
    assert.equal(await inbox.prune(pool, { ...own, countMax: 2 }), 2);
    assert.deepEqual(await kept(), ["15 days", "13 days"]);
    assert.equal(await inbox.prune(pool, own), 1);
    assert.equal(await inbox.prune(pool, { ...own, olderThan: "1w" }), 1);
    assert.deepEqual(await kept(), []);
    assert.equal(await inbox.record(pool, "new", own), true);
    assert.equal(await inbox.prune(pool, own), 0);
    assert.equal(await inbox.prune(pool, { ...own, olderThan: 0 }), 1);
  });

  test("a handler skips what was done before", async () => {
    const handler = async (note: string, context: { job: { idempotencyKey: string } }) => {
      return (await inbox.once(pool, context, insert(note), options)).skipped;
    };
    const job = { payload: "handled", idempotencyKey: "k4" };
    const first = await runHandler(handler, job);
    assert.ok(first.status === "succeeded" && first.result === false);
    assert.equal((await effects()).filter((note) => note === "handled").length, 1);
    const again = await runHandler(handler, { ...job, attempt: 2 });
    assert.ok(again.status === "succeeded" && again.result === true);
    assert.equal((await effects()).filter((note) => note === "handled").length, 1);
  });
});
