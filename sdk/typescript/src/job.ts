/** Jobs as they are sent and shown. Times in answers are RFC 3339 texts; where one is asked for, a `Date` will do too. */
import type { Duration } from "./duration.js";
import type { Problem } from "./errors.js";

/** An instant: RFC 3339, or a `Date`. */
export type Time = string | Date;

/** What is served first, among jobs that are due. */
export type Priority = "critical" | "high" | "normal" | "low";

/** Where a job is in its life. */
export type JobState =
  | "scheduled"
  | "ready"
  | "running"
  | "retrying"
  | "succeeded"
  | "dead"
  | "cancelled"
  | "skipped"
  | "expired";

/** When and how often failed attempts are repeated. */
export interface RetryPolicy {
  /** 5 by default, at most 100. */
  maxAttempts?: number;
  /** `exponential_jitter` by default. */
  policy?: "fixed" | "exponential" | "exponential_jitter";
  /** The first wait; 1 s by default. */
  base?: Duration;
  /** 2 by default. */
  multiplier?: number;
  /** The longest wait; 1 h by default. */
  max?: Duration;
}

/** Where a job is pushed to. */
export interface Target {
  url: string;
  /** `POST` by default. */
  method?: string;
  headers?: Record<string, string>;
  timeout?: Duration;
}

/** A job to submit. */
export interface NewJob<P = unknown> {
  /** What the worker or target is to do. */
  type: string;
  /** Any JSON up to 64 KiB. */
  payload?: P;
  /** When to run. Not with `delay`; without either, now. */
  runAt?: Time;
  /** How much later to run. */
  delay?: Duration;
  /** Where workers take it from; `default` by default. Not with a target. */
  queue?: string;
  /** Where to push it to. */
  target?: Target;
  /** Short for `target` with only a `url`. */
  targetUrl?: string;
  priority?: Priority;
  retry?: RetryPolicy;
  /** Short for `retry` with only `maxAttempts`. */
  maxAttempts?: number;
  /** How long one attempt may take; 30 s by default. */
  timeout?: Duration;
  /** When it is no longer worth starting. */
  expiresAt?: Time;
  /** The same key within 24 hours makes one job. One is made up where none is given. */
  idempotencyKey?: string;
  labels?: Record<string, string>;
  /** W3C trace context it belongs to; handed on to whoever runs it. */
  traceparent?: string;
  /** What goes with it. */
  tracestate?: string;
}

/** The answer to a submission. */
export interface SubmittedJob {
  id: string;
  state: JobState | null;
  runAt: string;
  idempotencyKey: string;
  /** Whether the key was known and this is the job it made. */
  duplicate: boolean;
}

/** The answer for one job of many. */
export interface BatchedJob {
  id: string;
  duplicate: boolean;
}

/** The answer for one job of many that was not taken in. */
export interface RefusedJob {
  error: Problem;
}

/** A job as it is now. */
export interface Job<P = unknown, R = unknown> {
  id: string;
  tenant: string;
  type: string;
  state: JobState;
  /** When it starts next, or was to. */
  runAt: string;
  createdAt: string;
  queue?: string;
  target?: Target;
  priority: Priority;
  retry: Required<RetryPolicy>;
  timeout: string;
  expiresAt: string | null;
  idempotencyKey: string;
  labels: Record<string, string>;
  /** Left out of lists, unless they are asked for it, and of answers to changes. */
  payload?: P;
  /** Attempts started so far. */
  attempt: number;
  maxAttempts: number;
  lastError: string | null;
  /** What the handler returned. */
  result: R | null;
  startedAt: string | null;
  finishedAt: string | null;
  worker: string | null;
  leaseUntil: string | null;
  /** What the worker last said of its progress. */
  progress: unknown;
  scheduleId: string | null;
  fireAt: string;
  catchUp: boolean;
  /** Why it ended as it did, where the last error does not say it. */
  reason: string | null;
}

/** One attempt at a job. */
export interface Attempt {
  attempt: number;
  state:
    | "running"
    | "succeeded"
    | "failed"
    | "timed_out"
    | "lease_expired"
    | "lost"
    | "snoozed"
    | "cancelled"
    | "released";
  worker: string;
  startedAt: string;
  finishedAt: string | null;
  leaseUntil: string | null;
  statusCode: number | null;
  /** An excerpt of the answer, the result or the error. */
  detail: string;
  progress: unknown;
}

/** Why a job has not run yet. */
export interface Explanation {
  id: string;
  state: JobState;
  /** Such as `time`, `retry`, `worker`; null when it has ended. */
  waitsFor: string | null;
  detail: string;
  expectedStart: string | null;
  now: string;
  runAt: string;
  attempt: number;
  failures: number;
  maxAttempts: number;
}

/** A page of a list. It may be short, even empty, and still have a `nextCursor`. */
export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** Which jobs are meant. */
export interface JobFilter {
  state?: JobState | readonly JobState[];
  type?: string;
  queue?: string;
  /** The id of the schedule that made them. */
  schedule?: string;
  labels?: Record<string, string>;
  /** First set for this instant or later. */
  from?: Time;
  /** First set for before this instant. */
  to?: Time;
}

/** Which page of a list. */
export interface PageOptions {
  /** Items on one page; 50 by default, at most 1,000. */
  limit?: number;
  /** The `nextCursor` of the page before. */
  cursor?: string;
}

/** How many jobs there are. */
export interface JobCount {
  count: number;
  /** Whether all jobs were looked at. */
  complete: boolean;
  total?: number;
  counts?: Partial<Record<JobState, number>>;
}

/** What became of an order for many jobs. */
export interface BulkAnswer {
  /** Jobs for which it was done. */
  count: number;
  refused: number;
  items: { id: string; ok: boolean; state?: JobState; error?: Problem }[];
  nextCursor: string | null;
}

/** A job as a worker gets it. */
export interface TakenJob<P = unknown> {
  readonly id: string;
  readonly tenant: string;
  readonly type: string;
  readonly payload: P;
  /** Counted from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The fencing token: it rises with every attempt, and only the newest can finish the job. */
  readonly token: number;
  /** Stable over all attempts; what an effect is remembered by. */
  readonly idempotencyKey: string;
  readonly queue: string;
  readonly priority: Priority;
  /** The nominal time. */
  readonly fireAt: string;
  readonly runAt: string;
  readonly createdAt: string;
  readonly expiresAt: string | null;
  /** How long this attempt may take. */
  readonly timeout: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly leaseUntil: string | null;
  readonly scheduleId: string | null;
  /** Fired late, to make up for a missed time. */
  readonly catchUp: boolean;
  /** W3C trace context of this attempt, if the job is in a trace. */
  readonly traceparent?: string;
  /** What goes with it; may be empty. */
  readonly tracestate?: string;
}
