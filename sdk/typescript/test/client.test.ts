/** The client against a real server. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import {
  Batcher,
  ConflictError,
  InvalidRequestError,
  NotFoundError,
  StaleVersionError,
  Worker,
  type Client,
  type NewJob,
} from "tidewheel";
import { startServer, waitFor, type TestServer } from "tidewheel/testing";

describe("client", () => {
  let server: TestServer;
  let client: Client;
  before(async () => {
    server = await startServer();
    client = server.client();
  });
  after(() => server.stop());

  test("a job is submitted, shown, listed, counted and explained", async () => {
    const payload = { to: "a@example.com", snake_case: { camelCase: 1 } };
    const labels = { team_name: "ops" };
    const sent = await client.submit({ type: "shown", payload, labels, delay: "1h", maxAttempts: 3, queue: "q1" });
    assert.match(sent.id, /^job_/);
    assert.equal(sent.duplicate, false);
    const job = await client.get<typeof payload>(sent.id);
    assert.deepEqual(job.payload, payload);
    assert.deepEqual(job.labels, labels);
    assert.equal(job.maxAttempts, 3);
    assert.equal(job.retry.maxAttempts, 3);
    assert.equal(job.idempotencyKey, sent.idempotencyKey);
    const page = await client.list({ type: "shown", labels, state: ["scheduled"] });
    assert.deepEqual(page.items.map(({ id }) => id), [sent.id]);
    assert.equal(page.nextCursor, null);
    assert.equal((await client.count({ type: "shown" })).count, 1);
    const why = await client.explain(sent.id);
    assert.equal(why.waitsFor, "time");
    assert.deepEqual(await client.attempts(sent.id), []);
  });

  test("a Date will do for a time", async () => {
    const runAt = new Date(Date.now() + 3_600_000);
    const sent = await client.submit({ type: "dated", runAt });
    assert.equal(sent.runAt, runAt.toISOString());
  });

  test("a waiting job is moved, run, cancelled; a finished one runs again", async () => {
    const { id } = await client.submit({ type: "moved", delay: "1h" });
    const moved = await client.update(id, { delay: "2h", priority: "high" });
    assert.equal(moved.priority, "high");
    assert.equal((await client.run(id)).state, "ready");
    assert.equal((await client.cancel(id)).state, "cancelled");
    assert.equal((await client.cancel(id, { idempotencyKey: "größe-ключ" })).state, "cancelled");
    await assert.rejects(client.run(id), (error) => error instanceof ConflictError && error.code === "job_finished");
    assert.equal((await client.retry(id, { delay: "1h" })).state, "scheduled");
    const many = await client.cancelMany({ filter: { type: "moved" } });
    assert.equal(many.count, 1);
    const again = await client.retryMany({ filter: { type: "moved", state: "cancelled" }, delay: "1h" });
    assert.deepEqual([again.count, again.items.map(({ state }) => state)], [1, ["scheduled"]]);
  });

  test("refusals are classes with code, detail and each fault", async () => {
    await assert.rejects(client.get("job_00000000000000000000000000"), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.equal(error.code, "job_not_found");
      assert.equal(error.status, 404);
      return true;
    });
    await assert.rejects(client.submit({ type: "", delay: "soon" }), (error) => {
      assert.ok(error instanceof InvalidRequestError);
      assert.equal(error.status, 422);
      assert.deepEqual(error.errors.map(({ pointer }) => pointer).sort(), ["/delay", "/type"]);
      assert.ok(error.errors.every(({ code, detail }) => code !== "" && detail !== ""));
      return true;
    });
  });

  test("one key makes one job, also for fifty at a time", async () => {
    const idempotencyKey = randomUUID();
    const job = { type: "keyed", payload: { n: 1 }, delay: "1h", idempotencyKey };
    const all = await Promise.all(Array.from({ length: 50 }, () => client.submit(job)));
    assert.equal(new Set(all.map(({ id }) => id)).size, 1);
    assert.equal(all.filter(({ duplicate }) => !duplicate).length, 1);
    assert.equal((await client.count({ type: "keyed" })).count, 1);
    await assert.rejects(client.submit({ ...job, payload: { n: 2 } }), (error) => {
      return error instanceof ConflictError && error.code === "idempotency_conflict";
    });
  });

  test("many jobs go in batches and are answered in order", async () => {
    function* jobs(): Generator<NewJob> {
      for (let n = 0; n < 2_500; n += 1) yield { type: "many", payload: n, delay: "1h", idempotencyKey: `many-${n}` };
    }
    const first = await client.submitMany(jobs());
    assert.equal(first.length, 2_500);
    assert.equal((await client.get(first[2_345]?.id ?? "")).payload, 2_345);
    const again = await client.submitMany(jobs());
    assert.deepEqual(again.map(({ id }) => id), first.map(({ id }) => id));
    assert.ok(again.every(({ duplicate }) => duplicate));
    let seen = 0;
    for await (const job of client.listAll({ type: "many" })) seen += job.type === "many" ? 1 : 0;
    assert.equal(seen, 2_500);
  });

  test("a faulty job among many is pointed at, or refused alone", async () => {
    const jobs: NewJob[] = Array.from({ length: 1_010 }, (_, n) => ({ type: n === 1_005 ? "" : "faulty", delay: "1h" }));
    await assert.rejects(client.submitMany(jobs), (error) => {
      assert.ok(error instanceof InvalidRequestError);
      assert.deepEqual(error.errors.map(({ pointer }) => pointer), ["/1005/type"]);
      return true;
    });
    const answers = await client.submitMany(jobs, { partial: true });
    const refused = answers.flatMap((answer, place) => ("error" in answer ? [place] : []));
    assert.deepEqual(refused, [1_005]);
  });

  test("a batcher answers each job for itself", async () => {
    const batcher = new Batcher(client, { maxCount: 10, maxPending: 20 });
    const results = await Promise.allSettled(
      Array.from({ length: 100 }, (_, n) => batcher.submit({ type: n === 50 ? "" : "batched", payload: n, delay: "1h" })),
    );
    assert.deepEqual(results.flatMap(({ status }, n) => (status === "rejected" ? [n] : [])), [50]);
    await Promise.all(
      results.map(async (result, n) => {
        if (result.status === "fulfilled") assert.equal((await client.get(result.value.id)).payload, n);
      }),
    );
    await batcher.close();
    await assert.rejects(batcher.submit({ type: "late" }), /closed/);
  });

  test("tenants do not see each other", async () => {
    const other = server.client({ tenant: "other" });
    const { id } = await other.submit({ type: "private", delay: "1h" });
    await assert.rejects(client.get(id), NotFoundError);
    assert.equal((await other.get(id)).tenant, "other");
  });

  test("a schedule's whole life", async () => {
    const { schedules } = client;
    const made = await schedules.create({ name: "report", cronExpr: "0 9 * * MON-FRI", timezone: "America/New_York", type: "report", idempotencyKey: "report-1" });
    const again = await schedules.create({ name: "report", cronExpr: "0 9 * * MON-FRI", timezone: "America/New_York", type: "report", idempotencyKey: "report-1" });
    assert.deepEqual([again.id, again.duplicate], [made.id, true]);
    const keyless = await schedules.create({ every: "1h", type: "report" });
    assert.equal((await schedules.get(keyless.id)).idempotencyKey, null);
    assert.equal((await schedules.get(made.id)).cronExpr, "0 9 * * MON-FRI");
    assert.deepEqual((await schedules.list({ name: "report" })).items.map(({ id }) => id), [made.id]);
    const put = await schedules.put("report", { cronExpr: "0 10 * * *", type: "report" });
    assert.deepEqual([put.id, put.cronExpr], [made.id, "0 10 * * *"]);
    const noted = await schedules.patch(made.id, { note: "daily" }, { ifVersion: put.version });
    assert.equal(noted.note, "daily");
    await assert.rejects(schedules.patch(made.id, { note: "late" }, { ifVersion: put.version }), StaleVersionError);
    assert.equal((await schedules.pause(made.id)).paused, true);
    assert.equal((await schedules.resume(made.id)).paused, false);
    assert.equal((await schedules.next(made.id, 3)).length, 3);
    const triggered = await schedules.trigger(made.id);
    assert.equal((await client.get(triggered.jobId)).scheduleId, made.id);
    const filled = await schedules.backfill(made.id, { from: "2026-01-01T00:00:00Z", to: "2026-01-03T23:00:00Z" });
    assert.equal(filled.count, 3);
    const outcomes = (await schedules.firings(made.id)).items.map(({ outcome }) => outcome);
    assert.deepEqual([...new Set(outcomes)].sort(), ["backfilled", "triggered"]);
    await schedules.delete(made.id);
    await assert.rejects(schedules.get(made.id), NotFoundError);
    await assert.rejects(schedules.delete(made.id), NotFoundError);
  });

  test("a preview tells of the clock's change", async () => {
    const fires = await client.schedules.preview({ cronExpr: "30 2 * * *", timezone: "America/New_York", from: "2026-03-08T00:00:00Z", count: 1 });
    assert.deepEqual(fires, [{ fireAt: "2026-03-08T07:00:00.000Z", runAt: "2026-03-08T07:00:00.000Z", note: "dst_gap" }]);
    await assert.rejects(client.schedules.preview({ cronExpr: "0 0 30 2 *" }), (error) => {
      return error instanceof InvalidRequestError && error.code === "invalid_cron";
    });
  });

  test("dead letters are listed, replayed and discarded", async () => {
    const worker = new Worker(client, { queues: ["dying"], signals: false });
    worker.handler<{ fixed: boolean }>("dying", (payload) => {
      if (!payload.fixed) throw new Error("broken");
    });
    const run = worker.run();
    const ids = await Promise.all([1, 2].map(async () => {
      return (await client.submit({ type: "dying", queue: "dying", payload: { fixed: false }, maxAttempts: 1 })).id;
    }));
    const [first = "", second = ""] = ids;
    for (const id of ids) assert.equal((await waitFor(client, id)).state, "dead");
    const page = await client.deadLetters.list({ type: "dying", payload: true });
    assert.deepEqual(page.items.map(({ id }) => id).sort(), [...ids].sort());
    assert.equal(page.items[0]?.lastError, "Error: broken");
    await client.deadLetters.replay(first, { payload: { fixed: true } });
    assert.equal((await waitFor(client, first)).state, "succeeded");
    await client.deadLetters.discard(second);
    assert.deepEqual((await client.deadLetters.list({ type: "dying" })).items, []);
    await worker.drain();
    await run;
  });
});
