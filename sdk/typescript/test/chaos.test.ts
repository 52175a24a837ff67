/** Workers and servers that die, stall and come back. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker, type Client } from "tidewheel";
import { startServer, waitFor, type TestServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";

interface Line {
  kind: string;
  id?: string;
  token?: number;
  attempt?: number;
}

interface Result {
  by: string;
  token: number;
}

describe("chaos", () => {
  let server: TestServer;
  let client: Client;
  let folder: string;
  const children = new Set<ChildProcess>();
  before(async () => {
    server = await startServer();
    client = server.client();
    folder = await mkdtemp(join(tmpdir(), "tidewheel-chaos-"));
  });
  after(async () => {
    for (const child of children) child.kill("SIGKILL");
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** A worker process whose handlers return when it is released. */
  function workerProcess(name: string, queue: string, environment: Record<string, string> = {}) {
    const file = join(folder, randomUUID());
    const script = fileURLToPath(new URL("./worker_process.js", import.meta.url));
    const child = spawn(process.execPath, [script], {
      env: { ...process.env, TIDEWHEEL_URL: server.url, RELEASE: file, QUEUES: queue, NAME: name, ...environment },
      stdio: ["ignore", "pipe", "inherit"],
    });
    children.add(child);
    const lines: Line[] = [];
    createInterface({ input: child.stdout }).on("line", (line) => lines.push(JSON.parse(line) as Line));
    const kinds = (kind: string) => lines.filter((line) => line.kind === kind);
    return { child, kinds, release: () => writeFile(file, "") };
  }

  test("jobs of a killed worker go to another, with higher tokens, and none is lost", async () => {
    const queue = `kill-${randomUUID()}`;
    const retry = { policy: "fixed", base: "10ms", maxAttempts: 50 } as const;
    const ids = (await client.submitMany(Array.from({ length: 200 }, () => ({ type: "waiting", queue, retry, timeout: "5m" })))).map(({ id }) => id);
    const doomed = workerProcess("doomed", queue, { CONCURRENCY: "200", LEASE: "4s" });
    await eventually("all leases", () => new Set(doomed.kinds("started").map(({ id }) => id)).size === 200);
    const tokens = new Map(doomed.kinds("started").map(({ id, token }) => [id, token ?? Infinity]));
    doomed.child.kill("SIGKILL");
    await once(doomed.child, "close");
    const heir = workerProcess("heir", queue, { CONCURRENCY: "100", LEASE: "30s" });
    await heir.release();
    for (const id of ids) {
      const job = await waitFor(client, id, undefined, 60_000);
      assert.equal(job.state, "succeeded");
      const { by, token } = job.result as Result;
      assert.equal(by, "heir");
      assert.ok(token > (tokens.get(id) ?? Infinity), "the token rises");
      const [last, ...before] = (await client.attempts(id)).map(({ state }) => state).reverse();
      assert.equal(last, "succeeded");
      assert.deepEqual([...new Set(before)], ["lease_expired"]);
    }
    heir.child.kill("SIGTERM");
    await once(heir.child, "close");
    assert.equal(heir.kinds("ended").length, 1, "SIGTERM drains");
  });

  for (const [type, told] of [["blocking", "stale"], ["waiting", "lost"]] as const) {
    test(`a worker stopped past its lease decides nothing: ${told}`, async () => {
      const queue = `stop-${randomUUID()}`;
      const retry = { policy: "fixed", base: "10ms", maxAttempts: 50 } as const;
      const { id } = await client.submit({ type, queue, retry, timeout: "5m" });
      const sleeper = workerProcess("sleeper", queue, { CONCURRENCY: "1", LEASE: "2s" });
      await eventually("the start", () => sleeper.kinds("started").length > 0);
      sleeper.child.kill("SIGSTOP");
      const other = workerProcess("other", queue, { CONCURRENCY: "1", LEASE: "30s" });
      const mine = sleeper.kinds("started").at(-1)?.token ?? Infinity;
      await eventually("the second attempt", () => other.kinds("started").some(({ token }) => (token ?? 0) > mine));
      // It wakes while the other one is at work, and its own attempt is over. One has its outcome ready and is
      // refused; one finds out that it was away for too long, and has its handler stopped.
      if (type === "blocking") await sleeper.release();
      sleeper.child.kill("SIGCONT");
      await eventually(told, () => sleeper.kinds(told).length > 0);
      assert.equal((await client.get(id)).state, "running");
      await other.release();
      const job = await waitFor(client, id);
      assert.equal((job.result as Result).by, "other");
      for (const { child } of [sleeper, other]) {
        child.kill("SIGTERM");
        await once(child, "close");
      }
    });
  }

  test("a worker goes on when its server is restarted or killed", async () => {
    const own = await startServer({ args: ["--drain", "1s"] });
    const local = own.client();
    const troubles: unknown[] = [];
    const worker = new Worker(local, {
      queues: ["a", "b"],
      signals: false,
      onEvent: (event) => { if (event.kind === "trouble") troubles.push(event.error); },
    });
    worker.handler<number>("t", (n) => n * 2);
    const run = worker.run();
    const check = async (n: number) => {
      const { id } = await local.submit({ type: "t", queue: n % 2 ? "a" : "b", payload: n });
      assert.equal((await waitFor(local, id)).result, n * 2);
    };
    await check(1);
    for (const [n, signal] of [[2, "SIGTERM"], [3, "SIGKILL"]] as const) {
      await own.halt(signal);
      const { length } = troubles;
      await eventually("the worker to notice", () => troubles.length > length);
      // Submitted while nobody is there: the client waits for the server, too.
      const late = check(n);
      await own.start();
      await late;
      await check(n + 10);
    }
    await worker.drain();
    await run;
    await own.stop();
  });
});
