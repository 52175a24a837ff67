/** Keeping a taken job: heartbeats at a third of the lease, and noticing when it is lost. */
import { performance } from "node:perf_hooks";
import { ConflictError, InvalidRequestError, NotFoundError, StaleTokenError, TidewheelError } from "./errors.js";
import type { Job, TakenJob } from "./job.js";
import { seconds } from "./duration.js";
import { HEARTBEATS_PER_LEASE, LEASE_TRUST } from "./limits.js";
import { Cancelled, LeaseLost } from "./outcomes.js";
import { progressOf } from "./progress.js";
import type { Transport } from "./transport.js";

/** @internal */
export interface LeaseOptions {
  transport: Transport;
  job: TakenJob;
  leaseMs: number;
  /** When the job was taken, by `performance.now()`. */
  takenAt: number;
  /** Aborted when the lease is lost. */
  control: AbortController;
  /** Gives up what is being asked of the server. */
  signal: AbortSignal;
}

/** What a handler said of its progress. */
interface Said {
  readonly value: unknown;
  /** Why it was refused. */
  fault?: Error;
}

/**
 * The lease of one attempt. It is trusted for less time than the server trusts it: a worker that hears nothing stops
 * before another one starts.
 *
 * @internal
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #path: string;
  #timer: NodeJS.Timeout | undefined;
  #end: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  /** When the last heartbeat was sent, or the job taken. */
  #beatAt: number;
  /** What the next heartbeat carries. */
  #progress: Said | undefined;
  #over = false;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#path = `/jobs/${options.job.id}/heartbeat`;
    this.#beatAt = options.takenAt;
    this.#heldFrom(options.takenAt);
    this.#schedule();
  }

  /** Sends progress with a heartbeat of its own. Of several at a time the last one counts. */
  async progress(value: unknown): Promise<void> {
    const { signal } = this.#options.control;
    signal.throwIfAborted();
    const said: Said = { value: progressOf(value) };
    this.#progress = said;
    // One that is under way carries older news.
    await this.#beating;
    await this.#carrier();
    if (said.fault !== undefined) throw said.fault;
    signal.throwIfAborted();
  }

  /** The heartbeat with the newest progress: of several calls that waited, the first one sends what the last one said. */
  #carrier(): Promise<void> | undefined {
    return this.#progress === undefined ? this.#beating : this.#beat();
  }

  /** No more heartbeats. */
  end(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#end);
  }

  #heldFrom(instant: number): void {
    if (this.#over) return;
    clearTimeout(this.#end);
    this.#end = setTimeout(() => {
      this.#abort(new LeaseLost("the server was not heard from for a lease"));
    }, Math.max(0, instant + this.#options.leaseMs * LEASE_TRUST - performance.now()));
  }

  #schedule(): void {
    if (this.#over) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#beat(), Math.max(0, this.#dueInMs()));
  }

  /** How long until the next heartbeat. */
  #dueInMs(): number {
    // From when the last one was sent: counted from its end, one that is not answered would take the next one's time too.
    return this.#beatAt + this.#options.leaseMs / HEARTBEATS_PER_LEASE - performance.now();
  }

  #beat(): Promise<void> {
    if (this.#beating === undefined) {
      const said = this.#progress;
      this.#progress = undefined;
      this.#beating = this.#send(said).finally(() => {
        this.#beating = undefined;
        this.#schedule();
      });
    }
    return this.#beating;
  }

  async #send(said?: Said): Promise<void> {
    const { transport, job, leaseMs, signal } = this.#options;
    const lastAt = this.#beatAt;
    const sentAt = performance.now();
    this.#beatAt = sentAt;
    try {
      const answer = await transport.send<Job>({
        method: "POST",
        path: this.#path,
        body: { token: job.token, extend: seconds(leaseMs), ...(said ? { progress: said.value } : {}) },
        timeoutMs: leaseMs / HEARTBEATS_PER_LEASE,
        patienceMs: leaseMs / HEARTBEATS_PER_LEASE,
        signal,
      });
      this.#heldFrom(sentAt);
      if (answer.state !== "running" && answer.state !== "ready") this.#lose(answer);
    } catch (error) {
      // It ended meanwhile, and its token with it: nobody is to be told of that.
      if (this.#over) return;
      if (error instanceof ConflictError || error instanceof NotFoundError) {
        await this.#refused(error);
      } else if (said !== undefined && isForProgress(error)) {
        // Kept, it would spoil every heartbeat after it. And this was none: the next one is due when it was before.
        said.fault = error;
        this.#beatAt = lastAt;
        // At once if need be: more such progress may be waiting, and must not come in between.
        if (this.#dueInMs() <= 0) await this.#send();
      } else {
        // The next heartbeat carries it; the end of the lease has its own timer.
        this.#progress ??= said;
      }
    }
  }

  /** The attempt is over; the job says whether somebody cancelled it. */
  async #refused(error: ConflictError | NotFoundError): Promise<void> {
    if (!(error instanceof StaleTokenError) && !(error instanceof NotFoundError)) {
      this.#abort(new LeaseLost(error.detail));
      return;
    }
    const { transport, job, leaseMs, signal } = this.#options;
    try {
      const timeoutMs = leaseMs / HEARTBEATS_PER_LEASE;
      const path = `/jobs/${job.id}`;
      this.#lose(await transport.send<Job>({ method: "GET", path, timeoutMs, patienceMs: timeoutMs, signal }));
    } catch {
      this.#abort(new LeaseLost(error.detail));
    }
  }

  #lose(job: Job): void {
    const mine = job.attempt === this.#options.job.attempt;
    this.#abort(job.state === "cancelled" && mine ? new Cancelled() : new LeaseLost("the attempt is over"));
  }

  #abort(reason: unknown): void {
    if (this.#over) return;
    this.end();
    if (!this.#options.control.signal.aborted) this.#options.control.abort(reason);
  }
}

/** Whether a heartbeat failed for the progress in it: the server refused it (too large), or it could not be written. */
function isForProgress(error: unknown): error is Error {
  return error instanceof InvalidRequestError || (error instanceof Error && !(error instanceof TidewheelError));
}
