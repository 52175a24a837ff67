//! The HTTP API.
//!
//! | file | what it holds |
//! |---|---|
//! | `routes` | every route, on one screen |
//! | `direct` | taking in one job, without the router |
//! | `service` | which of the two a request goes to |
//! | `app` | what all handlers share |
//! | `to_the_end` | work that goes on when the caller hangs up |
//! | `caller` | who calls: the one place that decides for which tenant |
//! | `admission` | what a tenant may submit: how fast, how much |
//! | `reservations` | room under a cap, for what is on its way into the store |
//! | `repeats` | what a limit does not refuse because it was taken in before |
//! | `registered` | what a job's type says: defaults, submitters, the schema of its payload |
//! | `scope` | what a caller may do with jobs and schedules that are there |
//! | `retention` | what a tenant no longer sees |
//! | `overload` | what is refused when more comes in than the store takes |
//! | `large_answer` | large answers that are not read yet, bounded together |
//! | `body` | reading bodies: bounded in size, in pace and together |
//! | `idempotency` | keys, and telling a repeat from another request |
//! | `call_key` | the keys of calls that change what is there |
//! | `trace` | the trace a request comes from |
//! | `problem` | every error, in one envelope |
//! | `answer` | every other answer |
//! | `walk` | going through a tenant's jobs, page by page |
//! | `bulk` | one order for many jobs |
//! | `jobs`, `schedules`, `calendars`, `dead_letters`, `queues`, `workers`, `attempts`, `cluster`, `overview`, `tenants`, `webhook_secrets`, `job_types`, `keys`, `audit`, `session`, `health` | the handlers, one noun each |
//! | `openapi`, `docs` | the API's own description, for programs and for people |
//! | `access_log` | one line for each request |
//! | `serve`, `handshake`, `refuse` | connections: how many, how long, how they end; TLS; what one too many gets |

mod access_log;
mod admission;
mod answer;
mod app;
mod attempts;
mod audit;
mod body;
mod bulk;
mod calendars;
mod call_key;
mod caller;
mod cluster;
mod databases;
mod dead_letters;
mod direct;
mod docs;
mod handshake;
mod health;
mod idempotency;
mod job_types;
mod jobs;
mod keys;
mod large_answer;
mod notifications;
mod openapi;
mod overload;
mod overview;
mod problem;
mod queues;
mod refuse;
mod registered;
mod repeats;
mod reservations;
mod retention;
mod routes;
mod schedules;
mod scope;
mod serve;
mod service;
mod session;
mod targets;
mod tenants;
mod to_the_end;
mod trace;
mod walk;
mod webhook_secrets;
mod workers;

pub use app::{HttpLimits, HttpParts};
pub(crate) use caller::Caller;
pub(crate) use direct::{Direct, Sent};
pub(crate) use jobs::submit::{Answer, TakenIn};
pub(crate) use large_answer::Share;
pub(crate) use problem::Problem;
#[cfg(test)]
pub(crate) use routes::all as all_routes;
pub use routes::router;
pub(crate) use scope::{check_report, check_reports};
pub use serve::{ServeLimits, serve, serve_tls};
pub use service::ApiService;
pub(crate) use workers::worker_id;
