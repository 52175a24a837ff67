/** The worker against a real server. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Cancelled,
  Fail,
  InvalidRequestError,
  LeaseLost,
  Retry,
  Snooze,
  TimedOut,
  Worker,
  type Client,
  type NewJob,
  type StandardSchema,
  type WorkerEvent,
  type WorkerOptions,
} from "tidewheel";
import { startServer, waitFor, type TestServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";

describe("worker", () => {
  let server: TestServer;
  let client: Client;
  before(async () => {
    server = await startServer();
    client = server.client();
  });
  after(() => server.stop());

  /** A worker on a queue of its own; what happens is kept. */
  function start(options: WorkerOptions, prepare: (worker: Worker) => void) {
    const queue = `q-${randomUUID()}`;
    const events: WorkerEvent[] = [];
    const worker = new Worker(client, { queues: [queue], signals: false, onEvent: (event) => events.push(event), ...options });
    prepare(worker);
    const run = worker.run();
    const stop = async () => {
      await worker.drain();
      await run;
    };
    const submit = async (job: Omit<NewJob, "type"> & { type?: string }) => (await client.submit({ type: "t", queue, ...job })).id;
    return { queue, worker, run, events, stop, submit };
  }

  test("a job's payload comes in, its result goes out", async () => {
    const { submit, stop } = start({}, (worker) =>
      worker.handler<{ a: number; b: number }>("t", ({ a, b }, { job }) => ({ sum: a + b, attempt: job.attempt, key: job.idempotencyKey })),
    );
    const id = await submit({ payload: { a: 1, b: 2 }, idempotencyKey: "sum-1", labels: { a_b: "c" } });
    const job = await waitFor(client, id);
    assert.equal(job.state, "succeeded");
    assert.deepEqual(job.result, { sum: 3, attempt: 1, key: "sum-1" });
    await stop();
  });

  test("a handler knows the trace of its attempt", async () => {
    const { submit, stop } = start({}, (worker) => worker.handler("t", (_, { job }) => [job.traceparent, job.tracestate]));
    const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    const id = await submit({ traceparent: `00-${trace}-00f067aa0ba902b7-01`, tracestate: "a=1" });
    const [parent, state] = (await waitFor(client, id)).result as [string, string];
    assert.match(parent, new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));
    assert.notEqual(parent.split("-")[2], "00f067aa0ba902b7");
    assert.equal(state, "a=1");
    await stop();
  });

  test("what a handler throws says how the attempt ended", async () => {
    const { submit, stop } = start({ classify: (error) => (error instanceof SyntaxError ? "fail" : "retry") }, (worker) =>
      worker.handler<string>("t", (how, { job }) => {
        if (job.attempt > 1) return "at last";
        if (how === "retry") throw new Retry("again", { after: "10ms" });
        if (how === "snooze") throw new Snooze("10ms");
        if (how === "error") throw new Error("odd");
        if (how === "fail") throw new Fail("no use");
        if (how === "classified") throw new SyntaxError("no use either");
        if (how === "cancel") throw new Cancelled("called off");
        if (how === "bigint") return 1n;
        return "x".repeat(10_000);
      }),
    );
    const retry = { policy: "fixed", base: "10ms" } as const;
    const expected = {
      retry: ["succeeded", "failed", "again"],
      snooze: ["succeeded", "snoozed", ""],
      error: ["succeeded", "failed", "Error: odd"],
      fail: ["dead", "failed", "no use"],
      classified: ["dead", "failed", "SyntaxError: no use either"],
      cancel: ["cancelled", "cancelled", "called off"],
      bigint: ["dead", "failed", "the outcome cannot be reported: Do not know how to serialize a BigInt"],
    };
    for (const [how, [state, ending, detail]] of Object.entries(expected)) {
      const id = await submit({ payload: how, retry });
      assert.equal((await waitFor(client, id)).state, state, how);
      const first = (await client.attempts(id))[0];
      assert.deepEqual([first?.state, first?.detail], [ending, detail], how);
    }
    const large = await waitFor(client, await submit({ payload: "large" }));
    assert.equal(large.state, "dead");
    assert.match(large.lastError ?? "", /the outcome cannot be reported/);
    await stop();
  });

  test("payloads are checked by a function or a schema", async () => {
    const schema: StandardSchema<{ n: number }> = {
      "~standard": {
        validate: (value) =>
          typeof value === "object" && value !== null && "n" in value && typeof value.n === "number"
            ? { value: { n: value.n } }
            : { issues: [{ message: "must be a number", path: ["n"] }] },
      },
    };
    const { submit, stop } = start({}, (worker) => {
      worker.handler("t", { parse: schema }, ({ n }) => n + 1);
      worker.handler("upper", { parse: (payload) => String(payload).toUpperCase() }, (text, { job }) => [text, job.payload]);
    });
    assert.equal((await waitFor(client, await submit({ payload: { n: 1 } }))).result, 2);
    assert.deepEqual((await waitFor(client, await submit({ type: "upper", payload: "a" }))).result, ["A", "A"]);
    const bad = await waitFor(client, await submit({ payload: { n: "1" } }));
    assert.deepEqual([bad.state, bad.lastError, bad.attempt], ["dead", "the payload is not valid: n: must be a number", 1]);
    await stop();
  });

  test("a type without a handler fails and is retried", async () => {
    const { submit, stop } = start({}, () => undefined);
    const id = await submit({ type: "unknown", retry: { base: "1h" } });
    const job = await waitFor(client, id, ["retrying"]);
    assert.match(job.lastError ?? "", /no handler for the type unknown/);
    await stop();
  });

  test("no more handlers run at a time than allowed, over all queues", async () => {
    const queues = [`a-${randomUUID()}`, `b-${randomUUID()}`, `c-${randomUUID()}`];
    let running = 0;
    let most = 0;
    const { stop } = start({ queues, concurrency: 4 }, (worker) =>
      worker.handler("t", async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running -= 1;
      }),
    );
    const jobs = Array.from({ length: 45 }, (_, n) => ({ type: "t", queue: queues[n % 3] ?? "" }));
    const ids = await client.submitMany(jobs);
    for (const { id } of ids) assert.equal((await waitFor(client, id)).state, "succeeded");
    assert.ok(most <= 4, `${most} at a time`);
    await stop();
  });

  test("progress is seen, and extends the lease", async () => {
    let released = false;
    const { submit, stop } = start({ lease: "30s" }, (worker) =>
      worker.handler("t", async (_, { progress, signal }) => {
        while (!released) {
          await progress({ done_part: 0.5 });
          await sleep(200, undefined, { signal });
        }
        return "kept";
      }),
    );
    const id = await submit({});
    const first = Date.parse((await waitFor(client, id, ["running"])).leaseUntil ?? "");
    const extended = await eventually("a longer lease", async () => {
      const job = await client.get(id);
      return Date.parse(job.leaseUntil ?? "") > first + 500 && job;
    });
    assert.deepEqual(extended.progress, { done_part: 0.5 });
    released = true;
    const job = await waitFor(client, id);
    assert.deepEqual([job.state, job.result, job.attempt], ["succeeded", "kept", 1]);
    await stop();
  });

  test("progress that is refused does no harm", async () => {
    const { submit, stop } = start({}, (worker) =>
      worker.handler("t", async (_, { progress }) => {
        await assert.rejects(progress("x".repeat(10_000)), InvalidRequestError);
        for (const bad of [1n, undefined]) await assert.rejects(progress(bad), TypeError);
        await progress("fine");
        return "done";
      }),
    );
    const job = await waitFor(client, await submit({}));
    assert.deepEqual([job.state, job.result, job.lastError], ["succeeded", "done", null]);
    await stop();
  });

  test("a cancel reaches the handler", async () => {
    const { submit, stop, events } = start({ lease: "30s" }, (worker) =>
      worker.handler("t", async (_, { progress, signal }) => {
        for (;;) {
          // The next one after the cancel is refused.
          await progress("at it");
          await sleep(200, undefined, { signal });
        }
      }),
    );
    const id = await submit({});
    await waitFor(client, id, ["running"]);
    await client.cancel(id);
    const lost = await eventually("the abort", () => events.find((event) => event.kind === "lost"));
    assert.ok(lost.reason instanceof Cancelled);
    assert.equal((await client.get(id)).state, "cancelled");
    await stop();
  });

  test("an attempt that others took over is told so", async () => {
    const { submit, stop, events } = start({ lease: "3s" }, (worker) =>
      worker.handler("t", (_, { signal }) => new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => { reject(signal.reason as Error); });
      })),
    );
    const id = await submit({});
    const started = await eventually("the start", () => events.find((event) => event.kind === "started"));
    // As if another worker had ended the attempt.
    const body = JSON.stringify({ token: started.job.token, status: "succeeded", result: 1 });
    await fetch(`${server.url}/v1/jobs/${id}/outcome`, { method: "POST", body });
    const lost = await eventually("the abort", () => events.find((event) => event.kind === "lost"));
    assert.ok(lost.reason instanceof LeaseLost);
    await stop();
  });

  test("a handler that takes too long is aborted, reported at once, and keeps its place until it returns", async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    let reason: unknown;
    const { submit, stop, events } = start({ concurrency: 1 }, (worker) =>
      worker.handler("t", async (_, { signal, job }) => {
        if (job.attempt > 1) return "second";
        signal.addEventListener("abort", () => { reason = signal.reason; });
        await released;
        return "too late";
      }),
    );
    const id = await submit({ timeout: "50ms", retry: { policy: "fixed", base: "10ms" } });
    const error = await eventually("the report", async () => (await client.get(id)).lastError ?? undefined);
    assert.equal(error, "timed out after 50ms");
    assert.ok(reason instanceof TimedOut);
    assert.equal(events.filter(({ kind }) => kind === "started").length, 1);
    release();
    assert.equal((await waitFor(client, id)).result, "second");
    await stop();
  });

  test("a drain waits for what runs and hands back what has not started", async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    // Two queues ask for one job each, but only one may run: the other one waits inside the worker.
    const queues = [`a-${randomUUID()}`, `b-${randomUUID()}`];
    const [a = "", b = ""] = queues;
    const { stop, events } = start({ queues, concurrency: 1 }, (worker) => worker.handler("t", () => released));
    const first = (await client.submit({ type: "t", queue: a })).id;
    await waitFor(client, first, ["running"]);
    const second = (await client.submit({ type: "t", queue: b })).id;
    await waitFor(client, second, ["running"]);
    const stopped = stop();
    await eventually("the hand-back", () => events.some(({ kind }) => kind === "handed_back"));
    assert.equal((await client.get(first)).state, "running");
    assert.equal((await client.get(second)).state, "ready");
    assert.equal((await client.explain(second)).failures, 0);
    release();
    await stopped;
    assert.equal((await client.get(first)).state, "succeeded");
    assert.deepEqual(events.filter(({ kind }) => kind === "started").length, 1);
  });

  test("a drain does not wait for ever", async () => {
    const { submit, stop, events } = start({ drainTimeout: "50ms" }, (worker) =>
      worker.handler("t", () => new Promise(() => undefined)),
    );
    const id = await submit({});
    await waitFor(client, id, ["running"]);
    await stop();
    assert.ok(events.some(({ kind }) => kind === "handed_back"));
    assert.equal((await client.get(id)).state, "ready");
  });

  test("a queue that cannot be ends the worker with the reason", async () => {
    const { run } = start({ queues: ["not a queue!", "fine"] }, () => undefined);
    await assert.rejects(run, InvalidRequestError);
  });

  test("settings that make no sense are refused", () => {
    assert.throws(() => new Worker(client, { queues: [] }), RangeError);
    assert.throws(() => new Worker(client, { concurrency: 0 }), RangeError);
    assert.throws(() => new Worker(client, { lease: "10ms" }), RangeError);
    const worker = new Worker(client).handler("t", () => 1);
    assert.throws(() => worker.handler("t", () => 2), /has a handler already/);
  });
});
