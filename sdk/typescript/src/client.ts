/** Submitting, asking and changing jobs. */
import { randomUUID } from "node:crypto";
import { chunks, sendChunk } from "./batch.js";
import { keyOf, type CallOptions, type ChangeOptions } from "./call_options.js";
import { DeadLetters } from "./dead_letters.js";
import type { Duration } from "./duration.js";
import type {
  Attempt,
  BatchedJob,
  BulkAnswer,
  Explanation,
  Job,
  JobCount,
  JobFilter,
  NewJob,
  Page,
  PageOptions,
  Priority,
  RefusedJob,
  SubmittedJob,
  Time,
} from "./job.js";
import { filterQuery, pageQuery } from "./query.js";
import { Schedules } from "./schedules.js";
import { Transport, type ConnectOptions } from "./transport.js";

/**
 * Talks to a server over its HTTP API. One client serves a whole process: it keeps its connections.
 *
 * Calls are repeated when the server is busy (429, 503: no sooner than it asks for), cannot be reached, or when an
 * answer got lost, under the key of the first try and with growing waits, until `patienceMs` is over.
 *
 * @example
 * ```ts
 * const client = new Client({ url: "http://127.0.0.1:7400" });
 * const { id } = await client.submit({ type: "send-email", payload: { to: "a@example.com" }, delay: "5m" });
 * ```
 */
export class Client {
  /** Schedules: jobs that come again and again. */
  readonly schedules: Schedules;
  /** Jobs whose attempts are used up. */
  readonly deadLetters: DeadLetters;
  /** @internal */
  readonly transport: Transport;

  /** @param options - How to reach the server; the environment fills in what is not given. */
  constructor(options: ConnectOptions = {}) {
    this.transport = new Transport(options);
    this.schedules = new Schedules(this.transport);
    this.deadLetters = new DeadLetters(this.transport);
  }

  /** The server's address. */
  get url(): string {
    return this.transport.url;
  }

  /**
   * Submits a job.
   *
   * @param job - What to run, and when.
   * @returns The job's id; with a key that is known, that of the first job and `duplicate: true`.
   * @throws ConflictError when the key was used for something else.
   */
  async submit<P = unknown>(job: NewJob<P>, options: CallOptions = {}): Promise<SubmittedJob> {
    const body = { ...job, idempotencyKey: job.idempotencyKey ?? randomUUID() };
    return this.transport.send({ method: "POST", path: "/jobs", body, signal: options.signal, paced: true });
  }

  /**
   * Submits any number of jobs, in batches of at most 1,000. Each batch is taken in whole or not at all, and batches
   * before a refused one stay taken in; `partial` takes in what can be, and answers for each.
   *
   * @param jobs - The jobs; an async iterable is read no faster than the server takes them.
   * @returns The answers in the order of the jobs.
   */
  async submitMany(
    jobs: Iterable<NewJob> | AsyncIterable<NewJob>,
    options: ChangeOptions & { partial: true },
  ): Promise<(BatchedJob | RefusedJob)[]>;
  async submitMany(
    jobs: Iterable<NewJob> | AsyncIterable<NewJob>,
    options?: ChangeOptions & { partial?: false },
  ): Promise<BatchedJob[]>;
  async submitMany(
    jobs: Iterable<NewJob> | AsyncIterable<NewJob>,
    options: ChangeOptions & { partial?: boolean } = {},
  ): Promise<(BatchedJob | RefusedJob)[]> {
    const key = options.idempotencyKey ?? randomUUID();
    const answers: (BatchedJob | RefusedJob)[] = [];
    for await (const chunk of chunks(jobs)) {
      const keyed = chunk.map((job, place) => ({
        ...job,
        idempotencyKey: job.idempotencyKey ?? `${key}:${answers.length + place}`,
      }));
      const { partial, signal } = options;
      answers.push(...(await sendChunk(this.transport, keyed, { partial, signal, offset: answers.length })));
    }
    return answers;
  }

  /** The job as it is now. */
  async get<P = unknown, R = unknown>(id: string, options: CallOptions = {}): Promise<Job<P, R>> {
    return this.transport.send({ method: "GET", path: job(id), signal: options.signal });
  }

  /** One page of jobs, latest first. */
  async list(filter: JobFilter & PageOptions & { payload?: boolean } = {}, options: CallOptions = {}): Promise<Page<Job>> {
    const payload = filter.payload === undefined ? undefined : String(filter.payload);
    const query = { ...filterQuery(filter), ...pageQuery(filter), payload };
    return this.transport.send({ method: "GET", path: "/jobs", query, signal: options.signal });
  }

  /** All jobs that match, latest first, page by page. */
  async *listAll(filter: JobFilter & { payload?: boolean } = {}, options: CallOptions = {}): AsyncGenerator<Job, void> {
    let cursor: string | null = null;
    do {
      const page: Page<Job> = await this.list({ ...filter, limit: 1_000, ...(cursor ? { cursor } : {}) }, options);
      yield* page.items;
      cursor = page.nextCursor;
    } while (cursor !== null);
  }

  /** How many jobs match; by state where only states are asked for. */
  async count(filter: JobFilter = {}, options: CallOptions = {}): Promise<JobCount> {
    return this.transport.send({ method: "GET", path: "/jobs/count", query: filterQuery(filter), signal: options.signal });
  }

  /** Calls a job off. A running one is told at its worker's next heartbeat. Once answered, no attempt starts. */
  async cancel(id: string, options: ChangeOptions = {}): Promise<Job> {
    return this.#change(`${job(id)}/cancel`, undefined, options);
  }

  /** Cancels many jobs, by `ids` or `filter`; with `nextCursor` in the answer there are more. */
  async cancelMany(which: { ids?: string[]; filter?: JobFilter; cursor?: string }, options: ChangeOptions = {}): Promise<BulkAnswer> {
    return this.#change("/jobs/cancel", which, options);
  }

  /** Starts a waiting job now. */
  async run(id: string, options: ChangeOptions = {}): Promise<Job> {
    return this.#change(`${job(id)}/run`, undefined, options);
  }

  /** Runs a finished job again. Its idempotency key stays the same. */
  async retry(id: string, when: { runAt?: Time; delay?: Duration } = {}, options: ChangeOptions = {}): Promise<Job> {
    return this.#change(`${job(id)}/retry`, when, options);
  }

  /**
   * Runs many finished jobs again, by `ids` or `filter` (dead ones, unless it names states), perhaps at a `rate` (jobs per
   * second); with `nextCursor` in the answer there are more.
   */
  async retryMany(
    which: { ids?: string[]; filter?: JobFilter; rate?: number; runAt?: Time; delay?: Duration; cursor?: string },
    options: ChangeOptions = {},
  ): Promise<BulkAnswer> {
    return this.#change("/jobs/retry", which, options);
  }

  /** Gives a job that is not running another time or priority. */
  async update(
    id: string,
    change: { runAt?: Time; delay?: Duration; priority?: Priority },
    options: ChangeOptions = {},
  ): Promise<Job> {
    return this.transport.send({ method: "PATCH", path: job(id), body: change, headers: keyOf(options), signal: options.signal });
  }

  /** Why a job has not run yet: what it waits for, and when it should start. */
  async explain(id: string, options: CallOptions = {}): Promise<Explanation> {
    return this.transport.send({ method: "GET", path: `${job(id)}/explain`, signal: options.signal });
  }

  /** A job's attempts, oldest first. */
  async attempts(id: string, options: CallOptions = {}): Promise<Attempt[]> {
    const page = await this.transport.send<Page<Attempt>>({ method: "GET", path: `${job(id)}/attempts`, signal: options.signal });
    return page.items;
  }

  async #change<T>(path: string, body: unknown, options: ChangeOptions): Promise<T> {
    return this.transport.send({ method: "POST", path, body, headers: keyOf(options), signal: options.signal });
  }
}

function job(id: string): string {
  return `/jobs/${encodeURIComponent(id)}`;
}
