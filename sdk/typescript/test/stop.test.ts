/** What a worker that stops does with jobs that are on their way to it. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker, type WorkerEvent, type WorkerOptions } from "tidewheel";
import { startServer, waitFor, type TestServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";
import { stub, type Answer } from "./stub.js";
import { takenAnswer } from "./taken.js";

/** A promise, and what resolves it. */
function gate<T = void>() {
  let open: (value: T) => void = () => undefined;
  const opened = new Promise<T>((resolve) => (open = resolve));
  return { open, opened };
}

/** A worker whose handler ends at once; what happens is kept. */
function start(client: Client, options: WorkerOptions = {}) {
  const events: WorkerEvent[] = [];
  const worker = new Worker(client, { signals: false, onEvent: (event) => events.push(event), ...options });
  worker.handler("t", () => "ran");
  const run = worker.run();
  const kinds = () => events.map(({ kind }) => kind);
  return { worker, run, events, kinds };
}

describe("a stop, told by a stub", () => {
  test("jobs that an open request brings are handed back at once, and do not start", async () => {
    const brought = gate<Answer>();
    const other = gate<Answer>();
    const server = await stub(({ path }) => {
      if (path.includes("/queues/a/")) return brought.opened;
      return path.includes("/queues/b/") ? other.opened : { status: 200, body: {} };
    });
    const { worker, run, kinds } = start(new Client({ url: server.url }), { queues: ["a", "b"] });
    await eventually("both requests", () => server.asked.length === 2);
    const drained = worker.drain();
    brought.open(takenAnswer([{ id: "job_1", token: 7 }, { id: "job_2", token: 8 }]));
    // The request for the other queue's jobs is open still: nobody waits for it.
    await eventually("the hand-back", () => server.asked.length === 4);
    other.open(takenAnswer([]));
    await drained;
    await run;
    const told = server.asked.filter(({ path }) => path.endsWith("/outcome")).map(({ path, body }) => [path, body]);
    assert.deepEqual(told.sort(), [
      ["/v1/jobs/job_1/outcome", { token: 7, status: "snoozed", retry_after: 0 }],
      ["/v1/jobs/job_2/outcome", { token: 8, status: "snoozed", retry_after: 0 }],
    ]);
    assert.deepEqual(kinds(), ["handed_back", "handed_back"]);
    await server.close();
  });

  test("an answer that has begun to come is read to its end", async () => {
    const stream = gate<ReadableStreamDefaultController<Uint8Array>>();
    const outcomes: unknown[] = [];
    const answering: typeof fetch = async (url, init) => {
      const request = new Request(url, init);
      if (!request.url.endsWith("/take")) {
        outcomes.push(await request.json());
        return new Response("{}");
      }
      const body = new ReadableStream<Uint8Array>({
        start: (controller) => {
          init?.signal?.addEventListener("abort", () => { controller.error(new Error("given up")); });
          stream.open(controller);
        },
      });
      return new Response(body);
    };
    const { worker, run, kinds } = start(new Client({ url: "http://stub", fetch: answering }));
    const controller = await stream.opened;
    const { body } = takenAnswer([{ id: "job_1", token: 7 }]);
    const text = new TextEncoder().encode(JSON.stringify(body));
    controller.enqueue(text.subarray(0, 10));
    const drained = worker.drain();
    // By now requests that nothing has come of are given up.
    await sleep(1_500);
    controller.enqueue(text.subarray(10));
    controller.close();
    await drained;
    await run;
    assert.deepEqual(outcomes, [{ token: 7, status: "snoozed", retry_after: 0 }]);
    assert.deepEqual(kinds(), ["handed_back"]);
  });

  test("a request that brings nothing does not hold the stop up", async () => {
    const server = await stub(() => new Promise<Answer>(() => undefined));
    const { worker, run, events } = start(new Client({ url: server.url }), { wait: "1m" });
    await eventually("the request", () => server.asked.length === 1);
    const begun = Date.now();
    await worker.drain();
    await run;
    assert.ok(Date.now() - begun < 30_000, "the request was waited for");
    assert.deepEqual(events, []);
    await server.close();
  });

  test("nothing is told behind the back of whoever waits for the end", async (t) => {
    let takes = 0;
    const server = await stub(({ path }) => {
      if (path.endsWith("/outcome")) return { status: 503 };
      if (!path.endsWith("/take")) return { status: 200, body: { state: "running", attempt: 1 } };
      takes += 1;
      return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : new Promise<Answer>(() => undefined);
    });
    t.after(() => server.close());
    // By its lease it could go on for four minutes.
    const { worker, run, kinds } = start(new Client({ url: server.url }), { lease: "2m", drainTimeout: "50ms" });
    await eventually("a try", () => server.asked.some(({ path }) => path.endsWith("/outcome")));
    await worker.drain();
    await run;
    await eventually("the end of the tries", () => kinds().includes("settled"));
    assert.deepEqual(kinds(), ["started", "trouble", "settled"]);
  });

  test("a hand-back that is refused does not fail the job", async () => {
    const brought = gate<Answer>();
    const problem = { type: "x", title: "x", status: 422, detail: "not so", code: "invalid_value" };
    const server = await stub(({ path }) => (path.endsWith("/take") ? brought.opened : { status: 422, body: problem }));
    const { worker, run, kinds } = start(new Client({ url: server.url }));
    await eventually("the request", () => server.asked.length === 1);
    const drained = worker.drain();
    brought.open(takenAnswer([{ id: "job_1", token: 7 }]));
    await drained;
    await run;
    const told = server.asked.filter(({ path }) => path.endsWith("/outcome")).map(({ body }) => (body as { status: string }).status);
    assert.deepEqual(told, ["snoozed"]);
    assert.deepEqual(kinds(), ["trouble"]);
    await server.close();
  });
});

describe("a stop, against a real server", () => {
  let server: TestServer;
  let client: Client;
  before(async () => {
    server = await startServer();
    client = server.client();
  });
  after(() => server.stop());

  test("what comes while a worker stops goes to another without waiting for a lease", async () => {
    const queue = `q-${randomUUID()}`;
    const ids: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      // The lease is far longer than the test waits.
      const { worker, run } = start(client, { queues: [queue], lease: "1h", concurrency: 5 });
      ids.push((await client.submit({ type: "t", queue })).id);
      await waitFor(client, ids.at(-1) ?? "", undefined, 60_000);
      const [sent] = await Promise.all([
        Promise.all(Array.from({ length: 5 }, () => client.submit({ type: "t", queue }))),
        worker.drain(),
      ]);
      ids.push(...sent.map(({ id }) => id));
      await run;
    }
    const heir = start(client, { queues: [queue], lease: "1h" });
    for (const id of ids) assert.equal((await waitFor(client, id, undefined, 60_000)).result, "ran");
    await heir.worker.drain();
    await heir.run;
  });
});
