/** One run of a handler: from a job to the outcome that is reported for it. */
import type { Context } from "./context.js";
import { durationMs, type Duration } from "./duration.js";
import { parsed, type Registration } from "./handler.js";
import type { TakenJob } from "./job.js";
import { JOB_TIMEOUT_MS_DEFAULT, TIMER_MS_MAX } from "./limits.js";
import { Cancelled, Draining, Fail, LeaseLost, Retry, Snooze, TimedOut } from "./outcomes.js";
import { errorText } from "./texts.js";

/** How an attempt ended, as it is reported. */
export type Outcome =
  | { status: "succeeded"; result: unknown }
  | { status: "failed"; error: string; retryable: boolean; retryAfter?: Duration }
  | { status: "snoozed"; retryAfter: Duration }
  | { status: "cancelled"; error: string };

/** Says of an error that is none of this package's whether trying again may help. */
export type Classify = (error: unknown) => "retry" | "fail";

/** @internal */
export interface AttemptOptions {
  /** The controller behind `context.signal`. */
  control: AbortController;
  progress: (progress: unknown) => Promise<void>;
  classify?: Classify | undefined;
}

/** @internal */
export interface Run {
  /** What to report; undefined when nobody would take a report any more. It comes when the time is over, too. */
  outcome: Promise<Outcome | undefined>;
  /** When the handler has returned, which may be later. */
  settled: Promise<void>;
}

/**
 * Runs a handler once. The outcome does not wait for a handler that does not react to the signal.
 *
 * @internal
 */
export function attempt(registration: Registration | undefined, job: TakenJob, options: AttemptOptions): Run {
  const { control, classify } = options;
  const limitMs = timeoutMs(job);
  const timer = setTimeout(() => {
    control.abort(new TimedOut(`timed out after ${job.timeout}`));
  }, Math.min(limitMs, TIMER_MS_MAX));
  const progress = (value: unknown) => {
    const said = options.progress(value);
    // A handler need not wait for it. Then a rejection that nobody hears must not end the process, and all jobs with it.
    said.catch(() => undefined);
    return said;
  };
  const context = { job, signal: control.signal, progress };
  const run = invoke(registration, context);
  const aborted = new Promise<Outcome | undefined>((resolve) => {
    const give = () => {
      // A handler that does not return must not keep it, and with it the process.
      clearTimeout(timer);
      resolve(afterAbort(control.signal.reason));
    };
    if (control.signal.aborted) give();
    else control.signal.addEventListener("abort", give, { once: true });
  });
  const finished = run.then(
    (result): Outcome => ({ status: "succeeded", result: result ?? null }),
    (error: unknown) => (control.signal.aborted ? afterAbort(control.signal.reason) : afterError(error, classify)),
  );
  const settled = finished.then(() => {
    clearTimeout(timer);
  });
  return { outcome: Promise.race([finished, aborted]), settled };
}

function timeoutMs(job: TakenJob): number {
  try {
    return durationMs(job.timeout);
  } catch {
    return JOB_TIMEOUT_MS_DEFAULT;
  }
}

async function invoke(registration: Registration | undefined, context: Context): Promise<unknown> {
  if (registration === undefined) throw new Retry(`this worker has no handler for the type ${context.job.type}`);
  const payload = await parsed(registration.parse, context.job.payload);
  const known: Context = payload === context.job.payload ? context : { ...context, job: { ...context.job, payload } };
  return registration.handler(payload as never, known as never);
}

/** What is reported when the signal was aborted, whatever the handler makes of it. */
function afterAbort(reason: unknown): Outcome | undefined {
  if (reason instanceof LeaseLost || reason instanceof Cancelled) return undefined;
  if (reason instanceof Draining) return { status: "snoozed", retryAfter: 0 };
  return { status: "failed", error: describe(reason), retryable: true };
}

function afterError(error: unknown, classify: Classify | undefined): Outcome {
  if (error instanceof Snooze) return { status: "snoozed", retryAfter: error.delay };
  if (error instanceof Cancelled) return { status: "cancelled", error: describe(error) };
  if (error instanceof Fail) return { status: "failed", error: describe(error), retryable: false };
  if (error instanceof Retry) {
    const after = error.after === undefined ? {} : { retryAfter: error.after };
    return { status: "failed", error: describe(error), retryable: true, ...after };
  }
  return { status: "failed", error: describe(error), retryable: isRetryable(error, classify) };
}

function isRetryable(error: unknown, classify: Classify | undefined): boolean {
  try {
    return classify?.(error) !== "fail";
  } catch {
    // It was not ready for this one: the job's policy decides.
    return true;
  }
}

/** The error as the job's record shows it: our own by their message, others with their name. */
function describe(error: unknown): string {
  const own = [Retry, Fail, Cancelled, TimedOut].some((kind) => error instanceof kind);
  return errorText(error, !own);
}
