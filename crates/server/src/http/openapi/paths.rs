//! Every operation of the API, one row each.

use tidewheel_api::wire::fault::Code;

use super::{Body, Operation};

const JOBS: &str = "jobs";
const WORKERS: &str = "workers";
const DEAD: &str = "dead letters";
const SERVER: &str = "server";

pub(super) const TENANT: &[&str] = &["Tenant"];
const ONE: &[&str] = &["Tenant", "JobId"];
const CHANGE_ONE: &[&str] = &["Tenant", "JobId", "CallKey"];
const FILTER: &[&str] = &["Tenant", "State", "Type", "OfQueue", "Schedule", "Label", "From", "To"];
const LIST: &[&str] =
    &["Tenant", "State", "Type", "OfQueue", "Schedule", "Label", "From", "To", "Limit", "Cursor", "Payload"];
const DEAD_LIST: &[&str] =
    &["Tenant", "Type", "OfQueue", "Schedule", "Label", "From", "To", "Limit", "Cursor", "Payload"];
const DEAD_DISCARD: &[&str] =
    &["Tenant", "Type", "OfQueue", "Schedule", "Label", "From", "To", "Cursor", "All", "CallKey"];

pub(super) const READ: &[Code] = &[Code::InvalidParameter, Code::StoreUnavailable];
const READ_ONE: &[Code] = &[Code::InvalidTenant, Code::JobNotFound, Code::StoreUnavailable];
pub(super) const WRITE: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];
pub(super) const WRITE_MANY: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];
const WRITE_ONE: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::JobNotFound,
    Code::RequestTimeout,
    Code::JobConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];
pub(super) const SUBMIT: &[Code] = &[
    Code::MalformedJson,
    Code::CrossSite,
    Code::RequestTimeout,
    Code::IdempotencyConflict,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidRequest,
    Code::StoreUnavailable,
];

/// An operation that reads nothing and is described by its summary.
pub(super) const PLAIN: Operation = Operation {
    method: "get",
    path: "",
    tag: SERVER,
    id: "",
    summary: "",
    description: "",
    parameters: &[],
    body: Body::None,
    answers: &[],
    problems: &[],
};

/// An operation on one job that answers with the job.
const ON_ONE: Operation = Operation {
    method: "post",
    tag: JOBS,
    parameters: CHANGE_ONE,
    answers: &[(200, "The job as it is now, without its payload.", Some("Job"))],
    problems: WRITE_ONE,
    ..PLAIN
};

/// An operation on many jobs.
const ON_MANY: Operation = Operation {
    method: "post",
    tag: JOBS,
    parameters: &["Tenant", "CallKey"],
    answers: &[(200, "What became of each.", Some("BulkAnswer"))],
    problems: WRITE_MANY,
    ..PLAIN
};

const BULK_NOTE: &str = "At most 10,000 jobs in one call; while there are more that match, `next_cursor` says where the next call goes on, under a key of its own. Sent again under its key, a call acts on no job a second time: each has a key made of the call's and its id.";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/jobs",
        tag: JOBS,
        id: "submitJob",
        summary: "Submit a job",
        description: "Answered once the job is on disk. With an idempotency key, the same request again within 24 h is \
                      answered with the first job, and a different one is a conflict. A body with `schedule_type` is in the flat form: `ONCE` \
                      makes a job, `CRON` a schedule.",
        parameters: &["Tenant", "IdempotencyKey"],
        body: Body::Required("AnyNewJob"),
        answers: &[
            (200, "The key was used by the same request: the first job.", Some("AnySubmittedJob")),
            (201, "Taken in.", Some("AnySubmittedJob")),
        ],
        problems: SUBMIT,
    },
    Operation {
        method: "post",
        path: "/v1/jobs/batch",
        tag: JOBS,
        id: "submitJobs",
        summary: "Submit up to 10,000 jobs",
        description: "All or none are taken in, unless `partial=true`. A body has at most 64 MiB. Pointers to faults count \
                      jobs from 0. With `partial=true` each item of `jobs` is what became of one job: its id, or `error`; \
                      if none was taken in the status is 200.",
        parameters: &["Tenant", "IdempotencyKey", "Partial"],
        body: Body::Batch { shape: "JobBatch", item: "NewJob" },
        answers: &[
            (200, "With `partial=true`: none was taken in.", Some("SubmittedBatch")),
            (201, "Taken in, in the order sent.", Some("SubmittedBatch")),
        ],
        problems: SUBMIT,
    },
    Operation {
        path: "/v1/jobs",
        tag: JOBS,
        id: "listJobs",
        summary: "List jobs, latest first",
        description: "Latest by the time they were first set for. Pages are stable while jobs change. Payloads are left out \
                      unless `payload=true`.",
        parameters: LIST,
        answers: &[(200, "A page.", Some("JobPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/jobs/count",
        tag: JOBS,
        id: "countJobs",
        summary: "Count jobs",
        description: "By state at once and exactly. With other filters, or for `ready`, jobs are counted by looking at them, \
                      up to a bound: `complete` says whether all were.",
        parameters: FILTER,
        answers: &[(200, "How many.", Some("JobCount"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/jobs/{id}",
        tag: JOBS,
        id: "getJob",
        summary: "Get a job",
        parameters: ONE,
        answers: &[(200, "The job.", Some("Job"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        method: "patch",
        path: "/v1/jobs/{id}",
        id: "amendJob",
        summary: "Change a waiting job's time or priority",
        body: Body::Required("JobPatch"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/jobs/{id}/attempts",
        tag: JOBS,
        id: "listAttempts",
        summary: "List a job's attempts, oldest first",
        description: "The newest 20, the one under way last.",
        parameters: &["Tenant", "JobId", "Limit", "Cursor"],
        answers: &[(200, "A page.", Some("AttemptPage"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        path: "/v1/jobs/{id}/explain",
        tag: JOBS,
        id: "explainJob",
        summary: "Say why a job has not run yet",
        parameters: ONE,
        answers: &[(200, "What it waits for.", Some("Explanation"))],
        problems: READ_ONE,
        ..PLAIN
    },
    Operation {
        path: "/v1/jobs/{id}/cancel",
        id: "cancelJob",
        summary: "Cancel a job",
        description: "A job that is running is told nothing, but what it reports is refused. Cancelling again changes nothing.",
        body: Body::Optional("KeyOnly"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/jobs/{id}/run",
        id: "runJob",
        summary: "Run a waiting job now",
        body: Body::Optional("KeyOnly"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/jobs/{id}/retry",
        id: "retryJob",
        summary: "Run a finished job again",
        body: Body::Optional("Restart"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/jobs/cancel",
        id: "cancelJobs",
        summary: "Cancel many jobs",
        description: BULK_NOTE,
        body: Body::Required("Bulk"),
        ..ON_MANY
    },
    Operation {
        path: "/v1/jobs/retry",
        id: "retryJobs",
        summary: "Run many finished jobs again",
        description: "A filter that names no state means `dead`. At most 10,000 jobs in one call; while there are more that \
                      match, `next_cursor` says where the next call goes on, under a key of its own. Sent again under \
                      its key, a call acts on no job a second time: each has a key made of the call's and its id.",
        body: Body::Required("BulkRestart"),
        ..ON_MANY
    },
    Operation {
        method: "post",
        path: "/v1/queues/{queue}/take",
        tag: WORKERS,
        id: "takeJobs",
        summary: "Take jobs from a queue",
        description: "Waits for the first up to `wait`; without it, what is ready now is taken. In a cluster, \
                      where other nodes may have them, an empty answer takes three quarters of a second at least. While no database \
                      answers, it is a 503 in place of an empty answer. What is taken is running until its outcome is reported or its lease runs out. An answer has \
                      about 2 MiB of jobs at most, but always one. A key adds nothing: sent again, it takes other jobs, and the lease \
                      gives back what an answer was lost with.",
        parameters: &["Tenant", "Queue"],
        body: Body::Optional("Take"),
        answers: &[(200, "The jobs, perhaps none.", Some("TakenJobs"))],
        problems: WRITE,
    },
    Operation {
        path: "/v1/workers",
        tag: WORKERS,
        id: "listWorkers",
        summary: "List connected workers",
        description: "Workers connected over gRPC that work for the tenant, in the order they came. One whose connection was \
                      lost is shown until its time to come back is over. Those who pull over HTTP are not connected. A key that is no \
                      admin's sees those alone that work for its tenant and for nobody else.",
        parameters: &["Tenant", "Limit", "Cursor"],
        answers: &[(200, "A page.", Some("WorkerPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/v1/jobs/{id}/heartbeat",
        tag: WORKERS,
        id: "heartbeat",
        summary: "Extend an attempt's lease",
        description: "A stale token is `409 stale_token`: stop working on the job. The token makes it safe to repeat; a key adds nothing.",
        body: Body::Required("Heartbeat"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/jobs/{id}/outcome",
        tag: WORKERS,
        id: "reportOutcome",
        summary: "Report what came of an attempt",
        description: "The same outcome again is `200` and changes nothing, with a key or without. A stale token is `409 stale_token`.",
        body: Body::Required("Outcome"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/dead-letters",
        tag: DEAD,
        id: "listDeadLetters",
        summary: "List dead letters, latest first",
        parameters: DEAD_LIST,
        answers: &[(200, "A page.", Some("JobPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        method: "delete",
        path: "/v1/dead-letters",
        tag: DEAD,
        id: "discardDeadLetters",
        summary: "Discard many dead letters",
        description: BULK_NOTE,
        parameters: DEAD_DISCARD,
        ..ON_MANY
    },
    Operation {
        method: "delete",
        path: "/v1/dead-letters/{id}",
        tag: DEAD,
        id: "discardDeadLetter",
        summary: "Discard a dead letter",
        answers: &[(204, "It is gone.", None)],
        ..ON_ONE
    },
    Operation {
        path: "/v1/dead-letters/{id}/replay",
        tag: DEAD,
        id: "replayDeadLetter",
        summary: "Run a dead letter again, perhaps changed",
        body: Body::Optional("Replay"),
        ..ON_ONE
    },
    Operation {
        path: "/v1/dead-letters/replay",
        tag: DEAD,
        id: "replayDeadLetters",
        summary: "Run many dead letters again, perhaps at a rate",
        description: BULK_NOTE,
        body: Body::Required("BulkRestart"),
        ..ON_MANY
    },
    Operation {
        path: "/v1/cluster",
        id: "cluster",
        summary: "The nodes, their shards, and the tz database they go by",
        description: "How far behind a node is (`lag_ms`), and which tz database it goes by, it says of itself alone: of other \
                      nodes than the one that is asked they are left out.",
        answers: &[(200, "The cluster, as this node sees it.", Some("Cluster"))],
        ..PLAIN
    },
    Operation {
        path: "/v1/overview",
        id: "overview",
        summary: "What one looks at first: jobs by state, lag, rates, what waits where",
        description: "From what is counted in memory; it costs the same however many jobs there are, and may be asked for every second or two. Jobs and lanes are the tenant's, the rest is of the whole server.",
        parameters: TENANT,
        answers: &[(200, "The overview.", Some("Overview"))],
        problems: &[Code::InvalidTenant, Code::StoreUnavailable],
        ..PLAIN
    },
    Operation {
        path: "/v1/targets",
        id: "listTargets",
        summary: "The hosts at which the tenant's pushes fail, and whether they are called",
        description: "One circuit breaker for each tenant and host, of those that remember a failure, by host. In a cluster: those of the node that answers.",
        parameters: &["Tenant", "Limit", "Cursor"],
        answers: &[(200, "A page.", Some("TargetPage"))],
        problems: READ,
        ..PLAIN
    },
    Operation {
        path: "/healthz",
        id: "healthz",
        summary: "Whether the process is up",
        answers: &[(200, "It is.", Some("Status"))],
        ..PLAIN
    },
    Operation {
        path: "/readyz",
        id: "readyz",
        summary: "Whether the server takes work",
        answers: &[(200, "It does, for the tenants of at least one of its databases.", Some("Status"))],
        problems: &[Code::StoreUnavailable, Code::StoreFull, Code::StoreReadOnly],
        ..PLAIN
    },
    Operation {
        path: "/metrics",
        id: "metrics",
        summary: "What the server counts",
        answers: &[(200, "Prometheus' text form.", Some(".metrics"))],
        ..PLAIN
    },
    Operation {
        path: "/openapi.json",
        id: "openapi",
        summary: "This document",
        answers: &[(200, "This document.", Some(".any"))],
        ..PLAIN
    },
    Operation {
        path: "/docs",
        id: "docs",
        summary: "This document, for people",
        answers: &[(200, "A page.", Some(".html"))],
        ..PLAIN
    },
    Operation {
        path: "/docs/errors",
        id: "docsErrors",
        summary: "Every error code and what it means",
        answers: &[(200, "A page.", Some(".html"))],
        ..PLAIN
    },
];
