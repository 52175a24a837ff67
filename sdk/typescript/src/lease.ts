/** Keeping a taken job: heartbeats at a third of the lease, and noticing when it is lost. */
import { performance } from "node:perf_hooks";
import { ConflictError, InvalidRequestError, NotFoundError, StaleTokenError } from "./errors.js";
import type { Job, TakenJob } from "./job.js";
import { seconds } from "./duration.js";
import { HEARTBEATS_PER_LEASE, LEASE_TRUST } from "./limits.js";
import { Cancelled, LeaseLost } from "./outcomes.js";
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
  #progress: { value: unknown } | undefined;
  /** Why the last progress was refused. */
  #fault: Error | undefined;
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
    this.#progress = { value };
    // One that is under way carries older news: wait for it, then send, unless another call has sent this one too.
    await this.#beating;
    await this.#sayProgress();
    signal.throwIfAborted();
  }

  async #sayProgress(): Promise<void> {
    if (this.#progress === undefined) return;
    await this.#beat();
    const fault = this.#fault;
    this.#fault = undefined;
    if (fault !== undefined) throw fault;
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
    // From when the last one was sent: counted from its end, one that is not answered would take the next one's time too.
    const dueAt = this.#beatAt + this.#options.leaseMs / HEARTBEATS_PER_LEASE;
    this.#timer = setTimeout(() => void this.#beat(), Math.max(0, dueAt - performance.now()));
  }

  #beat(): Promise<void> {
    this.#beating ??= this.#send().finally(() => {
      this.#beating = undefined;
      this.#schedule();
    });
    return this.#beating;
  }

  async #send(): Promise<void> {
    const { transport, job, leaseMs } = this.#options;
    const sentAt = performance.now();
    this.#beatAt = sentAt;
    const progress = this.#progress;
    this.#progress = undefined;
    try {
      const answer = await transport.send<Job>({
        method: "POST",
        path: this.#path,
        body: { token: job.token, extend: seconds(leaseMs), ...(progress ? { progress: progress.value } : {}) },
        timeoutMs: leaseMs / HEARTBEATS_PER_LEASE,
        patienceMs: leaseMs / HEARTBEATS_PER_LEASE,
      });
      this.#heldFrom(sentAt);
      if (answer.state !== "running" && answer.state !== "ready") this.#lose(answer);
    } catch (error) {
      if (error instanceof ConflictError || error instanceof NotFoundError) {
        await this.#refused(error);
      } else if (progress !== undefined && (error instanceof InvalidRequestError || error instanceof TypeError)) {
        // Too large, or no JSON: kept, it would spoil every heartbeat after it.
        this.#fault = error;
      } else {
        // The next heartbeat carries it; the end of the lease has its own timer.
        this.#progress ??= progress;
      }
    }
  }

  /** The attempt is over; the job says whether somebody cancelled it. */
  async #refused(error: ConflictError | NotFoundError): Promise<void> {
    if (!(error instanceof StaleTokenError) && !(error instanceof NotFoundError)) {
      this.#abort(new LeaseLost(error.detail));
      return;
    }
    const { transport, job, leaseMs } = this.#options;
    try {
      const timeoutMs = leaseMs / HEARTBEATS_PER_LEASE;
      const path = `/jobs/${job.id}`;
      this.#lose(await transport.send<Job>({ method: "GET", path, timeoutMs, patienceMs: timeoutMs }));
    } catch {
      this.#abort(new LeaseLost(error.detail));
    }
  }

  #lose(job: Job): void {
    const mine = job.attempt === this.#options.job.attempt;
    this.#abort(job.state === "cancelled" && mine ? new Cancelled() : new LeaseLost("the attempt is over"));
  }

  #abort(reason: unknown): void {
    this.end();
    if (!this.#options.control.signal.aborted) this.#options.control.abort(reason);
  }
}
