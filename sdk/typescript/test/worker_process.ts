/**
 * A worker in a process of its own, to be killed and stopped. It tells each event as a line of JSON; its jobs end when
 * the file named by RELEASE is there. Jobs of type `blocking` wait without letting the process do anything else.
 */
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "tidewheel";

const release = process.env["RELEASE"] ?? "";
const worker = new Worker(new Client(), {
  queues: (process.env["QUEUES"] ?? "").split(","),
  concurrency: Number(process.env["CONCURRENCY"] ?? "100"),
  lease: process.env["LEASE"] ?? "2s",
  name: process.env["NAME"] ?? "child",
  onEvent: (event) => {
    const { kind } = event;
    const job = "job" in event ? event.job : undefined;
    console.log(JSON.stringify({ kind, id: job?.id, token: job?.token, attempt: job?.attempt }));
  },
});
worker.handler("waiting", async (_, { signal, job }) => {
  while (!existsSync(release)) await sleep(20, undefined, { signal });
  return { by: worker.name, token: job.token };
});
worker.handler("blocking", (_, { job }) => {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  while (!existsSync(release)) Atomics.wait(cell, 0, 0, 20);
  return { by: worker.name, token: job.token };
});
await worker.run();
console.log(JSON.stringify({ kind: "ended" }));
