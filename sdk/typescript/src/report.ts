/** Telling the server how an attempt ended, in a form that it takes. */
import type { Outcome } from "./attempt.js";
import { ApiError, TidewheelError } from "./errors.js";
import type { TakenJob } from "./job.js";
import { RESULT_BYTES_MAX } from "./limits.js";
import { errorText, excerpt } from "./texts.js";
import type { Transport } from "./transport.js";

/** Refusals that are not of what was said: of who says it, of an attempt that is over, of a server that is busy. */
const OTHER_REFUSALS = new Set([401, 404, 408, 409, 429]);

/** @internal */
export interface Reported {
  transport: Transport;
  job: TakenJob;
  /** How long to go on trying. */
  patienceMs: number;
  /** Gives the telling up. */
  signal: AbortSignal;
}

/**
 * Reports an outcome. One that the server would never take ends the attempt all the same, as a failure that says why:
 * left unsaid, the work would be done again, and come to the same end each time.
 *
 * @returns What was reported.
 * @internal
 */
export async function report(to: Reported, outcome: Outcome): Promise<Outcome> {
  const told = reportable(outcome);
  if (told !== outcome) return send(to, told);
  try {
    return await send(to, outcome);
  } catch (error) {
    if (!isForWhatWasSaid(error)) throw error;
    return send(to, unreportable(errorText(error, false)));
  }
}

/**
 * The outcome itself, or the failure that is reported in its place, where it need not be sent to know that it would not be
 * taken.
 *
 * @internal
 */
export function reportable(outcome: Outcome): Outcome {
  const fault = faultOf(outcome);
  return fault === undefined ? outcome : unreportable(fault);
}

/**
 * Gives a job back that has not started: it is ready at once, for others.
 *
 * @internal
 */
export async function handBack(to: Reported): Promise<void> {
  // Not by `report`: a job that nobody has tried must not fail.
  await send(to, { status: "snoozed", retryAfter: 0 });
}

async function send({ transport, job, patienceMs, signal }: Reported, outcome: Outcome): Promise<Outcome> {
  const path = `/jobs/${job.id}/outcome`;
  const body = { token: job.token, ...outcome };
  // Told twice it counts once, by its token. Never told, the work is done again.
  await transport.send({ method: "POST", path, body, patienceMs, signal, insistent: true });
  return outcome;
}

/** What is wrong with an outcome that need not be sent to know it. */
function faultOf(outcome: Outcome): string | undefined {
  if (outcome.status !== "succeeded") return undefined;
  try {
    const text = JSON.stringify(outcome.result) as string | undefined;
    const bytes = text === undefined ? 0 : Buffer.byteLength(text);
    return bytes > RESULT_BYTES_MAX ? `the result has ${bytes} bytes; at most ${RESULT_BYTES_MAX} are kept` : undefined;
  } catch (error) {
    // No JSON, or nested too deep to become one; or its own `toJSON` threw, which may be anything.
    return errorText(error, false);
  }
}

function isForWhatWasSaid(error: unknown): boolean {
  // What is not an error of this package comes from a result that could not be made into JSON.
  if (!(error instanceof ApiError)) return !(error instanceof TidewheelError);
  return error.status >= 400 && error.status < 500 && !OTHER_REFUSALS.has(error.status);
}

function unreportable(why: string): Outcome {
  return { status: "failed", error: excerpt(`the outcome cannot be reported: ${why}`), retryable: false };
}
