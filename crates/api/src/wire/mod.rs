//! The wire: requests are read by hand, so that one answer can name everything that is wrong with them and a
//! payload passes untouched; answers are written straight into one buffer.
//!
//! | module | what it holds |
//! |---|---|
//! | [`fault`] | what can be wrong: stable codes, and where in the request |
//! | [`read`] | one JSON object, field by field |
//! | [`job_request`] | a job to be submitted |
//! | [`order_request`] | what is asked of jobs that exist |
//! | [`worker_request`] | what pull workers say |
//! | [`filter`] | which jobs are meant |
//! | [`query`] | the part of an address after `?` |
//! | [`split`] | a long body, item by item |
//! | [`write`](mod@write) | jobs as JSON |

pub mod fault;
pub mod filter;
pub mod job_request;
pub mod order_request;
pub mod query;
pub mod read;
pub mod split;
pub mod worker_request;
pub mod write;
