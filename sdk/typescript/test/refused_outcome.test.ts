/** Outcomes that the server does not take as they are: the work is not done again for it. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Cancelled, Client, Fail, Retry, Snooze, Worker, type Job, type WorkerEvent } from "tidewheel";
import { startServer, waitFor, type TestServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";
import { stub, type Answer } from "./stub.js";
import { takenAnswer } from "./taken.js";

const LONG = "long ".repeat(1_000_000);
const HALF = "half \ud83d of a sign";
const MENDED = "half \ufffd of a sign";

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

const ENDINGS: Record<string, () => unknown> = {
  retryTooLate: () => { throw new Retry("later", { after: "31d" }); },
  snoozeTooLong: () => { throw new Snooze("31d"); },
  deep: () => nested(200),
  bottomless: () => nested(100_000),
  large: () => "x".repeat(10_000),
  huge: () => LONG,
  bigint: () => 1n,
  odd: () => ({ toJSON: () => { throw new Error("not for you"); } }),
  longFail: () => { throw new Fail(LONG); },
  longError: () => { throw new Error(LONG); },
  longCancel: () => { throw new Cancelled(LONG); },
  halfFail: () => { throw new Fail(HALF); },
  halfCancel: () => { throw new Cancelled(HALF); },
  // Cut where the server cuts, a sign of two halves would be split.
  split: () => { throw new Fail(`${"x".repeat(2_047)}\u{1f600}`); },
  textless: () => { throw Object.create(null); },
  unclassified: () => { throw new TypeError("no class"); },
};

describe("refused outcomes, against a real server", () => {
  let server: TestServer;
  let client: Client;
  const queue = `q-${randomUUID()}`;
  const starts = new Map<string, number>();
  let worker: Worker;
  let run: Promise<void>;
  before(async () => {
    server = await startServer();
    client = server.client();
    const classify = () => { throw new Error("classify is broken"); };
    worker = new Worker(client, { queues: [queue], signals: false, classify, onEvent: () => undefined });
    worker.handler<string>("t", (how, { job }) => {
      starts.set(how, (starts.get(how) ?? 0) + 1);
      if (job.attempt > 1) return "again";
      return ENDINGS[how]?.();
    });
    run = worker.run();
  });
  after(async () => {
    await worker.drain();
    await run;
    await server.stop();
  });

  /** Has a job end so, with one attempt of three that it may have. */
  async function ended(how: string, maxAttempts = 3): Promise<Job> {
    const retry = { policy: "fixed", base: "10ms", maxAttempts } as const;
    const { id } = await client.submit({ type: "t", queue, payload: how, retry });
    const job = await waitFor(client, id, undefined, 60_000);
    assert.equal(starts.get(how), 1, `${how} ran once`);
    assert.equal(job.attempt, 1, how);
    return job;
  }

  test("a failure says that, and why, the outcome was refused", async () => {
    const reasons = {
      retryTooLate: /31d/,
      snoozeTooLong: /31d/,
      deep: /payload_too_deep: .*128/,
      bottomless: /call stack/,
      large: /10002 bytes.*8192/,
      huge: /5000002 bytes.*8192/,
      bigint: /BigInt/,
      odd: /not for you/,
    };
    for (const [how, reason] of Object.entries(reasons)) {
      const job = await ended(how);
      assert.equal(job.state, "dead", how);
      assert.match(job.lastError ?? "", /^the outcome cannot be reported: /, how);
      assert.match(job.lastError ?? "", reason, how);
    }
  });

  test("texts are cut to what is kept, and made whole", async () => {
    const endings = {
      longFail: ["dead", LONG.slice(0, 2_048)],
      longError: ["dead", `Error: ${LONG}`.slice(0, 2_048)],
      halfFail: ["dead", MENDED],
      split: ["dead", "x".repeat(2_047)],
      textless: ["dead", "an error that cannot be shown"],
      unclassified: ["dead", "TypeError: no class"],
    };
    for (const [how, [state, text]] of Object.entries(endings)) {
      const job = await ended(how, 1);
      assert.deepEqual([job.state, job.lastError], [state, text], how);
    }
    for (const [how, text] of [["longCancel", LONG.slice(0, 2_048)], ["halfCancel", MENDED]] as const) {
      const job = await ended(how);
      assert.equal(job.state, "cancelled", how);
      assert.equal((await client.attempts(job.id))[0]?.detail, text, how);
    }
  });
});

describe("refused outcomes, told by a stub", () => {
  /** A worker with one job whose outcome is answered so, until something other than trouble is told of it. */
  async function told(answer: (status: string) => Answer) {
    let takes = 0;
    const statuses: unknown[] = [];
    const server = await stub(({ path, body }) => {
      if (path.endsWith("/outcome")) {
        const outcome = body as { status: string };
        statuses.push(outcome);
        return answer(outcome.status);
      }
      if (!path.endsWith("/take")) return { status: 200, body: {} };
      takes += 1;
      return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : new Promise<Answer>(() => undefined);
    });
    const events: WorkerEvent[] = [];
    const worker = new Worker(new Client({ url: server.url }), { signals: false, onEvent: (event) => events.push(event) });
    worker.handler("t", () => "done");
    const run = worker.run();
    await eventually("the end", () => events.some(({ kind }) => kind === "settled"));
    await worker.drain();
    await run;
    await server.close();
    return { events, statuses };
  }

  const refusal = (status: number, code: string, detail: string): Answer => ({
    status,
    body: { type: "x", title: "x", status, detail, code },
  });
  const success = { token: 7, status: "succeeded", result: "done" };

  for (const status of [400, 403, 413, 422]) {
    test(`a refusal with ${status} becomes a failure for good, and is told as one`, async () => {
      const detail = `it is ${"long ".repeat(1_000)}`;
      const { events, statuses } = await told((what) => (what === "succeeded" ? refusal(status, "not_so", detail) : { status: 200, body: {} }));
      const error = `the outcome cannot be reported: not_so: ${detail}`.slice(0, 2_048);
      assert.deepEqual(statuses, [success, { token: 7, status: "failed", error, retryable: false }]);
      const reported = events.find((event) => event.kind === "reported");
      assert.deepEqual(reported?.outcome, { status: "failed", error, retryable: false });
    });
  }

  test("an attempt that is over is left alone", async () => {
    for (const [status, code, kind] of [[409, "stale_token", "stale"], [404, "job_not_found", "trouble"], [401, "unauthorized", "trouble"]] as const) {
      const { events, statuses } = await told(() => refusal(status, code, "no"));
      assert.deepEqual(statuses, [success], code);
      assert.deepEqual(events.map((event) => event.kind), ["started", kind, "settled"], code);
    }
  });
});
