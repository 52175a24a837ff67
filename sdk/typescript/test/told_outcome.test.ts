/** Outcomes that do not get through at once: they are told again, as they are. Against a stub. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Client, Worker, type WorkerEvent } from "tidewheel";
import { eventually } from "./eventually.js";
import { stub, type Answer, type Asked } from "./stub.js";
import { takenAnswer } from "./taken.js";

const isOutcome = ({ path }: Asked) => path.endsWith("/outcome");
const never = new Promise<Answer>(() => undefined);

/** A worker with one job whose outcome is answered so, to the end of the job. */
async function told(answer: (before: number) => Answer, lease = "30s") {
  let takes = 0;
  let outcomes = 0;
  const server = await stub((asked) => {
    if (isOutcome(asked)) {
      outcomes += 1;
      return answer(outcomes - 1);
    }
    if (!asked.path.endsWith("/take")) return { status: 200, body: { state: "running", attempt: 1 } };
    takes += 1;
    return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : never;
  });
  const events: WorkerEvent[] = [];
  const worker = new Worker(new Client({ url: server.url }), { signals: false, lease, onEvent: (event) => events.push(event) });
  worker.handler("t", () => "done");
  const run = worker.run();
  try {
    await eventually("the end", () => events.some(({ kind }) => kind === "settled"));
  } finally {
    await worker.drain();
    await run;
    await server.close();
  }
  return { kinds: events.map(({ kind }) => kind), outcomes: server.asked.filter(isOutcome) };
}

const DONE = { token: 7, status: "succeeded", result: "done" };
const TAKEN: Answer = { status: 200, body: {} };
const FAULTS: Record<string, Answer> = {
  "a fault inside the server": { status: 500, body: { type: "x", title: "x", status: 500, detail: "see the log", code: "internal" } },
  "a proxy without a server": { status: 502, body: "bad gateway" },
  "a server that is away": { status: 503, body: { type: "x", title: "x", status: 503, detail: "soon", code: "store_unavailable" } },
  "a connection that breaks": "drop",
};

describe("an outcome", () => {
  for (const [name, fault] of Object.entries(FAULTS)) {
    test(`is told again, after a wait and under its token, when it meets ${name}`, async () => {
      const { kinds, outcomes } = await told((before) => (before < 2 ? fault : TAKEN));
      assert.deepEqual(kinds, ["started", "reported", "settled"]);
      assert.deepEqual(outcomes.map(({ body }) => body), [DONE, DONE, DONE]);
      const [first = 0, second = 0, third = 0] = outcomes.map(({ at }) => at);
      // The waits are at least half of 100 ms, and of 200 ms.
      assert.ok(second - first >= 45 && third - second >= 90, `${second - first} ms, ${third - second} ms`);
    });
  }

  test("outlasts a server that asks for more than two leases of time", async () => {
    const busy: Answer = {
      status: 503,
      headers: { "retry-after": "3" },
      body: { type: "x", title: "x", status: 503, detail: "full", code: "store_full" },
    };
    const { kinds, outcomes } = await told((before) => (before === 0 ? busy : TAKEN), "1s");
    assert.deepEqual(kinds, ["started", "reported", "settled"]);
    assert.deepEqual(outcomes.map(({ body }) => body), [DONE, DONE]);
    const [first = 0, second = 0] = outcomes.map(({ at }) => at);
    assert.ok(second - first >= 2_990, `${second - first} ms`);
  });
});
