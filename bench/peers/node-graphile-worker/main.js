// graphile-worker under the load of `bench/peers/run`: jobs are submitted one by one, then in
// batches, and these are drained by one worker with a task that does nothing. Prints one line of
// JSON.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const { values: flags } = parseArgs({
  options: {
    url: { type: "string" },
    jobs: { type: "string", default: "200000" },
    payload: { type: "string", default: "200" },
    batch: { type: "string", default: "1000" },
    submitters: { type: "string", default: "4" },
    callers: { type: "string", default: "1,20,50" },
    "single-seconds": { type: "string", default: "5" },
    concurrency: { type: "string", default: "200" },
    "local-queue": { type: "string", default: "5000" },
    connections: { type: "string", default: "20" },
    "completion-batch-ms": { type: "string", default: "0" },
    patience: { type: "string", default: "300" },
  },
});

function number(name) {
  const value = Number(flags[name]);
  if (!Number.isSafeInteger(value)) throw new Error(`--${name} ${flags[name]} is no number`);
  return value;
}

const jobs = number("jobs");
const payloadBytes = number("payload");
const batchCount = Math.max(1, number("batch"));
const patienceMs = number("patience") * 1000;
if (flags.url === undefined) throw new Error("--url is missing");

const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

// Digits that do not compress, so many that the whole payload has the size.
function data(seed) {
  const wanted = Math.max(0, payloadBytes - '{"data":""}'.length);
  let text = "";
  let state = BigInt.asUintN(64, BigInt(seed + 1) * 0x9e3779b97f4a7c15n);
  while (text.length < wanted) {
    state = BigInt.asUintN(64, state ^ (state << 13n));
    state ^= state >> 7n;
    state = BigInt.asUintN(64, state ^ (state << 17n));
    text += state.toString(16).padStart(16, "0");
  }
  return text.slice(0, wanted);
}

function inTime(start, what) {
  if (performance.now() - start > patienceMs) throw new Error(`${what} took too long`);
}

// How many jobs a second are stored that many callers submit one by one.
async function single(pool, callers) {
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  let stored = 0;
  let seed = 0;
  const start = performance.now();
  const end = start + number("single-seconds") * 1000;
  const caller = async () => {
    while (performance.now() < end) {
      await utils.addJob("nothing", { data: data(seed++) });
      stored += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  const took = (performance.now() - start) / 1000;
  const rows = await left(pool);
  if (rows !== stored) throw new Error(`${stored} jobs were submitted, the database has ${rows}`);
  await utils.release();
  return Math.round(stored / took);
}

async function left(pool) {
  const { rows } = await pool.query("SELECT count(*)::int AS left FROM graphile_worker._private_jobs");
  return rows[0].left;
}

// Adds all jobs, due at once, in batches; how many seconds that takes. The payloads are made beforehand.
async function submit(pool) {
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  const batches = [];
  for (let from = 0; from < jobs; from += batchCount) {
    const size = Math.min(batchCount, jobs - from);
    batches.push(
      Array.from({ length: size }, (_, index) => ({ identifier: "nothing", payload: { data: data(from + index) } })),
    );
  }
  const start = performance.now();
  const submitter = async () => {
    for (let batch = batches.pop(); batch !== undefined; batch = batches.pop()) {
      await utils.addJobs(batch);
      inTime(start, "adding jobs");
    }
  };
  await Promise.all(Array.from({ length: number("submitters") }, submitter));
  const took = (performance.now() - start) / 1000;
  await utils.release();
  return took;
}

// How many seconds one worker takes until no job is left in the table.
async function drain(pool) {
  let done = 0;
  const start = performance.now();
  const runner = await run({
    preset: {
      worker: {
        concurrentJobs: number("concurrency"),
        pollInterval: 100,
        localQueue: { size: number("local-queue") },
        completeJobBatchDelay: number("completion-batch-ms"),
        failJobBatchDelay: number("completion-batch-ms"),
        logger: quiet,
      },
    },
    pgPool: pool,
    noHandleSignals: true,
    taskList: {
      nothing: () => {
        done += 1;
      },
    },
  });
  // The table is only asked once the tasks have run: counting it costs the database.
  for (;;) {
    if (done >= jobs && (await left(pool)) === 0) break;
    inTime(start, `${done} of ${jobs} jobs`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const took = (performance.now() - start) / 1000;
  await runner.stop();
  return took;
}

// A database of its own in the server of the URL, gone at the end.
async function withDatabase(work) {
  const name = `peer_node_${process.pid}`;
  // Connections that are still closing when the database is dropped complain of it.
  let isOver = false;
  const complain = (error) => isOver || console.error(error.message);
  const server = new pg.Client({ connectionString: flags.url });
  await server.connect();
  await server.query(`CREATE DATABASE ${name}`);
  const stop = async () => {
    isOver = true;
    await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
    process.exit(143);
  };
  process.once("SIGTERM", stop);
  try {
    const url = new URL(flags.url);
    url.pathname = `/${name}`;
    const pool = new pg.Pool({ connectionString: url.href, max: number("connections") });
    pool.on("error", complain);
    pool.on("connect", (client) => client.on("error", complain));
    const result = await work(pool);
    isOver = true;
    await pool.end();
    return result;
  } finally {
    process.off("SIGTERM", stop);
    await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await server.end();
  }
}

// How fast jobs are submitted in batches, and drained.
async function bulk(pool) {
  const submitted = await submit(pool);
  const stored = await left(pool);
  const drained = await drain(pool);
  return {
    submit_per_s: Math.round(jobs / submitted),
    drain_per_s: Math.round(jobs / drained),
    stored,
    done: stored - (await left(pool)),
  };
}

const manifest = new URL("./node_modules/graphile-worker/package.json", import.meta.url);
const result = { peer: "graphile-worker (Node)", version: JSON.parse(readFileSync(manifest, "utf8")).version };
if (number("single-seconds") > 0) {
  for (const callers of flags.callers.split(",").map(Number)) {
    result[`single_${callers}_per_s`] = await withDatabase((pool) => single(pool, callers));
  }
}
if (jobs > 0) Object.assign(result, await withDatabase(bulk));
console.log(JSON.stringify(result));
