//! What is measured: every entry is one operation, done often enough that the counts of one are known.
//!
//! | file | what it holds |
//! |---|---|
//! | `calls` | what a caller asks for: submissions, reads, pages |
//! | `drains` | what the server does for jobs that are due: to the sink, a worker, a target; firings of schedules |

mod calls;
mod drains;

use std::pin::Pin;

use crate::costs::Costs;
use crate::site::Subject;

type Counted<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Costs>> + 'a>>;

/// An operation.
pub(crate) struct Entry {
    /// As it is named in the tables and to `--only`.
    pub(crate) name: &'static str,
    /// What is done once, for readers.
    pub(crate) what: &'static str,
    /// Whether the small form has it.
    pub(crate) small: bool,
    /// Does it.
    pub(crate) count: for<'a> fn(&'a Subject) -> Counted<'a>,
}

/// All of them, in the order of the tables.
pub(crate) const ALL: [Entry; 9] = [
    Entry {
        name: "submit.http",
        what: "a job submitted alone over HTTP",
        small: true,
        count: |subject| Box::pin(calls::submit_http(subject)),
    },
    Entry {
        name: "submit.grpc",
        what: "the same over gRPC",
        small: true,
        count: |subject| Box::pin(calls::submit_grpc(subject)),
    },
    Entry {
        name: "submit.batch",
        what: "a job of 1,000 submitted in one request over HTTP",
        small: true,
        count: |subject| Box::pin(calls::submit_batch(subject)),
    },
    Entry {
        name: "drain.sink",
        what: "claim and outcome of a due job, without a delivery",
        small: true,
        count: |subject| Box::pin(drains::to_sink(subject)),
    },
    Entry {
        name: "drain.worker",
        what: "the same to a worker over its gRPC stream",
        small: true,
        count: |subject| Box::pin(drains::to_worker(subject)),
    },
    Entry {
        name: "drain.target",
        what: "the same to an HTTP target",
        small: false,
        count: |subject| Box::pin(drains::to_target(subject)),
    },
    Entry {
        name: "schedule.fire",
        what: "a schedule's firing to the sink: claim and outcome, and its next occurrence",
        small: false,
        count: |subject| Box::pin(drains::firings(subject)),
    },
    Entry {
        name: "job.read",
        what: "a job read over HTTP",
        small: true,
        count: |subject| Box::pin(calls::read_job(subject)),
    },
    Entry {
        name: "job.page",
        what: "a page of a list, of 50 jobs, over HTTP",
        small: true,
        count: |subject| Box::pin(calls::list_page(subject)),
    },
];
