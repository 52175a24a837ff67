/** What the code and the settings around a worker must not do to it. Against a stub. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiError, Client, Worker } from "tidewheel";
import { eventually } from "./eventually.js";
import { stub, type Answer } from "./stub.js";
import { takenAnswer } from "./taken.js";

const never = new Promise<Answer>(() => undefined);

describe("a worker", () => {
  test("a listener that throws neither stops it nor holds up a job", async (t) => {
    const told: unknown[] = [];
    t.mock.method(console, "error", (...text: unknown[]) => told.push(text[0]));
    let takes = 0;
    const server = await stub(({ path }) => {
      if (!path.endsWith("/take")) return { status: 200, body: {} };
      takes += 1;
      return takes <= 2 ? takenAnswer([{ id: `job_${takes}`, token: takes }]) : never;
    });
    t.after(() => server.close());
    const onEvent = () => { throw new Error("the listener is broken"); };
    const worker = new Worker(new Client({ url: server.url }), { signals: false, concurrency: 1, onEvent });
    worker.handler("t", () => "done");
    const run = worker.run();
    const outcomes = () => server.asked.filter(({ path }) => path.endsWith("/outcome")).map(({ body }) => (body as { status: string }).status);
    await eventually("both outcomes", () => outcomes().length === 2);
    await worker.drain();
    await run;
    assert.deepEqual(outcomes(), ["succeeded", "succeeded"]);
    assert.deepEqual(
      told.map((text) => /onEvent threw at (\w+)/.exec(String(text))?.[1]),
      ["started", "reported", "settled", "started", "reported", "settled"],
    );
  });

  test("a drain timeout that is no duration is refused, not taken for none", () => {
    assert.throws(() => new Worker(new Client(), { drainTimeout: "a while" }), RangeError);
  });

  for (const status of [401, 403]) {
    test(`a key that is refused with ${status} ends it with the reason`, async (t) => {
      const problem = { type: "x", title: "x", status, detail: "not with this key", code: "not_so" };
      const server = await stub(() => ({ status, body: problem }));
      t.after(() => server.close());
      const worker = new Worker(new Client({ url: server.url }), { signals: false, onEvent: () => undefined });
      let reason: unknown;
      const run = worker.run().catch((error: unknown) => { reason = error; });
      t.after(() => worker.drain().catch(() => undefined));
      await eventually("the end", () => reason !== undefined);
      await run;
      assert.ok(reason instanceof ApiError);
      assert.deepEqual([reason.status, server.asked.length], [status, 1]);
    });
  }

  test("many queues are not taken for a leak", async (t) => {
    const warnings: string[] = [];
    const hear = ({ name }: Error) => warnings.push(name);
    process.on("warning", hear);
    t.after(() => process.off("warning", hear));
    const server = await stub(() => never);
    t.after(() => server.close());
    const queues = Array.from({ length: 20 }, (_, n) => `q${n}`);
    const worker = new Worker(new Client({ url: server.url }), { signals: false, queues });
    const run = worker.run();
    await eventually("all requests", () => server.asked.length === queues.length);
    await worker.drain();
    await run;
    assert.deepEqual(warnings, []);
  });
});
