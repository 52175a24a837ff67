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

  test("old keys are forgotten", () => {
    const db = database();
    inbox.record(db, "new");
    db.exec("INSERT INTO tidewheel_inbox VALUES ('old', datetime('now', '-10 days'))");
    assert.equal(inbox.prune(db, 7), 1);
    assert.equal(inbox.record(db, "new"), false);
    assert.equal(inbox.record(db, "old"), true);
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

  test("the caller's own transaction decides", async () => {
    const client = await pool.connect();
    await client.query("BEGIN");
    assert.equal(await inbox.record(client, "k3", options), true);
    assert.equal(await inbox.record(client, "k3", options), false);
    await client.query("ROLLBACK");
    assert.equal((await inbox.once(client, "k3", () => Promise.resolve(3), options)).skipped, false);
    client.release();
    assert.equal(await inbox.prune(pool, 1, options), 0);
    assert.ok((await inbox.prune(pool, 0, options)) >= 3);
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
