/** What a handler knows of its job, and how it talks back. */
import type { TakenJob } from "./job.js";

/** Handed to a handler with the payload. */
export interface Context<P = unknown> {
  /** The job's facts: id, type, attempt, token, idempotency key, labels, times. */
  readonly job: TakenJob<P>;
  /**
   * Aborted when the handler should stop: the job was cancelled (`Cancelled`), it took too long (`TimedOut`), the
   * attempt was given to another worker (`LeaseLost`), or the worker stops (`Draining`). Hand it on to `fetch` and the like.
   */
  readonly signal: AbortSignal;
  /**
   * Says how far the work has come; anybody who gets the job sees it, the next attempt too.
   *
   * @param progress - Any JSON, at most 8 KiB.
   * @throws The signal's reason, when the attempt turns out to be over; `TypeError` when it is no JSON;
   * `InvalidRequestError` when it is too large. Not waited for, it ends nothing.
   */
  readonly progress: (progress: unknown) => Promise<void>;
}
