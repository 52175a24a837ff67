//! The wire: requests are read by hand, so that one answer can name everything that is wrong with them and a
//! payload passes untouched; answers are written straight into one buffer.
//!
//! | module | what it holds |
//! |---|---|
//! | [`fault`] | what can be wrong: stable codes, and where in the request |
//! | [`read`] | one JSON object, field by field |
//! | `number` | numbers and durations in it, exactly |
//! | [`job_request`] | a job to be submitted |
//! | [`call_key`] | the idempotency key of a call that is no submission |
//! | [`order_request`] | what is asked of jobs that exist |
//! | [`schedule_request`] | a schedule to be made or changed; previews, backfills, calendars |
//! | [`flat_request`] | a job or a schedule in the flat form with `schedule_type` |
//! | [`worker_request`] | what pull workers say |
//! | [`tenant_request`], [`key_request`], [`type_request`] | what an operator sets |
//! | [`session_request`] | signing in |
//! | [`worker_query`] | what is asked about them |
//! | [`filter`] | which jobs are meant |
//! | [`query`] | the part of an address after `?` |
//! | [`schedule_query`] | the same, for schedules and their ledgers |
//! | [`split`] | a long body, item by item |
//! | [`write`](mod@write) | jobs as JSON |
//! | [`schedule_write`] | schedules and ledgers as JSON |

pub mod audit;
pub mod audit_ends;
pub mod audit_query;
pub mod call_key;
pub mod fault;
pub mod filter;
pub mod flat_request;
pub mod job_request;
pub mod key_request;
pub mod notification_request;
mod number;
pub mod order_request;
pub mod query;
pub mod read;
pub mod schedule_query;
pub mod schedule_request;
pub mod schedule_write;
pub mod session_request;
pub mod split;
pub mod tenant_request;
pub mod type_request;
pub mod worker_query;
pub mod worker_request;
pub mod write;
