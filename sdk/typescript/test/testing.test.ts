/** What users test with. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Cancelled, Client, Fail, Snooze, Worker, type Context, type StandardResult } from "tidewheel";
import { findBinary, runHandler, startServer, waitFor } from "tidewheel/testing";

test("a handler runs once against a made-up job", async () => {
  const handler = async (payload: { n: number }, context: Context) => {
    await context.progress({ half: true });
    return { n: payload.n + 1, attempt: context.job.attempt, when: new Date(0), type: context.job.type };
  };
  const ran = await runHandler(handler, { payload: { n: 1 }, attempt: 3, type: "plus" });
  assert.deepEqual(ran, {
    status: "succeeded",
    result: { n: 2, attempt: 3, when: "1970-01-01T00:00:00.000Z", type: "plus" },
    progress: [{ half: true }],
  });
});

test("each way to end is told as it would be reported", async () => {
  const throwing = (error: unknown) => runHandler(() => { throw error; }, { payload: null });
  assert.deepEqual(await throwing(new Fail("no")), { status: "failed", error: "no", retryable: false, progress: [] });
  assert.deepEqual(await throwing(new Snooze("5m")), { status: "snoozed", retryAfter: "5m", progress: [] });
  assert.deepEqual(await throwing("text"), { status: "failed", error: "text", retryable: true, progress: [] });
  const late = await runHandler(() => new Promise(() => undefined), { payload: null, timeout: "10ms" });
  assert.deepEqual(late, { status: "failed", error: "timed out after 10ms", retryable: true, progress: [] });
  const reason = new Cancelled();
  const lost = await runHandler(() => new Promise(() => undefined), { payload: null }, { signal: AbortSignal.abort(reason) });
  assert.deepEqual(lost, { status: "lost", reason, progress: [] });
});

test("progress that is no JSON is refused as with a server", async () => {
  const ran = await runHandler(async (_, { progress }) => {
    for (const bad of [1n, undefined]) await assert.rejects(progress(bad), TypeError);
    await progress(null);
  }, { payload: null });
  assert.deepEqual(ran, { status: "succeeded", result: null, progress: [null] });
});

test("a handler that does not heed its signal leaves no timer behind", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  const signal = AbortSignal.abort(new Cancelled());
  await runHandler(() => new Promise(() => undefined), { payload: null, timeout: "1h" }, { signal });
  assert.equal(timers(), before);
});

test("a worker's handlers can be run, with their checks", async () => {
  const number = (payload: unknown) => {
    if (typeof payload !== "number") throw new TypeError("not a number");
    return payload;
  };
  const worker = new Worker(new Client()).handler("n", { parse: number }, (n) => n * 2);
  assert.deepEqual(await runHandler(worker, { type: "n", payload: 2 }), { status: "succeeded", result: 4, progress: [] });
  assert.deepEqual(await runHandler(worker, { type: "n", payload: "2" }), {
    status: "failed",
    error: "the payload is not valid: not a number",
    retryable: false,
    progress: [],
  });
  const unknown = await runHandler(worker, { type: "m", payload: 2 });
  assert.equal(unknown.status, "failed");
});

test("a result that the server would not take is told as it would be reported", async () => {
  const fault = async (result: unknown) => {
    const ran = await runHandler(() => result, { payload: null });
    assert.ok(ran.status === "failed" && !ran.retryable);
    return ran.error;
  };
  assert.match(await fault(1n), /^the outcome cannot be reported: .*BigInt/);
  assert.match(await fault("x".repeat(10_000)), /^the outcome cannot be reported: the result has 10002 bytes/);
});

test("a schema that can be called is a schema all the same", async () => {
  const validate = (value: unknown): StandardResult<number> =>
    typeof value === "number" ? { value } : { issues: [{ message: "must be a number" }] };
  const schema = Object.assign(() => "what a call gives is no payload", { "~standard": { validate } });
  const worker = new Worker(new Client()).handler<number>("n", { parse: schema }, (n) => n * 2);
  assert.deepEqual(await runHandler(worker, { type: "n", payload: 2 }), { status: "succeeded", result: 4, progress: [] });
  assert.deepEqual(await runHandler(worker, { type: "n", payload: "2" }), {
    status: "failed",
    error: "the payload is not valid: must be a number",
    retryable: false,
    progress: [],
  });
});

test("a server starts, keeps its data over a restart, and stops", async () => {
  const server = await startServer();
  const { id } = await server.client().submit({ type: "kept", delay: "1h" });
  await server.halt();
  await server.start();
  assert.equal((await waitFor(server.client(), id, ["scheduled"])).id, id);
  await server.stop();
  await assert.rejects(server.client({ patienceMs: 0 }).get(id), /ECONNREFUSED/);
  await assert.rejects(startServer({ binary: findBinary(), args: ["--no-such-flag"] }), /no-such-flag/);
});
