/** Batches: when they are sent, and what becomes of those that are larger than a tenant's limit. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiError, Batcher, Client, InvalidRequestError } from "tidewheel";
import { startServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";
import { stub, type Answer } from "./stub.js";

interface Sent {
  type: string;
  idempotency_key: string;
}

/** Answers as a server does whose tenant may have so many jobs waiting, for batches that may have fewer. */
function limited(max: number, batch: Sent[]): Answer {
  if (batch.length <= max) {
    return { status: 201, body: { jobs: batch.map((job) => ({ id: `id-${job.type}`, duplicate: false })) } };
  }
  const detail = `${batch.length} jobs are more than may ever wait of the tenant, which is ${max}; send fewer at once`;
  return { status: 422, body: { type: "x", title: "x", status: 422, detail, code: "batch_over_limit" } };
}

/** Takes every job in. */
const welcoming = ({ body }: { body: unknown }) => limited(Infinity, body as Sent[]);

/** The value of a promise that may never have one. */
async function valueOf<T>(what: string, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const settle = () => { isSettled = true; };
  promise.then(settle, settle);
  await eventually(what, () => isSettled);
  return promise;
}

const types = (count: number) => Array.from({ length: count }, (_, n) => `t${n}`);

describe("batcher", () => {
  test("a job that comes as the batch before is answered is sent", async (t) => {
    const server = await stub(welcoming);
    t.after(() => server.close());
    const batcher = new Batcher(new Client({ url: server.url }), { maxCount: 1, maxPending: 1 });
    const oneByOne = async () => {
      const ids: string[] = [];
      for (const type of types(5)) ids.push((await batcher.submit({ type })).id);
      return ids;
    };
    assert.deepEqual(await valueOf("the answers", oneByOne()), types(5).map((type) => `id-${type}`));
    await valueOf("the end", batcher.close());
  });

  for (const how of ["flush", "close"] as const) {
    test(`a ${how} sends a job that comes as the batch before is answered, and waits for it`, async (t) => {
      const server = await stub(welcoming);
      t.after(() => server.close());
      const batcher = new Batcher(new Client({ url: server.url }));
      await batcher.submit({ type: "first" });
      const second = batcher.submit({ type: "second" });
      await batcher[how]();
      assert.equal(server.asked.length, 2);
      assert.equal((await valueOf("the answer", second)).id, "id-second");
    });
  }

  test("a flush does not wait for jobs that come after it", async (t) => {
    let isLoaded = true;
    const later: Promise<unknown>[] = [];
    const server = await stub(({ body }) => {
      // While a batch is under way, the next job comes: there is always one that waits.
      if (isLoaded) later.push(batcher.submit({ type: "later" }));
      return welcoming({ body });
    });
    const batcher: Batcher = new Batcher(new Client({ url: server.url }));
    t.after(async () => {
      isLoaded = false;
      await Promise.all(later);
      await server.close();
    });
    const first = batcher.submit({ type: "first" });
    await valueOf("the flush", batcher.flush());
    assert.equal((await first).id, "id-first");
  });

  test("a flush waits for jobs that wait for room", async (t) => {
    const server = await stub(welcoming);
    t.after(() => server.close());
    const batcher = new Batcher(new Client({ url: server.url }), { maxCount: 2, maxPending: 2 });
    const answers = types(9).map((type) => batcher.submit({ type }));
    await valueOf("the flush", batcher.flush());
    assert.deepEqual(server.asked.flatMap(({ body }) => (body as Sent[]).map(({ type }) => type)), types(9));
    assert.deepEqual((await Promise.all(answers)).map(({ id }) => id), types(9).map((type) => `id-${type}`));
  });

  test("a job that cannot be sent fails alone", async (t) => {
    const server = await stub(welcoming);
    t.after(() => server.close());
    const batcher = new Batcher(new Client({ url: server.url }));
    const cyclic: unknown[] = [];
    cyclic.push(cyclic);
    const jobs = [{ runAt: new Date(NaN) }, { payload: cyclic }, { labels: { n: 1n as unknown as string } }, {}];
    const results = await Promise.allSettled(jobs.map((job) => batcher.submit({ type: "t", ...job })));
    assert.deepEqual(results.map(({ status }) => status), ["rejected", "rejected", "rejected", "fulfilled"]);
    assert.equal(server.asked.length, 1);
    await batcher.close();
  });

  test("a batch over the tenant's limit is sent in parts, each job once", async () => {
    const server = await stub(({ body }) => limited(3, body as Sent[]));
    const batcher = new Batcher(new Client({ url: server.url }));
    const answers = await Promise.all(types(21).map((type) => batcher.submit({ type })));
    assert.deepEqual(answers.map(({ id }) => id), types(21).map((type) => `id-${type}`));
    const batches = server.asked.map(({ body }) => body as Sent[]);
    assert.equal(batches[0]?.length, 21);
    const taken = batches.filter(({ length }) => length <= 3).flat();
    assert.deepEqual(taken.map(({ type }) => type), types(21));
    // Under the keys that they were first sent with.
    assert.deepEqual(taken.map((job) => job.idempotency_key), batches[0].map((job) => job.idempotency_key));
    await batcher.close();
    await server.close();
  });

  test("a single job that is over the limit gets the error", async () => {
    const server = await stub(({ body }) => limited(0, body as Sent[]));
    const batcher = new Batcher(new Client({ url: server.url }));
    const results = await Promise.allSettled(types(4).map((type) => batcher.submit({ type })));
    for (const result of results) {
      assert.ok(result.status === "rejected" && result.reason instanceof InvalidRequestError);
      assert.match(result.reason.message, /^batch_over_limit: 1 jobs/);
    }
    assert.deepEqual(server.asked.map(({ body }) => (body as Sent[]).length), [4, 2, 1, 1, 2, 1, 1]);
    await batcher.close();
    await server.close();
  });

  test("other refusals are not tried in parts", async () => {
    const server = await stub(() => ({ status: 422, body: { type: "x", title: "x", status: 422, detail: "no", code: "invalid_value" } }));
    const batcher = new Batcher(new Client({ url: server.url }));
    const results = await Promise.allSettled(types(4).map((type) => batcher.submit({ type })));
    assert.ok(results.every(({ status }) => status === "rejected"));
    assert.equal(server.asked.length, 1);
    await batcher.close();
    await server.close();
  });

  test("the parts of a batch share its patience", async () => {
    const busy: Answer = {
      status: 429,
      headers: { "retry-after": "1" },
      body: { type: "x", title: "x", status: 429, detail: "full", code: "too_many_waiting" },
    };
    const server = await stub(({ body }) => ((body as Sent[]).length > 1 ? limited(1, body as Sent[]) : busy));
    const batcher = new Batcher(new Client({ url: server.url, patienceMs: 3_000 }));
    const results = await Promise.allSettled(types(16).map((type) => batcher.submit({ type })));
    assert.ok(results.every((result) => result.status === "rejected" && result.reason instanceof ApiError && result.reason.status === 429));
    // Sixteen times the patience would be three tries of each.
    const singles = server.asked.filter(({ body }) => (body as Sent[]).length === 1);
    assert.ok(singles.length >= 16 && singles.length < 16 + 5, `${singles.length} tries`);
    await batcher.close();
    await server.close();
  });

  test("a real server takes what its limit leaves room for", async () => {
    const server = await startServer();
    const set = await fetch(`${server.url}/v1/tenants/small`, { method: "PUT", body: JSON.stringify({ limits: { waiting: 5 } }) });
    assert.ok(set.ok, await set.text());
    const client = server.client({ tenant: "small", patienceMs: 0 });
    const batcher = new Batcher(client);
    const results = await Promise.allSettled(types(20).map((type) => batcher.submit({ type, delay: "1h" })));
    assert.deepEqual(results.map(({ status }) => status), types(20).map((_, n) => (n < 5 ? "fulfilled" : "rejected")));
    for (const result of results.slice(5)) {
      assert.ok(result.status === "rejected" && result.reason instanceof ApiError);
      assert.equal(result.reason.code, "too_many_waiting");
    }
    assert.equal((await client.count({})).count, 5);
    await batcher.close();
    await server.stop();
  });
});
