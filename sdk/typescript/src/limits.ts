/** Every bound of the package, with its unit at the end of its name. */

/** Jobs sent in one request by `submitMany` and `Batcher`. */
export const BATCH_COUNT_MAX = 1_000;
/** Bytes of jobs sent in one request. */
export const BATCH_BYTES_MAX = 4 * 1_024 * 1_024;
/** How long a batcher waits for company before it sends. */
export const BATCH_LINGER_MS = 5;
/** Jobs a batcher holds before `submit` waits for room. */
export const BATCH_PENDING_COUNT_MAX = 10_000;

/** One HTTP exchange. */
export const REQUEST_TIMEOUT_MS = 30_000;
/** How long a call goes on trying, all its tries together. */
export const PATIENCE_MS = 60_000;
/** The first wait between two tries. */
export const BACKOFF_BASE_MS = 100;
/** The longest wait between two tries, unless the server asks for more. */
export const BACKOFF_MAX_MS = 5_000;

/** Lease of a job, unless the worker is told otherwise. */
export const LEASE_MS_DEFAULT = 30_000;
/** The shortest lease the server grants. */
export const LEASE_MS_MIN = 1_000;
/** Heartbeats sent per lease: two may get lost before it runs out. */
export const HEARTBEATS_PER_LEASE = 3;
/** What part of its lease a worker trusts: less than the server does, so that it stops first. */
export const LEASE_TRUST = 0.9;
/** How long a request for jobs stays open when there are none. */
export const TAKE_WAIT_MS = 20_000;
/** The longest the server lets it stay open. */
export const TAKE_WAIT_MS_MAX = 60_000;
/** Jobs in one answer to a take. */
export const TAKE_COUNT_MAX = 1_000;
/** Handlers running at a time, unless told otherwise. */
export const CONCURRENCY_DEFAULT = 10;
/**
 * How long requests for jobs stay open once a drain began, in turns: jobs may be on their way. Turns, because a process
 * that was busy for as long has not looked yet at what came.
 */
export const LAST_TAKE_TURNS_COUNT = 10;
/** One of them. */
export const LAST_TAKE_TURN_MS = 100;
/** How long the rest of an answer that has begun to come may take then. */
export const LAST_TAKE_REST_MS = 5_000;
/** How long running handlers may take to end once a drain began. */
export const DRAIN_MS_DEFAULT = 30_000;
/** How long handlers get to react to the abort when that time is over. */
export const DRAIN_GRACE_MS = 1_000;
/** How long the server then has to take their jobs back. */
export const DRAIN_REPORT_MS_MAX = 10_000;

/** How long a worker goes on telling what came of an attempt, at least: it sits out a restart of the server. */
export const OUTCOME_PATIENCE_MS_MIN = 120_000;

/** How long an inbox keeps a key, unless told otherwise. */
export const INBOX_RETENTION_MS = 14 * 86_400_000;
/** Keys an inbox forgets at once. */
export const INBOX_PRUNE_COUNT_MAX = 10_000;

/** Text that the server keeps of an error, in UTF-8. */
export const EXCERPT_BYTES_MAX = 2_048;
/** Result that it keeps, as JSON. */
export const RESULT_BYTES_MAX = 8_192;
/** Jobs that are made up without a timeout have this one, as on the server. */
export const JOB_TIMEOUT_MS_DEFAULT = 30_000;
/** The longest duration that the server can count: 64 bits with a sign. */
export const DURATION_MS_MAX = 2n ** 63n - 1n;
/** The longest a Node timer can wait. */
export const TIMER_MS_MAX = 2_147_483_647;
