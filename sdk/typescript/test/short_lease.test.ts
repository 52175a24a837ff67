/** Leases that are shorter than the requests that bring the jobs, against a stub. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker, type WorkerEvent } from "tidewheel";
import { eventually } from "./eventually.js";
import { stub, type Answer, type Asked } from "./stub.js";
import { takenAnswer } from "./taken.js";
import { undisturbed } from "./undisturbed.js";

/** Shorter than a request for jobs waits, and long enough for most machines. */
const LEASE_MS = 3_000;
/** A few times as much, and a heartbeat may come too late. */
const HELD_UP_MS = LEASE_MS / 10;

/** A worker with such a lease whose only job ends when `isDone` says so. */
function start(url: string, isDone: () => boolean, leaseMs = LEASE_MS) {
  const events: WorkerEvent[] = [];
  const worker = new Worker(new Client({ url }), {
    signals: false,
    lease: leaseMs / 1_000,
    wait: "20s",
    concurrency: 1,
    onEvent: (event) => events.push(event),
  });
  worker.handler("t", async (_, { signal }) => {
    while (!isDone()) await sleep(20, undefined, { signal });
    return "done";
  });
  const run = worker.run();
  const stop = async () => {
    await worker.drain();
    await run;
  };
  return { events, stop };
}

const isBeat = ({ path }: Asked) => path.endsWith("/heartbeat");
const never = new Promise<Answer>(() => undefined);

/** A job that a request waited for longer than a lease. */
async function comesLate(): Promise<void> {
  let takes = 0;
  const server = await stub(async ({ path }) => {
    if (!path.endsWith("/take")) return { status: 200, body: { state: "running", attempt: 1 } };
    takes += 1;
    if (takes > 1) return never;
    await sleep(1.5 * LEASE_MS);
    return takenAnswer([{ id: "job_1", token: 7 }]);
  });
  // It runs for longer than a lease.
  const { events, stop } = start(server.url, () => server.asked.filter(isBeat).length >= 4);
  try {
    await eventually("the end", () => events.some(({ kind }) => kind === "settled"));
  } finally {
    await stop();
    await server.close();
  }
  assert.deepEqual(events.map(({ kind }) => kind), ["started", "reported", "settled"]);
  const outcomes = server.asked.filter(({ path }) => path.endsWith("/outcome"));
  assert.deepEqual(outcomes.map(({ body }) => body), [{ token: 7, status: "succeeded", result: "done" }]);
  assert.ok(server.asked.filter(isBeat).every(({ body }) => (body as { extend: number }).extend === LEASE_MS / 1_000));
}

/** A job whose first heartbeat is not answered. */
async function losesOneBeat(): Promise<void> {
  let takes = 0;
  let beats = 0;
  const server = await stub(({ path }) => {
    if (isBeat({ path } as Asked)) {
      beats += 1;
      return beats === 1 ? never : { status: 200, body: { state: "running", attempt: 1 } };
    }
    if (!path.endsWith("/take")) return { status: 200, body: {} };
    takes += 1;
    return takes === 1 ? takenAnswer([{ id: "job_1", token: 7 }]) : never;
  });
  const { events, stop } = start(server.url, () => beats >= 3, 2 * LEASE_MS);
  try {
    await eventually("the end", () => events.some(({ kind }) => kind === "settled"));
  } finally {
    await stop();
    await server.close();
  }
  assert.deepEqual(events.map(({ kind }) => kind), ["started", "reported", "settled"]);
}

describe("short leases", () => {
  test("a job that a request waited for longer than a lease runs once, with heartbeats", () => undisturbed(HELD_UP_MS, comesLate));

  test("a heartbeat that is not answered leaves time for another one", () => undisturbed(HELD_UP_MS, losesOneBeat));
});
