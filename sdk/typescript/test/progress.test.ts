/** Progress that cannot be sent, or is refused: the handler is told, and the lease is kept. Against a stub. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, InvalidRequestError, Worker, type Handler, type WorkerEvent } from "tidewheel";
import { eventually } from "./eventually.js";
import { stub, type Answer, type Asked } from "./stub.js";
import { takenAnswer } from "./taken.js";
import { undisturbed } from "./undisturbed.js";

const TOO_LARGE = "too large";
const REFUSED: Answer = { status: 422, body: { type: "x", title: "x", status: 422, detail: "too large", code: "progress_too_large" } };

const said = ({ body }: Asked) => (body as { progress?: unknown }).progress;
const isBeat = ({ path }: Asked) => path.endsWith("/heartbeat");

/** Runs a handler for one job to its end, on a server that refuses some progress. */
async function ran(handlerOf: (asked: readonly Asked[]) => Handler, lease = "10m") {
  let takes = 0;
  const server = await stub((asked) => {
    if (isBeat(asked)) return said(asked) === TOO_LARGE ? REFUSED : { status: 200, body: { state: "running", attempt: 1 } };
    if (!asked.path.endsWith("/take")) return { status: 200, body: {} };
    takes += 1;
    return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : new Promise<Answer>(() => undefined);
  });
  const events: WorkerEvent[] = [];
  const worker = new Worker(new Client({ url: server.url }), { signals: false, lease, onEvent: (event) => events.push(event) });
  worker.handler("t", handlerOf(server.asked));
  const run = worker.run();
  try {
    await eventually("the end", () => events.some(({ kind }) => kind === "settled"));
  } finally {
    await worker.drain();
    await run;
    await server.close();
  }
  const outcome = server.asked.find(({ path }) => path.endsWith("/outcome"))?.body;
  return { kinds: events.map(({ kind }) => kind), outcome, beats: server.asked.filter(isBeat) };
}

function cyclic(): unknown {
  const value: Record<string, unknown> = {};
  value["self"] = value;
  return value;
}

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

const NO_JSON: Record<string, unknown> = {
  bigint: 1n,
  cyclic: cyclic(),
  undefined,
  function: () => 1,
  symbol: Symbol("s"),
  bottomless: nested(100_000),
  odd: { toJSON: () => { throw new Error("not for you"); } },
};

describe("progress", () => {
  test("what is no JSON is told to the handler, and not sent", async () => {
    const { outcome, beats } = await ran(() => async (_, { progress }) => {
      for (const [name, value] of Object.entries(NO_JSON)) {
        await assert.rejects(progress(value), (error) => error instanceof TypeError && error.message.startsWith("the progress is no JSON: "), name);
      }
      await progress("fine");
      return "done";
    });
    assert.deepEqual(outcome, { token: 7, status: "succeeded", result: "done" });
    assert.deepEqual(beats.map(said), ["fine"]);
  });

  test("it is sent as it was when it was said", async () => {
    const { beats } = await ran(() => async (_, { progress }) => {
      const parts = [1];
      const sent = progress(parts);
      parts.push(2);
      await sent;
    });
    assert.deepEqual(beats.map(said), [[1]]);
  });

  test("of two at a time the one that was refused is told so", async () => {
    const { outcome, beats } = await ran(() => async (_, { progress }) => {
      const [first, last] = await Promise.allSettled([progress("fine"), progress(TOO_LARGE)]);
      assert.equal(first.status, "fulfilled");
      assert.ok(last.status === "rejected" && last.reason instanceof InvalidRequestError);
      return "done";
    });
    assert.deepEqual(outcome, { token: 7, status: "succeeded", result: "done" });
    assert.deepEqual(beats.map(said), [TOO_LARGE]);
  });

  test("a refusal that nobody waits for ends nothing", async () => {
    const { outcome } = await ran((asked) => async (_, { progress }) => {
      void progress(1n);
      void progress(TOO_LARGE);
      while (!asked.some(isBeat)) await sleep(20);
      // After this one, that one was answered.
      await progress("fine");
      return "done";
    });
    assert.deepEqual(outcome, { token: 7, status: "succeeded", result: "done" });
  });

  for (const [late, methods] of [["refusal", ["POST"]], ["reason of a refusal", ["GET", "POST"]]] as const) {
    test(`the ${late} that comes after the end calls nothing off`, async (t) => {
      let settle: () => void = () => undefined;
      const settled = new Promise<void>((resolve) => (settle = resolve));
      let takes = 0;
      const isLate = (asked: Asked) => (late === "refusal" ? isBeat(asked) : asked.method === "GET");
      const server = await stub(async (asked) => {
        if (isLate(asked)) await settled;
        if (isBeat(asked)) return { status: 409, body: { type: "x", title: "x", status: 409, detail: "over", code: "stale_token" } };
        if (!asked.path.endsWith("/take")) return { status: 200, body: { state: "cancelled", attempt: 1 } };
        takes += 1;
        return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : new Promise<Answer>(() => undefined);
      });
      t.after(() => server.close());
      let isSettled = false;
      let isRead = false;
      const reading: typeof fetch = async (...call) => {
        const response = await fetch(...call);
        const text = await response.text();
        // Only what came late is read when the job has settled.
        if (isSettled) setImmediate(() => { isRead = true; });
        return new Response(text, response);
      };
      const onEvent = ({ kind }: WorkerEvent) => {
        if (kind !== "settled") return;
        isSettled = true;
        settle();
      };
      const worker = new Worker(new Client({ url: server.url, fetch: reading }), { signals: false, onEvent });
      let given: AbortSignal | undefined;
      worker.handler("t", async (_, { progress, signal }) => {
        given = signal;
        void progress("the last");
        while (!server.asked.some(isLate)) await sleep(20);
      });
      const run = worker.run();
      await eventually("what came late", () => isRead);
      await worker.drain();
      await run;
      assert.equal(given?.aborted, false);
      assert.deepEqual([...new Set(server.asked.map(({ method }) => method))].sort(), methods, "nobody asks why when it is over");
    });
  }

  /** Progress that is refused, again and again, for longer than a lease. */
  async function refusedAgainAndAgain(pauseMs: number): Promise<void> {
    const { kinds, outcome } = await ran((asked) => async (_, { progress, signal }) => {
      const isPlain = (one: Asked) => isBeat(one) && said(one) === undefined;
      while (asked.filter(isPlain).length < 4) {
        await assert.rejects(progress(TOO_LARGE), InvalidRequestError);
        if (pauseMs > 0) await sleep(pauseMs, undefined, { signal });
      }
      return "done";
    }, "3s");
    assert.deepEqual(kinds, ["started", "reported", "settled"]);
    assert.deepEqual(outcome, { token: 7, status: "succeeded", result: "done" });
  }

  for (const pauseMs of [0, 100]) {
    test(`heartbeats go on beside progress that is refused every ${pauseMs} ms`, () => undisturbed(300, () => refusedAgainAndAgain(pauseMs)));
  }
});
