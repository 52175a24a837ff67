//! The pure heart of Tidewheel. Nothing here waits, reads a clock, draws a random number or touches a
//! device: `now` and randomness are arguments, and the same input always gives the same answer.
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | instants and durations, as users write them |
//! | [`names`] | tenants, queues, job types, keys: what they may look like |
//! | [`id`] | job ids, which say where a job lives |
//! | [`place`] | shards, buckets and positions in the order the stores keep |
//! | [`job`] | a job, its states, and the one function that changes them |
//! | [`retry`] | how long to wait before the next attempt |
//! | [`wheel`] | the timing wheel for what is near |
//! | [`lanes`] | the fair, bounded lanes for what is due |
//! | [`breaker`] | whether a target is worth calling |
//! | [`cron`] | cron expressions, on civil time |
//! | [`schedule`] | recurring schedules: what fires when, and what is decided at each instant |
//! | [`trace`] | the trace a job was submitted in |
//! | [`webhook`] | signatures of pushed jobs |
//! | [`zones`] | the rules of time zones in use, and which they are |
//! | [`audit`] | the audit trail: chained records, and checking them |
//! | [`glance`] | looking at a handful of jobs before dealing with each |
//! | [`limits`] | every bound, with its unit in its name |

pub mod audit;
pub mod breaker;
pub mod cron;
pub mod glance;
pub mod id;
pub mod job;
pub mod lanes;
pub mod limits;
pub mod names;
pub mod place;
pub mod retry;
pub mod schedule;
pub mod time;
pub mod trace;
pub mod webhook;
pub mod wheel;
pub mod zones;
