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
use crate::site::{Site, Subject};

type Counted<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Costs>> + 'a>>;

/// An operation.
pub(crate) struct Entry {
    /// As it is named in the tables and to `--only`.
    pub(crate) name: &'static str,
    /// Whether the small form has it.
    pub(crate) small: bool,
    /// Does it.
    pub(crate) count: Count,
}

/// What it is done on.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// A server that others of these share, each with a tenant of its own: starting one takes longest of all.
    Shared(for<'a> fn(&'a mut Site) -> Counted<'a>),
    /// A store of its own.
    Alone(for<'a> fn(&'a Subject) -> Counted<'a>),
}

/// All of them, in the order of the tables.
pub(crate) const ALL: [Entry; 9] = [
    Entry {
        name: "submit.http",
        small: true,
        count: Count::Shared(|site| Box::pin(calls::submit_http(site))),
    },
    Entry {
        name: "submit.grpc",
        small: true,
        count: Count::Shared(|site| Box::pin(calls::submit_grpc(site))),
    },
    Entry {
        name: "submit.batch",
        small: true,
        count: Count::Shared(|site| Box::pin(calls::submit_batch(site))),
    },
    Entry { name: "job.read", small: true, count: Count::Shared(|site| Box::pin(calls::read_job(site))) },
    Entry { name: "job.page", small: true, count: Count::Shared(|site| Box::pin(calls::list_page(site))) },
    Entry {
        name: "drain.worker",
        small: true,
        count: Count::Shared(|site| Box::pin(drains::to_worker(site))),
    },
    Entry {
        name: "drain.target",
        small: false,
        count: Count::Shared(|site| Box::pin(drains::to_target(site))),
    },
    Entry {
        name: "drain.sink",
        small: true,
        count: Count::Alone(|subject| Box::pin(drains::to_sink(subject))),
    },
    Entry {
        name: "schedule.fire",
        small: false,
        count: Count::Alone(|subject| Box::pin(drains::firings(subject))),
    },
];
