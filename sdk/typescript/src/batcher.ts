/** Submissions from many places, sent together. */
import { randomUUID } from "node:crypto";
import { performance } from "node:perf_hooks";
import { jobBytes, sendChunk } from "./batch.js";
import type { Client } from "./client.js";
import { ApiError, refusal, TidewheelError } from "./errors.js";
import type { BatchedJob, NewJob } from "./job.js";
import { BATCH_BYTES_MAX, BATCH_COUNT_MAX, BATCH_LINGER_MS, BATCH_PENDING_COUNT_MAX } from "./limits.js";

/** How a batcher gathers. */
export interface BatcherOptions {
  /** Jobs in one request; 1,000 by default, which is also the most. */
  maxCount?: number;
  /** How long a job waits for company, in milliseconds; 5 by default. */
  lingerMs?: number;
  /** Jobs held before `submit` waits for room; 10,000 by default. */
  maxPending?: number;
}

interface Waiting {
  job: NewJob;
  bytes: number;
  resolve: (answer: BatchedJob) => void;
  reject: (error: unknown) => void;
}

/**
 * Gathers submissions of the whole process into batches. Each `submit` resolves when its own job is stored, and fails
 * alone: a faulty job does not take its neighbours with it, and a batch of more jobs than may ever wait of the tenant is
 * sent in parts. While the server is slow, batches grow; past `maxPending`
 * jobs, `submit` waits before it takes more in.
 *
 * @example
 * ```ts
 * const batcher = new Batcher(client);
 * await Promise.all(orders.map((order) => batcher.submit({ type: "invoice", payload: order })));
 * await batcher.close();
 * ```
 */
export class Batcher {
  readonly #client: Client;
  readonly #maxCount: number;
  readonly #lingerMs: number;
  readonly #maxPending: number;
  readonly #waiting: Waiting[] = [];
  /** Everything that was submitted and has no answer yet, also what waits for room. */
  readonly #unanswered = new Set<Promise<BatchedJob>>();
  #room: (() => void)[] = [];
  #sending: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /**
   * @param client - Sends the batches.
   * @param options - How to gather.
   */
  constructor(client: Client, options: BatcherOptions = {}) {
    this.#client = client;
    this.#maxCount = Math.max(1, Math.min(options.maxCount ?? BATCH_COUNT_MAX, BATCH_COUNT_MAX));
    this.#lingerMs = options.lingerMs ?? BATCH_LINGER_MS;
    this.#maxPending = Math.max(1, options.maxPending ?? BATCH_PENDING_COUNT_MAX);
  }

  /** Submits a job with the next batch; resolves when it is stored. */
  async submit<P = unknown>(job: NewJob<P>): Promise<BatchedJob> {
    const answered = this.#gather(job);
    this.#unanswered.add(answered);
    try {
      return await answered;
    } finally {
      this.#unanswered.delete(answered);
    }
  }

  /** Sends what was submitted before, and resolves when all of it is answered. What comes meanwhile is not waited for. */
  async flush(): Promise<void> {
    // Under steady load there is always something on its way: to wait for that would be to wait for ever.
    const before = [...this.#unanswered];
    this.#start();
    await Promise.allSettled(before);
  }

  /** Sends what waits and takes nothing more in. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#wake();
    await this.flush();
  }

  /** The same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #gather(job: NewJob): Promise<BatchedJob> {
    while (!this.#closed && this.#waiting.length >= this.#maxPending) {
      await new Promise<void>((resolve) => this.#room.push(resolve));
    }
    if (this.#closed) throw new TidewheelError("the batcher is closed");
    const keyed = { ...job, idempotencyKey: job.idempotencyKey ?? randomUUID() };
    const answer = new Promise<BatchedJob>((resolve, reject) => {
      this.#waiting.push({ job: keyed, bytes: jobBytes(keyed), resolve, reject });
    });
    if (this.#waiting.length >= this.#maxCount) this.#start();
    else this.#timer ??= setTimeout(() => { this.#start(); }, this.#lingerMs);
    return answer;
  }

  #start(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // One batch at a time: while one is under way, the next one grows.
    if (this.#sending === undefined && this.#waiting.length > 0) this.#sending = this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#next();
      this.#wake();
      await this.#send(batch);
    }
    // In one step with the look above: a job that comes between the two would be left to a round that is over.
    this.#sending = undefined;
  }

  #next(): Waiting[] {
    let count = 0;
    let bytes = 0;
    for (const { bytes: size } of this.#waiting) {
      if (count >= this.#maxCount || (count > 0 && bytes + size > BATCH_BYTES_MAX)) break;
      count += 1;
      bytes += size;
    }
    return this.#waiting.splice(0, count);
  }

  #wake(): void {
    const room = this.#room;
    this.#room = [];
    for (const wake of room) wake();
  }

  /** Sends a batch, in halves if it is larger than the tenant's limit: it was gathered here, nobody asked for its size. */
  async #send(batch: Waiting[], deadline = performance.now() + this.#client.transport.patienceMs): Promise<void> {
    try {
      const jobs = batch.map(({ job }) => job);
      // All parts of a batch share its patience. Each is tried once, however late it is.
      const patienceMs = Math.max(0, deadline - performance.now());
      const answers = await sendChunk(this.#client.transport, jobs, { partial: true, offset: 0, patienceMs });
      batch.forEach((waiting, place) => {
        const answer = answers[place];
        if (answer === undefined) waiting.reject(new TidewheelError("the server did not answer for the job"));
        else if ("error" in answer) waiting.reject(refusal(answer.error));
        else waiting.resolve(answer);
      });
    } catch (error) {
      if (batch.length > 1 && error instanceof ApiError && error.code === "batch_over_limit") {
        const middle = Math.ceil(batch.length / 2);
        await this.#send(batch.slice(0, middle), deadline);
        await this.#send(batch.slice(middle), deadline);
        return;
      }
      for (const waiting of batch) waiting.reject(error);
    }
  }
}
