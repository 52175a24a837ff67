/**
 * Client and worker for Tidewheel.
 *
 * - {@link Client} and {@link Batcher} submit jobs, ask about them and change them.
 * - {@link Worker} runs handlers for jobs; {@link Retry}, {@link Fail}, {@link Snooze} and {@link Cancelled} say how an
 *   attempt ended.
 * - `tidewheel/inbox` skips duplicate deliveries, `tidewheel/testing` helps in tests.
 *
 * @packageDocumentation
 */
export type { Classify, Outcome } from "./attempt.js";
export { Batcher, type BatcherOptions } from "./batcher.js";
export type { CallOptions, ChangeOptions } from "./call_options.js";
export { Client } from "./client.js";
export type { Context } from "./context.js";
export type { DeadLetterFilter, DeadLetters, Replay } from "./dead_letters.js";
export { durationMs, type Duration } from "./duration.js";
export {
  ApiError,
  BusyError,
  ConflictError,
  ConnectionError,
  InvalidRequestError,
  NotFoundError,
  StaleTokenError,
  StaleVersionError,
  TidewheelError,
  type Fault,
  type Problem,
} from "./errors.js";
export type { Handler, HandlerOptions, Parse, StandardResult, StandardSchema } from "./handler.js";
export type * from "./job.js";
export { Cancelled, Draining, Fail, LeaseLost, Retry, Snooze, TimedOut } from "./outcomes.js";
export type * from "./schedule.js";
export type { Schedules, VersionOptions } from "./schedules.js";
export type { TlsOptions } from "./tls.js";
export type { ConnectOptions } from "./transport.js";
export { Worker, type WorkerEvent, type WorkerOptions } from "./worker.js";
