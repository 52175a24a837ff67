/** What a call can end with instead of an answer. */

/** One fault of a refused request. */
export interface Fault {
  /** Where in the body, as a JSON pointer with the API's names: `/run_at`. */
  readonly pointer: string;
  /** Stable, such as `invalid_time`. */
  readonly code: string;
  /** What is wrong, for people. */
  readonly detail: string;
}

/** A problem document (RFC 9457), the form of every refusal. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** What is wrong, for people. */
  readonly detail: string;
  /** Stable, such as `invalid_cron`; `docs/errors.md` lists them. */
  readonly code: string;
  readonly errors?: readonly Fault[];
}

/** The root of all errors this package throws. */
export class TidewheelError extends Error {
  override name = "TidewheelError";
}

/** The server refused the call. */
export class ApiError extends TidewheelError {
  override name = "ApiError";
  /** The HTTP status. */
  readonly status: number;
  /** Stable, such as `job_not_found`. */
  readonly code: string;
  /** What is wrong, for people. */
  readonly detail: string;
  /** Each fault, where there are several. */
  readonly errors: readonly Fault[];
  /** How long the server asks to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  /** @internal */
  constructor(problem: Problem, retryAfterMs?: number) {
    super(`${problem.code}: ${problem.detail}`);
    this.status = problem.status;
    this.code = problem.code;
    this.detail = problem.detail;
    this.errors = problem.errors ?? [];
    this.retryAfterMs = retryAfterMs;
  }
}

/** 404: the job, schedule or address does not exist. */
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}

/** 409: the state of the job, the key or the name does not allow it. */
export class ConflictError extends ApiError {
  override name = "ConflictError";
}

/** 409 `stale_token`: the attempt is over, or was given to another worker. */
export class StaleTokenError extends ConflictError {
  override name = "StaleTokenError";
}

/** 412: the schedule was changed since it was read. */
export class StaleVersionError extends ApiError {
  override name = "StaleVersionError";
}

/** 400, 413, 415 or 422: the request itself is wrong; `errors` says where. */
export class InvalidRequestError extends ApiError {
  override name = "InvalidRequestError";
}

/** 429 or 503, still so when the patience ran out. */
export class BusyError extends ApiError {
  override name = "BusyError";
}

/** No answer came: the server is not there, or the connection broke. `cause` says more. */
export class ConnectionError extends TidewheelError {
  override name = "ConnectionError";
}

/**
 * Makes the error that fits the problem.
 *
 * @internal
 */
export function refusal(problem: Problem, retryAfterMs?: number): ApiError {
  switch (problem.status) {
    case 404:
      return new NotFoundError(problem, retryAfterMs);
    case 409:
      return problem.code === "stale_token"
        ? new StaleTokenError(problem, retryAfterMs)
        : new ConflictError(problem, retryAfterMs);
    case 412:
      return new StaleVersionError(problem, retryAfterMs);
    case 400:
    case 413:
    case 415:
    case 422:
      return new InvalidRequestError(problem, retryAfterMs);
    case 429:
    case 503:
      return new BusyError(problem, retryAfterMs);
    default:
      return new ApiError(problem, retryAfterMs);
  }
}
