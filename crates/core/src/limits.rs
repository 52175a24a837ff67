//! Every bound of the system in one place, with its unit at the end of its name. A user who meets one is
//! told which; an operator who must move one finds it here.

/// One second, in milliseconds.
pub const SECOND_MS: i64 = 1_000;
/// One minute, in milliseconds.
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
/// One hour, in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// One day, in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Payload of one job, as sent.
pub const PAYLOAD_BYTES_MAX: usize = 65_536;
/// How deep a payload may nest, so that no reader of it can be made to overflow its stack.
pub const PAYLOAD_DEPTH_MAX: usize = 128;
/// Name of a job type.
pub const TYPE_BYTES_MAX: usize = 128;
/// Name of a queue.
pub const QUEUE_BYTES_MAX: usize = 128;
/// Name of a tenant.
pub const TENANT_BYTES_MAX: usize = 64;
/// An idempotency key, in characters.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
/// How long an idempotency key keeps pointing at its job.
pub const IDEMPOTENCY_WINDOW_MS: i64 = DAY_MS;
/// Labels of one job.
pub const LABELS_COUNT_MAX: usize = 32;
/// Key of one label.
pub const LABEL_KEY_BYTES_MAX: usize = 64;
/// Value of one label.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;
/// `tracestate` of a job, in bytes.
pub const TRACE_STATE_BYTES_MAX: usize = 512;
/// Members of it.
pub const TRACE_STATE_MEMBERS_COUNT_MAX: usize = 32;
/// URL of a target.
pub const URL_BYTES_MAX: usize = 2_048;
/// Headers a caller adds to a push.
pub const TARGET_HEADERS_COUNT_MAX: usize = 32;
/// Those headers together.
pub const TARGET_HEADERS_BYTES_MAX: usize = 8_192;
/// Secret of a webhook signature, at least: below it, it could be guessed.
pub const WEBHOOK_SECRET_BYTES_MIN: usize = 24;
/// The same, at most.
pub const WEBHOOK_SECRET_BYTES_MAX: usize = 64;
/// Webhook secrets a tenant sets, the one it has by itself not counted.
pub const WEBHOOK_SECRETS_COUNT_MAX: usize = 5;
/// Keys of one tenant.
pub const TENANT_KEYS_COUNT_MAX: usize = 1_000;
/// Job types, or queues, one key is limited to.
pub const KEY_NAMES_COUNT_MAX: usize = 100;
/// Name of a key.
pub const KEY_NAME_BYTES_MAX: usize = 128;
/// A key as it is sent; what is longer is none.
pub const KEY_BYTES_MAX: usize = 512;
/// A token of an issuer as it is sent; what is longer is none.
pub const TOKEN_BYTES_MAX: usize = 8 * 1_024;
/// Between two looks at whether the key of a worker's open stream holds still.
pub const WORKER_KEY_CHECKED_MS: u64 = 5_000;
/// Between two notes of when a key was used last.
pub const KEY_USE_NOTED_MS: i64 = MINUTE_MS;
/// How long somebody stays signed in to the web pages.
pub const SESSION_MS: i64 = 12 * HOUR_MS;
/// Sessions of one key that are remembered as ended; beyond it, all that began before the oldest of them are.
pub const SESSION_ENDS_COUNT_MAX: usize = 100;
/// The cookie of a session; what is longer is none.
pub const SESSION_COOKIE_BYTES_MAX: usize = 512;
/// Share of a tenant beside others, unless set otherwise.
pub const TENANT_WEIGHT_DEFAULT: u32 = 1;
/// The same, at most.
pub const TENANT_WEIGHT_MAX: u32 = 1_000;
/// Job types a tenant may register.
pub const TENANT_TYPES_COUNT_MAX: usize = 200;
/// Keys and roles named as submitters of one type.
pub const TYPE_SUBMITTERS_COUNT_MAX: usize = 100;
/// What is noted of one type, for people.
pub const TYPE_NOTE_BYTES_MAX: usize = 1_024;
/// The schema of one type, as it is sent.
pub const SCHEMA_BYTES_MAX: usize = 32_768;
/// How deep schemas nest in a schema, references followed.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// Checks in a schema, references followed: what it costs to check one value, at most.
pub const SCHEMA_CHECKS_COUNT_MAX: usize = 2_000;
/// Patterns in a schema, references followed.
pub const SCHEMA_PATTERNS_COUNT_MAX: usize = 32;
/// One pattern, compiled.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 32_768;
/// Compiled schemas kept in memory.
pub const SCHEMAS_COMPILED_COUNT_MAX: usize = 128;
/// What checking one payload may cost: its values times the schema's checks, and what its patterns must read.
pub const PAYLOAD_CHECKS_COUNT_MAX: usize = 4_000_000;
/// What checking may cost for a payload's faults to be told one by one. Beyond it, only that there are some.
pub const PAYLOAD_TOLD_CHECKS_COUNT_MAX: usize = 200_000;
/// Faults told of one payload.
pub const PAYLOAD_FAULTS_COUNT_MAX: usize = 20;
/// Name of a worker.
pub const WORKER_BYTES_MAX: usize = 128;

/// HTTP connections at once, if the machine allows that many descriptors; further ones are refused.
pub const CONNECTIONS_COUNT_MAX: usize = 12_000;
/// Jobs in one batch submission.
pub const BATCH_COUNT_MAX: usize = 10_000;
/// Ids in one bulk cancel or retry.
pub const BULK_IDS_COUNT_MAX: usize = 10_000;
/// Items in one page of a list.
pub const PAGE_COUNT_MAX: usize = 1_000;
/// Items in one page of a list unless asked otherwise.
pub const PAGE_COUNT_DEFAULT: usize = 50;
/// Records one list call looks at before it hands back a cursor, full page or not.
pub const LIST_SCAN_COUNT_MAX: usize = 20_000;

/// How far ahead a job may be set.
pub const RUN_AT_AHEAD_MS_MAX: i64 = 3_653 * DAY_MS;
/// How far back `run_at` may lie; what is older was not meant.
pub const RUN_AT_PAST_MS_MAX: i64 = DAY_MS;
/// The last instant a job id can carry (48 bits of milliseconds).
pub const RUN_AT_MS_MAX: i64 = (1 << 48) - 1;

/// Attempts a policy may ask for.
pub const ATTEMPTS_COUNT_MAX: u32 = 100;
/// Attempts a policy asks for unless it says otherwise.
pub const ATTEMPTS_COUNT_DEFAULT: u32 = 5;
/// Attempts of one job over its whole life, re-runs included: the fencing token keeps 20 bits for them.
pub const ATTEMPTS_LIFETIME_COUNT_MAX: u32 = (1 << 20) - 1;
/// Attempts kept in a job's record; older ones are forgotten first.
pub const ATTEMPTS_KEPT_COUNT_MAX: usize = 20;
/// Attempts lost to the server's own death that cost the job nothing; beyond it they count as failures,
/// so that a job that brings the server down cannot do so for ever.
pub const ATTEMPTS_LOST_FREE_COUNT_MAX: u32 = 20;
/// Text kept of an answer or an error.
pub const EXCERPT_BYTES_MAX: usize = 2_048;
/// Result a worker may hand back.
pub const RESULT_BYTES_MAX: usize = 8_192;
/// Wait before a retry, whatever the policy or the target asks for.
pub const RETRY_DELAY_MS_MAX: i64 = 7 * DAY_MS;

/// One attempt, unless the job says otherwise.
pub const TIMEOUT_MS_DEFAULT: i64 = 30 * SECOND_MS;
/// One attempt, at most.
pub const TIMEOUT_MS_MAX: i64 = DAY_MS;
/// Lease of one attempt, unless the worker asks otherwise.
pub const LEASE_MS_DEFAULT: i64 = 30 * SECOND_MS;
/// Lease of one attempt, at least.
pub const LEASE_MS_MIN: i64 = SECOND_MS;
/// Lease of one attempt, at most.
pub const LEASE_MS_MAX: i64 = DAY_MS;
/// What a push lease has over the push timeout, so that a timeout is reported before the lease runs out.
pub const LEASE_MARGIN_MS: i64 = 15 * SECOND_MS;

/// Failures in a row of one tenant's pushes to one host before no more go there, unless set otherwise.
pub const BREAKER_FAILURES_COUNT_DEFAULT: u32 = 50;
/// How long none goes there the first time, unless set otherwise.
pub const BREAKER_COOLDOWN_MS_DEFAULT: i64 = SECOND_MS;
/// How long ago a failure counts for the share of pushes that fail, unless set otherwise.
pub const BREAKER_LATELY_MS_DEFAULT: i64 = 30 * SECOND_MS;
/// Pushes in that time below which their share says nothing.
pub const BREAKER_LATELY_CALLS_COUNT_MIN: u32 = 20;
/// The same however often it failed, unless set otherwise.
pub const BREAKER_COOLDOWN_MS_MAX_DEFAULT: i64 = 30 * SECOND_MS;
/// How long a target that asks to wait is left alone, at most.
pub const BREAKER_HOLD_MS_MAX: i64 = HOUR_MS;
/// Hosts of one tenant whose failures are remembered; those that work are forgotten first.
pub const BREAKERS_TENANT_COUNT_MAX: usize = 1_000;
/// The same, of all tenants.
pub const BREAKERS_COUNT_MAX: usize = 20_000;
/// How long a host that failed is remembered while nothing is sent to it.
pub const BREAKER_IDLE_MS: i64 = HOUR_MS;
/// Text kept of why a host failed.
pub const BREAKER_REASON_BYTES_MAX: usize = 256;

/// How long a job may be due before its owner is told, unless set otherwise.
pub const LAG_BUDGET_MS_DEFAULT: i64 = MINUTE_MS;
/// Between two notifications of a tenant of the same event, at least.
pub const NOTIFICATION_PAUSE_MS: i64 = MINUTE_MS;
/// Things one notification tells of in full; of what is beyond it, only the number.
pub const NOTIFICATION_ITEMS_COUNT_MAX: usize = 10;
/// Attempts at one notification.
pub const NOTIFICATION_ATTEMPTS_COUNT: u32 = 10;
/// One of them.
pub const NOTIFICATION_TIMEOUT_MS: i64 = 10 * SECOND_MS;

/// How often a connected worker says something.
pub const WORKER_HEARTBEAT_MS: i64 = 5 * SECOND_MS;
/// Silence after which a connected worker is taken for dead.
pub const WORKER_DEAD_MS: i64 = 15 * SECOND_MS;
/// How often a connected worker that holds no job says something, where it may choose; the usual choice.
pub const WORKER_IDLE_HEARTBEAT_MS_DEFAULT: i64 = 2 * MINUTE_MS;
/// The same, at most.
pub const WORKER_IDLE_HEARTBEAT_MS_MAX: i64 = 5 * MINUTE_MS;
/// How long after a lost connection a worker may come back for its session.
pub const WORKER_RESUME_MS: i64 = 5 * SECOND_MS;
/// How long a job may lie unstarted at one worker while another is idle.
pub const WORKER_TAKE_BACK_MS: i64 = SECOND_MS;
/// Connected workers.
pub const WORKERS_COUNT_MAX: usize = 50_000;
/// Queues one worker subscribes to.
pub const WORKER_QUEUES_COUNT_MAX: usize = 64;
/// Tenants one worker names.
pub const WORKER_TENANTS_COUNT_MAX: usize = 1_000;
/// Job types one worker names.
pub const WORKER_TYPES_COUNT_MAX: usize = 1_000;
/// Jobs one worker may have asked for and not yet been sent.
pub const WORKER_CREDITS_COUNT_MAX: usize = 10_000;
/// Items in one batch a worker sends.
pub const WORKER_BATCH_COUNT_MAX: usize = 10_000;
/// Jobs on their way to one worker that reads slowly; beyond it the worker gets no more.
pub const WORKER_UNSENT_BYTES_MAX: usize = 4 << 20;
/// Jobs in one message to a worker, but always at least one.
pub const WORKER_JOBS_BYTES_MAX: usize = 1 << 20;
/// Jobs in one answer to a worker that asks once, but always at least one; the rest is for its next call.
pub const TAKE_BYTES_MAX: usize = 2 << 20;
/// Batches of one worker that are being worked on or whose answers it has not read; beyond it nothing more is read.
pub const WORKER_ANSWERS_COUNT_MAX: usize = 64;
/// One gRPC message.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Time between two fires of a schedule, at least, unless the tenant's limits say otherwise.
pub const SCHEDULE_INTERVAL_MS_MIN_DEFAULT: i64 = MINUTE_MS;
/// Time between two fires of a schedule, at least, whatever the tenant's limits say.
pub const SCHEDULE_INTERVAL_MS_MIN: i64 = SECOND_MS;
/// Interval of a schedule, at most.
pub const SCHEDULE_INTERVAL_MS_MAX: i64 = 3_653 * DAY_MS;
/// Name of a schedule or of a calendar.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 128;
/// Note on a schedule.
pub const SCHEDULE_NOTE_BYTES_MAX: usize = 1_024;
/// A schedule's idempotency key, in characters: with `:trigger:` and an instant it is still a job's.
pub const SCHEDULE_KEY_CHARS_MAX: usize = IDEMPOTENCY_KEY_CHARS_MAX - 33;
/// Fire window of a schedule.
pub const FIRE_WINDOW_MS_MAX: i64 = DAY_MS;
/// How late an occurrence may start and still count as on time.
pub const MISFIRE_GRACE_MS_DEFAULT: i64 = MINUTE_MS;
/// The same, at least: below it, the scheduler's own work would count as a misfire.
pub const MISFIRE_GRACE_MS_MIN: i64 = SECOND_MS;
/// The same, at most.
pub const MISFIRE_GRACE_MS_MAX: i64 = 7 * DAY_MS;
/// Missed instants that are made up for, unless the schedule says otherwise.
pub const MISFIRE_CAP_COUNT_DEFAULT: u32 = 10;
/// Missed instants that are made up for, at most.
pub const MISFIRE_CAP_COUNT_MAX: u32 = 1_000;
/// Dates one schedule excludes by itself.
pub const EXCLUDED_DATES_COUNT_MAX: usize = 366;
/// Dates of one calendar.
pub const CALENDAR_DATES_COUNT_MAX: usize = 5_000;
/// How far an excluded fire is moved to reach a business day.
pub const ROLL_DAYS_MAX: usize = 31;
/// Unfinished jobs a schedule remembers, to know of an overlap; older ones are forgotten first.
pub const SCHEDULE_ACTIVE_COUNT_MAX: usize = 16;
/// How often an occurrence that waits for the one before it is looked at again, should the news of that
/// one's end be lost.
pub const HELD_RECHECK_MS: i64 = MINUTE_MS;
/// Instants counted in one range of a ledger; what is longer is not counted to its end.
pub const LEDGER_RANGE_COUNT_MAX: u32 = 1_000;
/// Instants told one by one when a zone's clock turns out to have been ahead of them; older ones are not told.
pub const OVERTAKEN_COUNT_MAX: usize = 1_000;
/// Fires in one preview.
pub const PREVIEW_COUNT_MAX: usize = 1_000;
/// Fires in one preview unless asked otherwise.
pub const PREVIEW_COUNT_DEFAULT: usize = 5;

/// Jobs a tenant may start per second of those made up for (missed, backfilled or replayed), unless set otherwise.
pub const TENANT_CATCH_UP_JOBS_PER_S_DEFAULT: u32 = 2_500;
/// Jobs taken from callers and not stored yet, unless set otherwise.
pub const SUBMISSIONS_IN_FLIGHT_COUNT_MAX_DEFAULT: usize = 200_000;
/// Tenants that are made up for at the same time; the others wait until one of them is idle.
pub const GOVERNED_TENANTS_COUNT_MAX: usize = 65_536;

/// Shards of a new store.
pub const SHARDS_COUNT_DEFAULT: u16 = 64;
/// Shards the jobs of one tenant can be spread over.
pub const SUB_SHARDS_COUNT_MAX: u8 = 16;
/// Databases a cluster is spread over. Each server has its own connections to every one of them.
pub const DATABASES_COUNT_MAX: usize = 32;
/// Width of a time bucket.
pub const BUCKET_MS: i64 = 10 * MINUTE_MS;
/// How long a node has a shard, by the store's clock, unless it extends that.
pub const SHARD_LEASE_MS: i64 = 15 * SECOND_MS;
/// How often a node extends that.
pub const SHARD_RENEW_MS: i64 = 5 * SECOND_MS;
/// How long a node itself trusts in it: less, so that it has stopped when another begins.
pub const SHARD_TRUST_MS: i64 = 11 * SECOND_MS;
/// How long finished jobs are kept.
pub const HISTORY_MS_DEFAULT: i64 = 30 * DAY_MS;
/// How long the audit trail is kept.
pub const AUDIT_RETENTION_MS_DEFAULT: i64 = 90 * DAY_MS;
/// Changes of jobs in one record of the audit trail; more make further records.
pub const AUDIT_CHANGES_PER_RECORD_COUNT_MAX: usize = 256;
/// Records of the audit trail read at a time.
pub const AUDIT_READ_COUNT_MAX: usize = 256;
/// Records of the audit trail looked at for one page.
pub const AUDIT_SCAN_COUNT_MAX: usize = LIST_SCAN_COUNT_MAX;
/// Changes of jobs in one page of the audit trail; it ends with the record that has the last of them.
pub const AUDIT_PAGE_CHANGES_COUNT_MAX: usize = 10_000;
/// Names of changed fields in one record of the audit trail.
pub const AUDIT_FIELDS_COUNT_MAX: usize = 32;
/// Characters of what a caller chose in a record of the audit trail: names of objects, ids of requests.
pub const AUDIT_TEXT_CHARS_MAX: usize = 255;
/// How often calls that are too many for a record each are written, summed up.
pub const AUDIT_SUM_MS: i64 = SECOND_MS;
/// Different sums kept in between; once there are so many, they are written at once.
pub const AUDIT_SUMS_COUNT_MAX: usize = 1_000;
/// How long a tenant may at least have its finished jobs kept.
pub const RETENTION_MS_MIN: i64 = SECOND_MS;
/// The same, at most; the server's own history is the nearer bound.
pub const RETENTION_MS_MAX: i64 = 3_653 * DAY_MS;

const _: () = assert!(DAY_MS % BUCKET_MS == 0, "a day is a whole number of buckets");
const _: () = assert!(RUN_AT_MS_MAX / BUCKET_MS < u32::MAX as i64, "a bucket number fits 32 bits");
const _: () = assert!(SUB_SHARDS_COUNT_MAX == 16, "four bits of an id say which one");
const _: () = assert!(ATTEMPTS_COUNT_MAX < ATTEMPTS_LIFETIME_COUNT_MAX);
const _: () = assert!(LEASE_MS_MIN < LEASE_MS_DEFAULT && LEASE_MS_DEFAULT < LEASE_MS_MAX);
const _: () = assert!(PAGE_COUNT_MAX <= LIST_SCAN_COUNT_MAX);
const _: () = assert!(AUDIT_READ_COUNT_MAX <= AUDIT_SCAN_COUNT_MAX);
const _: () = assert!(AUDIT_CHANGES_PER_RECORD_COUNT_MAX <= u16::MAX as usize, "a record counts them so");
const _: () = assert!(2 * SHARD_RENEW_MS < SHARD_TRUST_MS && SHARD_TRUST_MS < SHARD_LEASE_MS);
const _: () = assert!(2 * WORKER_HEARTBEAT_MS < WORKER_DEAD_MS && WORKER_DEAD_MS < LEASE_MS_DEFAULT);
const _: () =
    assert!(PAYLOAD_BYTES_MAX < WORKER_JOBS_BYTES_MAX && WORKER_JOBS_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX);
const _: () = assert!(2 * TAKE_BYTES_MAX <= GRPC_MESSAGE_BYTES_MAX, "and there is room for the last one");
