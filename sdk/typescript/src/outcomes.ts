/**
 * What a handler throws to say how its attempt ended. Anything else that it throws is a failure that is retried as
 * the job's policy says; a value that it returns is the job's result.
 */
import type { Duration } from "./duration.js";
import { TidewheelError } from "./errors.js";

/** The attempt failed; try again, not before `after` if that is given. Counts as an attempt. */
export class Retry extends TidewheelError {
  override name = "Retry";
  /** The least wait; without it the job's retry policy decides. */
  readonly after: Duration | undefined;

  /**
   * @param message - Why, for the job's record.
   * @param options - `after` is the least wait; `cause` is what went wrong.
   */
  constructor(message: string, options: { after?: Duration; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.after = options.after;
  }
}

/** The attempt failed and trying again is of no use: the job becomes a dead letter. */
export class Fail extends TidewheelError {
  override name = "Fail";

  /**
   * @param message - Why, for the job's record.
   * @param options - `cause` is what went wrong.
   */
  constructor(message: string, options: { cause?: unknown } = {}) {
    super(message, { cause: options.cause });
  }
}

/** Not now: run the job again after `delay`. Does not count against the job's attempts. */
export class Snooze extends TidewheelError {
  override name = "Snooze";
  /** How much later. */
  readonly delay: Duration;

  /** @param delay - How much later. */
  constructor(delay: Duration) {
    super("snoozed");
    this.delay = delay;
  }
}

/**
 * The job is called off. A handler throws it to end its job as `cancelled`; it is also the reason of
 * `context.signal` when somebody cancelled the job while it ran.
 */
export class Cancelled extends TidewheelError {
  override name = "Cancelled";

  /** @param message - Why, for the job's record. */
  constructor(message = "the job was cancelled") {
    super(message);
  }
}

/** The reason of `context.signal` when the attempt is over for the server: its lease ran out or it was given to another. */
export class LeaseLost extends TidewheelError {
  override name = "LeaseLost";
}

/** The reason of `context.signal` when the handler took longer than the job's `timeout`. */
export class TimedOut extends TidewheelError {
  override name = "TimedOut";
}

/** The reason of `context.signal` when the worker stops and its time to do so is over. */
export class Draining extends TidewheelError {
  override name = "Draining";
}
