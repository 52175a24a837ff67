/**
 * For tests: a throw-away server, and handlers run without one.
 *
 * @packageDocumentation
 */
import { performance } from "node:perf_hooks";
import { attempt, type Classify, type Outcome } from "./attempt.js";
import type { Client } from "./client.js";
import { TidewheelError } from "./errors.js";
import { register, type Handler, type HandlerOptions } from "./handler.js";
import type { Job, JobState, TakenJob } from "./job.js";
import { pause } from "./pause.js";
import { progressOf } from "./progress.js";
import { reportable } from "./report.js";
import { Worker } from "./worker.js";

export { findBinary, startServer, TestServer, type ServerOptions } from "./server_process.js";
export type { Outcome } from "./attempt.js";

/** Between two looks at a job. */
const LOOK_MS = 20;
/** How long `waitFor` waits unless told otherwise. */
const WAIT_MS_DEFAULT = 30_000;
/** The states a job does not leave by itself. */
const FINISHED: readonly JobState[] = ["succeeded", "dead", "cancelled", "skipped", "expired"];

/** A job made up for a test: what is not given has a sensible value. */
export type MadeUpJob<P> = Partial<Omit<TakenJob<P>, "payload">> & { payload: P };

/** Makes up a job as a worker gets it. */
export function madeUpJob<P>(job: MadeUpJob<P>): TakenJob<P> {
  const now = new Date().toISOString();
  const id = job.id ?? "job_00000000000000000000000000";
  return {
    id,
    tenant: "default",
    type: "test",
    attempt: 1,
    maxAttempts: 5,
    token: 1,
    idempotencyKey: id,
    queue: "default",
    priority: "normal",
    fireAt: now,
    runAt: now,
    createdAt: now,
    expiresAt: null,
    timeout: "30s",
    labels: {},
    leaseUntil: null,
    scheduleId: null,
    catchUp: false,
    ...job,
  };
}

/** How a handler is run in a test. */
export interface RunOptions<P> extends HandlerOptions<P> {
  /** Aborts `context.signal`, as a cancel would. */
  signal?: AbortSignal;
  classify?: Classify;
}

/** How a run ended. */
export type Ran = (Outcome | { status: "lost"; reason: unknown }) & {
  /** What the handler said of its progress, in order. */
  progress: unknown[];
};

/**
 * Runs a handler once, without a server, for a made-up job; the job's `timeout` holds. Payloads and results pass
 * through JSON, as they do on their way.
 *
 * @param handler - The handler itself, or a worker that has one for the job's type.
 * @param job - At least its payload.
 * @returns What would be reported.
 *
 * @example
 * ```ts
 * const ran = await runHandler(sendEmail, { payload: { to: "nobody" } });
 * assert.equal(ran.status, "failed");
 * ```
 */
export async function runHandler<P, R>(
  handler: Handler<P, R> | Worker,
  job: MadeUpJob<P>,
  options: RunOptions<P> = {},
): Promise<Ran> {
  const control = new AbortController();
  const abort = () => { control.abort(options.signal?.reason); };
  if (options.signal?.aborted) abort();
  options.signal?.addEventListener("abort", abort, { once: true });
  const said: unknown[] = [];
  // As with a server, what is wrong with it is a rejection.
  const progress = (value: unknown) =>
    new Promise<void>((resolve) => {
      control.signal.throwIfAborted();
      said.push(progressOf(value));
      resolve();
    });
  const taken = madeUpJob({ ...job, payload: throughJson(job.payload) });
  const registration = handler instanceof Worker ? handler.registration(taken.type) : register(handler, options);
  const run = attempt(registration, taken, { control, progress, classify: options.classify });
  const outcome = await run.outcome;
  options.signal?.removeEventListener("abort", abort);
  if (outcome === undefined) return { status: "lost", reason: control.signal.reason, progress: said };
  return { ...(throughJson(reportable(outcome)) as Outcome), progress: said };
}

function throughJson(value: unknown): unknown {
  return value === undefined ? null : JSON.parse(JSON.stringify(value));
}

/**
 * Waits until a job is in one of the states; by default until it has ended.
 *
 * @throws TidewheelError when it takes longer than `timeoutMs`, with the state it is in.
 */
export async function waitFor(
  client: Client,
  id: string,
  states: readonly JobState[] = FINISHED,
  timeoutMs = WAIT_MS_DEFAULT,
): Promise<Job> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const job = await client.get(id);
    if (states.includes(job.state)) return job;
    if (performance.now() > deadline) throw new TidewheelError(`${id} is ${job.state}, not ${states.join(" or ")}`);
    await pause(LOOK_MS);
  }
}
