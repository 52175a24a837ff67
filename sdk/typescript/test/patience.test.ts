/** What the client does when answers get lost or the server is busy, against a stub. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiError, BusyError, Client, ConnectionError } from "tidewheel";
import { stub, type Answer } from "./stub.js";

const BUSY: Answer = {
  status: 503,
  headers: { "retry-after": "1" },
  body: { type: "/docs/errors#overloaded", title: "busy", status: 503, detail: "try again", code: "overloaded" },
};
const TAKEN: Answer = { status: 201, body: { id: "job_1", state: "ready", run_at: "x", idempotency_key: "k", duplicate: false } };

describe("patience", () => {
  test("after a lost answer the same key goes out again", async () => {
    const server = await stub((_, before) => (before < 2 ? "drop" : TAKEN));
    const sent = await new Client({ url: server.url }).submit({ type: "x" });
    assert.equal(sent.id, "job_1");
    const keys = server.asked.map(({ body }) => (body as { idempotency_key: string }).idempotency_key);
    assert.equal(keys.length, 3);
    assert.equal(new Set(keys).size, 1);
    await server.close();
  });

  test("every changing call carries a key", async () => {
    const server = await stub(() => ({ status: 200, body: {} }));
    const client = new Client({ url: server.url });
    await client.submit({ type: "x" });
    await client.cancel("job_1");
    await client.run("job_1");
    await client.retry("job_1");
    await client.cancelMany({ ids: ["job_1"] });
    await client.retryMany({ ids: ["job_1"] });
    await client.update("job_1", { priority: "low" });
    await client.schedules.create({ every: "1m" });
    await client.schedules.put("s", { every: "1m" });
    await client.schedules.patch("sch_1", { note: "n" }, { idempotencyKey: "mine" });
    await client.schedules.trigger("sch_1");
    await client.schedules.delete("sch_1");
    await client.deadLetters.replay("job_1");
    await client.deadLetters.discard("job_1");
    for (const { key, body, path } of server.asked) {
      assert.ok(key ?? (body as { idempotency_key?: string } | undefined)?.idempotency_key, path);
    }
    assert.ok(server.asked.some(({ key }) => key === "mine"));
    await server.close();
  });

  test("a key may be any text", async (t) => {
    const server = await stub(() => ({ status: 200, body: {} }));
    t.after(() => server.close());
    const idempotencyKey = "größe-ключ-\u{1f511}";
    await new Client({ url: server.url, patienceMs: 0 }).cancel("job_1", { idempotencyKey });
    assert.equal(Buffer.from(server.asked[0]?.key ?? "", "latin1").toString("utf8"), idempotencyKey);
  });

  test("a key that is made up for a schedule's creation is the call's, not the schedule's", async (t) => {
    const server = await stub((_, before) => (before === 0 ? "drop" : { status: 201, body: {} }));
    t.after(() => server.close());
    const { schedules } = new Client({ url: server.url });
    await schedules.create({ every: "1m" });
    await schedules.create({ every: "1m", idempotencyKey: "mine" });
    const [first, again, own] = server.asked;
    assert.ok(first?.key);
    assert.equal(again?.key, first.key);
    assert.deepEqual(again.body, { every: "1m" });
    assert.deepEqual([own?.key, own?.body], [undefined, { every: "1m", idempotency_key: "mine" }]);
  });

  test("what a busy server turns away of a batch is sent again, alone and under its key", async () => {
    const error = { type: "x", title: "busy", status: 503, detail: "try again", code: "overloaded" };
    const server = await stub((_, before) => ({
      status: 201,
      body: { jobs: before === 0 ? [{ id: "job_1", duplicate: false }, { error }] : [{ id: "job_2", duplicate: false }] },
    }));
    const client = new Client({ url: server.url });
    const answers = await client.submitMany([{ type: "a" }, { type: "b", priority: "low" }], { partial: true });
    assert.deepEqual(answers.map((answer) => ("id" in answer ? answer.id : answer.error.code)), ["job_1", "job_2"]);
    const [first, again] = server.asked.map(({ body }) => body as { type: string; idempotency_key: string }[]);
    assert.deepEqual(again, [first?.[1]]);
    await server.close();
  });

  test("a busy server is not asked sooner than it wants, by any submission", async () => {
    const server = await stub((_, before) => (before === 0 ? BUSY : TAKEN));
    let read: () => void = () => undefined;
    const refusalRead = new Promise<void>((resolve) => (read = resolve));
    const told: typeof fetch = async (...call) => {
      const response = await fetch(...call);
      const text = await response.text();
      setImmediate(read);
      return new Response(text, response);
    };
    const client = new Client({ url: server.url, fetch: told });
    const first = client.submit({ type: "x" });
    await refusalRead;
    await Promise.all([first, client.submit({ type: "x" })]);
    const [refused, ...others] = server.asked.map(({ at }) => at);
    assert.equal(others.length, 2);
    for (const at of others) assert.ok(at - (refused ?? 0) >= 990, `${at - (refused ?? 0)} ms`);
    await server.close();
  });

  test("patience ends", async () => {
    const server = await stub(() => BUSY);
    const client = new Client({ url: server.url, patienceMs: 500 });
    await assert.rejects(client.submit({ type: "x" }), (error) => error instanceof BusyError && error.retryAfterMs === 1_000);
    assert.equal(server.asked.length, 1);
    await server.close();
    await assert.rejects(client.submit({ type: "x" }), ConnectionError);
  });

  test("a change whose answer got lost is repeated under its key", async () => {
    const server = await stub((_, before) => (before === 0 ? "drop" : { status: 201, body: {} }));
    await new Client({ url: server.url }).schedules.trigger("sch_1");
    const keys = server.asked.map(({ key }) => key);
    assert.equal(keys.length, 2);
    assert.ok(keys[0]);
    assert.equal(keys[0], keys[1]);
    await server.close();
  });

  test("a signal gives the call up", async () => {
    const server = await stub(() => BUSY);
    const control = new AbortController();
    const call = new Client({ url: server.url }).submit({ type: "x" }, { signal: control.signal });
    while (server.asked.length === 0) await new Promise(setImmediate);
    control.abort(new Error("enough"));
    await assert.rejects(call, /enough/);
    await server.close();
  });

  test("a call that is sent elsewhere has not been answered", async (t) => {
    const elsewhere: Answer = { status: 302, headers: { location: "/v1/jobs" } };
    const server = await stub(({ method }) => (method === "POST" ? elsewhere : TAKEN));
    t.after(() => server.close());
    const call = new Client({ url: server.url }).submit({ type: "x" });
    await assert.rejects(call, (error) => error instanceof ApiError && error.status === 302);
    assert.deepEqual(server.asked.map(({ method }) => method), ["POST"]);
  });

  test("a proxy's answer is an error too", async () => {
    const server = await stub(() => ({ status: 403, body: "no entry" }));
    await assert.rejects(new Client({ url: server.url }).get("job_1"), /http_403/);
    await server.close();
  });
});
