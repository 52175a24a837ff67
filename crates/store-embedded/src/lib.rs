//! The embedded store of Tidewheel: jobs in one folder, for one process, durable before they are acknowledged.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kv`] | the seam to the engine: sorted keyspaces, one durable batch, snapshots |
//! | `keys`, `record`, `lean`, `attempts`, `append` | the bytes on disk |
//! | `schedule_record`, `definition`, `rules`, `ledger`, `sheet` | those of schedules |
//! | `documents` | those of small documents |
//! | `audit` | those of the audit trail |
//! | `commit` | the one thread that writes, many requests to a sync |
//! | `read` | due work, lookups, lists |
//! | `unreadable` | what is done about records that cannot be read |
//! | `view`, `gaps`, `ahead` | attempts under way, what is known to be empty, schedules about to fire: in memory |
//! | `fjall_kv`, `journal`, `mark`, `buffers` | the engine, and what is done about its habits |
//! | [`faulty`] | an engine that loses what was not synced, for tests |
//! | [`bare`] | the engine's own speed, to measure against |
//!
//! A job is written whole under its time ([`kv::Keyspace::Waiting`]), so reading what is due reads what is to be
//! run, and id and tenant are its key. Starting an attempt writes a share of one small record; ending it deletes
//! the job there and puts it into the history of the day.

mod ahead;
mod append;
mod attempts;
mod audit;
mod buffers;
mod checkpoints;
mod commit;
mod counters;
mod definition;
mod documents;
mod fjall_kv;
mod gaps;
mod journal;
mod keys;
mod lean;
mod ledger;
mod mark;
mod open;
mod options;
mod place;
mod pointers;
mod read;
mod record;
mod recovered;
mod rules;
mod schedule_counts;
mod schedule_record;
mod schedules;
mod shared;
mod sheet;
mod spread;
mod stopwatch;
mod store;
mod unreadable;
mod versioned;
mod view;

pub mod bare;
pub mod faulty;
pub mod kv;

pub use fjall_kv::FjallKv;
pub use options::{CACHE_BYTES_DEFAULT, CommitReport, OnCommit, OpenError, Options};
pub use store::EmbeddedStore;
