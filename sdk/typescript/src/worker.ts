/** Taking jobs from queues and running handlers for them. */
import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { hostname } from "node:os";
import { performance } from "node:perf_hooks";
import { attempt, type Classify, type Outcome } from "./attempt.js";
import type { Client } from "./client.js";
import { durationMs, seconds, type Duration } from "./duration.js";
import { ApiError, InvalidRequestError, StaleTokenError, TidewheelError } from "./errors.js";
import { register, type Handler, type HandlerOptions, type Registration } from "./handler.js";
import type { TakenJob } from "./job.js";
import { Lease } from "./lease.js";
import {
  CONCURRENCY_DEFAULT,
  DRAIN_GRACE_MS,
  DRAIN_MS_DEFAULT,
  DRAIN_REPORT_MS_MAX,
  LAST_TAKE_REST_MS,
  LAST_TAKE_TURN_MS,
  LAST_TAKE_TURNS_COUNT,
  LEASE_MS_DEFAULT,
  LEASE_MS_MIN,
  OUTCOME_PATIENCE_MS_MIN,
  REQUEST_TIMEOUT_MS,
  TAKE_COUNT_MAX,
  TAKE_WAIT_MS,
  TAKE_WAIT_MS_MAX,
} from "./limits.js";
import { Draining } from "./outcomes.js";
import { backoffMs, pause } from "./pause.js";
import { handBack, report, type Reported } from "./report.js";

/** What a worker tells while it runs. */
export type WorkerEvent =
  | { kind: "started"; job: TakenJob }
  | { kind: "settled"; job: TakenJob }
  | { kind: "reported"; job: TakenJob; outcome: Outcome }
  /** The server would not take the outcome: the attempt was over, and another one decides. */
  | { kind: "stale"; job: TakenJob; outcome: Outcome }
  /** The attempt was over before its handler was: `reason` is that of `context.signal`. Nothing is reported. */
  | { kind: "lost"; job: TakenJob; reason: unknown }
  | { kind: "handed_back"; job: TakenJob }
  /** Something did not work; the worker goes on. */
  | { kind: "trouble"; error: unknown; job?: TakenJob };

/** How a worker works. */
export interface WorkerOptions {
  /** Where it takes jobs from; `["default"]` by default. */
  queues?: readonly string[];
  /** Handlers running at a time, over all queues; 10 by default. */
  concurrency?: number;
  /** How long a job is safe from other workers without a heartbeat; 30 s by default, at least 1 s. */
  lease?: Duration;
  /** How long a request for jobs stays open when there are none; 20 s by default, at most a minute. */
  wait?: Duration;
  /** How long running handlers may take to end once a drain began; 30 s by default. */
  drainTimeout?: Duration;
  /** What the server shows; by default host, process and a few random letters. */
  name?: string;
  /** Drain on SIGTERM and SIGINT while `run` runs; true by default. The same one again ends the process as usual. */
  signals?: boolean;
  /** Says of an error that is none of this package's whether trying again may help; by default it may. */
  classify?: Classify;
  /** Hears what happens. By default troubles go to `console.error`. */
  onEvent?: (event: WorkerEvent) => void;
}

interface Held {
  job: TakenJob;
  lease: Lease;
  control: AbortController;
}

/**
 * Takes jobs and runs handlers.
 *
 * Each attempt has a lease that heartbeats keep; its `context.signal` is aborted when it should stop. When the server
 * goes away, the worker tries again until it is back. `drain` stops taking, lets handlers end, and hands back the rest.
 *
 * @example
 * ```ts
 * const worker = new Worker(client, { queues: ["mail"], concurrency: 20 });
 * worker.handler<Mail>("send-email", async (mail, context) => send(mail, context.signal));
 * await worker.run();
 * ```
 */
export class Worker {
  /** What the server shows of it. */
  readonly name: string;
  readonly #client: Client;
  readonly #options: WorkerOptions;
  readonly #queues: readonly string[];
  readonly #concurrency: number;
  readonly #leaseMs: number;
  readonly #waitMs: number;
  readonly #drainMs: number;
  readonly #registrations = new Map<string, Registration>();
  readonly #waiting: Held[] = [];
  readonly #running = new Map<Held, { reported: Promise<void>; ended: Promise<void> }>();
  /** Aborted when the worker stops, with why: `Draining`, or the error that ends it. */
  readonly #stop = new AbortController();
  /** Aborted when requests for jobs that are still open then are given up. */
  readonly #takes = new AbortController();
  /** Aborted when all is over, with why what is being told then is given up. */
  readonly #end = new AbortController();
  #room: (() => void)[] = [];
  #run: Promise<void> | undefined;

  /**
   * @param client - Talks to the server, for the tenant whose jobs are taken.
   * @param options - How to work.
   */
  constructor(client: Client, options: WorkerOptions = {}) {
    this.#client = client;
    this.#options = options;
    this.#queues = [...new Set(options.queues ?? ["default"])];
    this.#concurrency = options.concurrency ?? CONCURRENCY_DEFAULT;
    this.#leaseMs = durationMs(options.lease ?? seconds(LEASE_MS_DEFAULT));
    this.#waitMs = Math.min(durationMs(options.wait ?? seconds(TAKE_WAIT_MS)), TAKE_WAIT_MS_MAX);
    this.#drainMs = durationMs(options.drainTimeout ?? seconds(DRAIN_MS_DEFAULT));
    this.name = options.name ?? `${hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    // Every queue and every request listens to them; more than a few would be taken for a leak.
    setMaxListeners(0, this.#stop.signal, this.#takes.signal, this.#end.signal);
    this.#stop.signal.addEventListener("abort", () => { this.#wake(); });
    if (this.#queues.length === 0) throw new RangeError("a worker needs a queue");
    if (!Number.isInteger(this.#concurrency) || this.#concurrency < 1) throw new RangeError("concurrency is at least 1");
    if (this.#leaseMs < LEASE_MS_MIN) throw new RangeError("a lease is at least 1s");
  }

  /**
   * Says what runs for jobs of a type. Jobs of a type that has no handler fail, and are retried.
   *
   * @param type - The jobs' type.
   * @param options - `parse` checks the payload first, and gives it its type. May be left out.
   * @param handler - Runs for each attempt.
   */
  handler<P = unknown, R = unknown>(type: string, handler: Handler<P, R>): this;
  handler<P = unknown, R = unknown>(type: string, options: HandlerOptions<P>, handler: Handler<P, R>): this;
  handler<P, R>(type: string, second: Handler<P, R> | HandlerOptions<P>, third?: Handler<P, R>): this {
    if (this.#registrations.has(type)) throw new TidewheelError(`the type ${type} has a handler already`);
    const [options, handler] = typeof second === "function" ? [undefined, second] : [second, third];
    if (handler === undefined) throw new TypeError(`the type ${type} is given no handler`);
    this.#registrations.set(type, register(handler, options));
    return this;
  }

  /** @internal */
  registration(type: string): Registration | undefined {
    return this.#registrations.get(type);
  }

  /** Works until `drain` is called or, unless `signals` is false, SIGTERM or SIGINT comes. Resolves when all is done. */
  run(): Promise<void> {
    if (this.#run !== undefined) throw new TidewheelError("the worker was started already");
    this.#run = this.#work();
    return this.#run;
  }

  /**
   * Takes no more jobs, hands back those that have not started or are on their way, and waits for handlers to end. Those
   * that have not ended within `drainTimeout` are aborted, and their jobs handed back.
   */
  async drain(): Promise<void> {
    this.#stop.abort(new Draining("the worker stops"));
    await this.#run;
  }

  async #work(): Promise<void> {
    const stop = () => {
      this.#stop.abort(new Draining("the worker stops"));
    };
    const listening = this.#options.signals ?? true;
    if (listening) for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, stop);
    try {
      const loops = this.#queues.map((queue) => this.#takeFrom(queue).catch((error: unknown) => { this.#stop.abort(error); }));
      const taking = Promise.all(loops).then(() => { this.#takes.abort(); });
      await this.#stopped();
      await Promise.all([this.#finish(taking), this.#endTakes().catch(() => undefined)]);
      if (!(this.#stop.signal.reason instanceof Draining)) throw this.#stop.signal.reason;
    } finally {
      if (listening) for (const signal of ["SIGTERM", "SIGINT"] as const) process.off(signal, stop);
    }
  }

  async #stopped(): Promise<void> {
    const { signal } = this.#stop;
    if (signal.aborted) return;
    await new Promise<void>((resolve) => { signal.addEventListener("abort", () => { resolve(); }, { once: true }); });
  }

  /**
   * Gives up requests for jobs, after a while: the server may have given them jobs that are on their way here, and given
   * up at once, those would lie until their leases are over.
   */
  async #endTakes(): Promise<void> {
    for (let turn = 0; turn < LAST_TAKE_TURNS_COUNT; turn += 1) await pause(LAST_TAKE_TURN_MS, this.#takes.signal);
    this.#takes.abort(new Draining("the worker stops"));
  }

  /** Takes jobs from one queue until the worker stops. */
  async #takeFrom(queue: string): Promise<void> {
    let failures = 0;
    while (!this.#isStopping()) {
      try {
        await this.#roomForOne();
        if (this.#isStopping()) return;
        // What this queue may ask for: its share of the room, so that the queues together ask for little more.
        const share = Math.ceil((this.#concurrency - this.#held) / this.#queues.length);
        const jobs = await this.#take(queue, Math.max(1, Math.min(share, TAKE_COUNT_MAX)));
        failures = 0;
        // The lease runs from the grant, which a long poll may have waited for: not from when it was asked for.
        const takenAt = performance.now();
        if (this.#isStopping()) await Promise.all(jobs.map((job) => this.#handBack(job)));
        else for (const job of jobs) this.#accept(job, takenAt);
      } catch (error) {
        if (this.#isStopping()) return;
        this.#tell({ kind: "trouble", error });
        if (isForGood(error)) throw error;
        failures += 1;
        const asked = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
        await pause(Math.max(asked, backoffMs(failures)), this.#stop.signal).catch(() => undefined);
      }
    }
  }

  async #take(queue: string, max: number): Promise<TakenJob[]> {
    const answer = await this.#client.transport.send<{ jobs: TakenJob[] }>({
      method: "POST",
      path: `/queues/${encodeURIComponent(queue)}/take`,
      body: { worker: this.name, max, wait: seconds(this.#waitMs), lease: seconds(this.#leaseMs) },
      timeoutMs: this.#waitMs + REQUEST_TIMEOUT_MS,
      // The loop above repeats it: one answer that got lost must not hold the room for long.
      patienceMs: 0,
      signal: this.#takes.signal,
      restMs: LAST_TAKE_REST_MS,
    });
    return answer.jobs;
  }

  #accept(job: TakenJob, takenAt: number): void {
    const control = new AbortController();
    const { transport } = this.#client;
    const lease = new Lease({ transport, job, leaseMs: this.#leaseMs, takenAt, control, signal: this.#end.signal });
    this.#waiting.push({ job, lease, control });
    this.#startWaiting();
  }

  #startWaiting(): void {
    while (!this.#isStopping() && this.#running.size < this.#concurrency) {
      const held = this.#waiting.shift();
      if (held === undefined) break;
      if (held.control.signal.aborted) continue;
      this.#start(held);
    }
    this.#wake();
  }

  /** Lets the queues look again whether there is room, or an end. */
  #wake(): void {
    const room = this.#room;
    this.#room = [];
    for (const wake of room) wake();
  }

  #start(held: Held): void {
    const { job, lease, control } = held;
    this.#tell({ kind: "started", job });
    const progress = (value: unknown) => lease.progress(value);
    const run = attempt(this.#registrations.get(job.type), job, { control, progress, classify: this.#options.classify });
    const reported = run.outcome.then((outcome) => this.#report(held, outcome));
    // The place is free when the handler has returned and its outcome is known to the server.
    const ended = Promise.all([run.settled, reported]).then(() => {
      this.#running.delete(held);
      this.#tell({ kind: "settled", job });
      this.#startWaiting();
    });
    this.#running.set(held, { reported, ended });
  }

  async #report(held: Held, outcome: Outcome | undefined): Promise<void> {
    const { job, lease, control } = held;
    try {
      if (outcome === undefined) {
        this.#tell({ kind: "lost", job, reason: control.signal.reason });
        return;
      }
      const reported = await report(this.#reported(job), outcome);
      const back = control.signal.reason instanceof Draining && reported.status === "snoozed";
      this.#tell(back ? { kind: "handed_back", job } : { kind: "reported", job, outcome: reported });
    } catch (error) {
      if (error instanceof StaleTokenError && outcome !== undefined) this.#tell({ kind: "stale", job, outcome });
      else this.#tell({ kind: "trouble", error, job });
    } finally {
      lease.end();
    }
  }

  #reported(job: TakenJob): Reported {
    const patienceMs = Math.max(2 * this.#leaseMs, OUTCOME_PATIENCE_MS_MIN);
    return { transport: this.#client.transport, job, patienceMs, signal: this.#end.signal };
  }

  /**
   * Hands back what has not started, waits for what runs and for what the last takes bring, and hands back what does not
   * end.
   */
  async #finish(taking: Promise<void>): Promise<void> {
    const back = this.#waiting.splice(0).map(({ job, lease }) => {
      lease.end();
      return this.#handBack(job);
    });
    const running = [...this.#running.values()];
    const all = Promise.all([taking, ...back, ...running.map(({ ended }) => ended)]);
    const over = new AbortController();
    const timeout = async () => {
      await pause(this.#drainMs, over.signal);
      for (const held of this.#running.keys()) held.control.abort(new Draining("the worker stops"));
      const reported = Promise.all([taking, ...back, ...running.map(({ reported }) => reported)]);
      // Handlers get a moment to tidy up, and the server a longer one to hear that their jobs are handed back.
      await Promise.all([pause(DRAIN_GRACE_MS, over.signal), Promise.race([reported, pause(DRAIN_REPORT_MS_MAX, over.signal)])]);
    };
    await Promise.race([all, timeout().catch(() => undefined)]);
    over.abort();
    this.#takes.abort();
    for (const held of this.#running.keys()) held.lease.end();
    // Going on behind the back of whoever waits for `run`, tries to reach a server that is away would keep the process.
    const why = "the worker stopped before the server could be told; the job runs again when its lease is over";
    this.#end.abort(new TidewheelError(why));
  }

  async #handBack(job: TakenJob): Promise<void> {
    try {
      await handBack(this.#reported(job));
      this.#tell({ kind: "handed_back", job });
    } catch (error) {
      // Its lease runs out, and another worker gets it.
      this.#tell({ kind: "trouble", error, job });
    }
  }

  #isStopping(): boolean {
    return this.#stop.signal.aborted;
  }

  get #held(): number {
    return this.#running.size + this.#waiting.length;
  }

  async #roomForOne(): Promise<void> {
    while (!this.#isStopping() && this.#held >= this.#concurrency) {
      await new Promise<void>((resolve) => this.#room.push(resolve));
    }
  }

  #tell(event: WorkerEvent): void {
    const { onEvent } = this.#options;
    if (onEvent) {
      try {
        onEvent(event);
      } catch (error) {
        // Whoever listens must not hold up the job: it would neither start nor end, and keep its lease.
        console.error(`tidewheel worker ${this.name}: onEvent threw at ${event.kind}:`, error);
      }
    } else if (event.kind === "trouble") {
      console.error(`tidewheel worker ${this.name}${event.job ? `, job ${event.job.id}` : ""}:`, event.error);
    }
  }
}

/** Whether a request for jobs will not be granted later either: the queue's name is not valid, or the key is not for it. */
function isForGood(error: unknown): boolean {
  return error instanceof InvalidRequestError || (error instanceof ApiError && (error.status === 401 || error.status === 403));
}
