/** Schedules as they are sent and shown. */
import type { Duration } from "./duration.js";
import type { JobState, Priority, RetryPolicy, Target, Time } from "./job.js";

/** When a schedule fires. */
export interface Timing {
  /** Five fields, or six with seconds first. Not with `every`; one of the two is needed. */
  cronExpr?: string;
  /** From one fire to the next. */
  every?: Duration;
  /** An IANA name; `UTC` by default. */
  timezone?: string;
  startAt?: Time;
  endAt?: Time;
  /** Each occurrence starts within this of its time, at a place that is always the same. */
  window?: Duration;
  /** What a fixed time does when the zone's clock is moved. */
  dst?: { gap?: "next_valid" | "skip"; fold?: "first" | "both" };
  /** Dates it does not fire on, or the name of a calendar. */
  exclude?:
    | readonly string[]
    | string
    | { dates?: readonly string[]; calendar?: string; roll?: "none" | "next_business_day" | "previous_business_day" };
}

/** A schedule to create. */
export interface NewSchedule<P = unknown> extends Timing {
  /** Unique for its tenant. */
  name?: string;
  /** The type of the jobs; by default the schedule's name. */
  type?: string;
  payload?: P;
  queue?: string;
  target?: Target;
  targetUrl?: string;
  priority?: Priority;
  retry?: RetryPolicy;
  maxAttempts?: number;
  timeout?: Duration;
  labels?: Record<string, string>;
  /** What becomes of instants that nobody was there to fire. */
  misfire?: "fire_all" | "fire_latest" | "skip";
  misfireCap?: number;
  misfireGrace?: Duration;
  /** What becomes of an instant that comes while an earlier run is not over. */
  overlap?: "allow" | "skip" | "buffer_one" | "cancel_running";
  allowOverlap?: boolean;
  paused?: boolean;
  note?: string;
  /** The key of the creation, and what the keys of its jobs begin with; without one they begin with the schedule's id. */
  idempotencyKey?: string;
}

/** A schedule as it is now. */
export interface Schedule<P = unknown> extends Omit<NewSchedule<P>, "name" | "note" | "idempotencyKey"> {
  id: string;
  tenant: string;
  name: string | null;
  note: string | null;
  idempotencyKey: string | null;
  state: "active" | "paused" | "ended";
  paused: boolean;
  /** Rises with every change; what `ifVersion` means. */
  version: number;
  timezone: string;
  nextFireAt: string | null;
  nextRunAt: string | null;
  lastFireAt: string | null;
  createdAt: string;
  updatedAt: string;
  duplicate?: boolean;
}

/** When a schedule fires. */
export interface Fire {
  /** The nominal time. */
  fireAt: string;
  /** The effective time. */
  runAt: string;
  /** `dst_gap`, `dst_fold` or `rolled`. */
  note: string | null;
}

/** What became of one instant of a schedule. */
export interface Firing {
  fireAt: string;
  outcome: "fired" | "coalesced" | "skipped" | "missed" | "triggered" | "backfilled";
  reason: string | null;
  jobId: string | null;
  state: JobState | null;
  attempts: number | null;
  catchUp: boolean;
  coalescedInto: string | null;
  runAt: string | null;
  startedAt: string | null;
  finishedAt: string | null;
  decidedAt: string;
  lag: string | null;
}

/** What a backfill made. */
export interface Backfilled {
  count: number;
  duplicates: number;
  lastRunAt: string | null;
  /** Where the next call goes on; null at the end. */
  nextFrom: string | null;
}

/** The job that a trigger made. */
export interface Triggered {
  jobId: string;
  scheduleId: string;
  state: JobState;
  runAt: string;
}
