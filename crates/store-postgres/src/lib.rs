//! The PostgreSQL store: the same contract as every other, on a database that several nodes share.
//!
//! | file | what it is for |
//! |---|---|
//! | `migrate`, `open` | the schema, and opening a database that has it |
//! | `connections`, `hosts`, `fault` | pools, which server they connect to, transactions, what goes wrong with them |
//! | `submit` | submissions, those of many callers together |
//! | `apply` | batches that change something: read, decide, write |
//! | `desk`, `load` | what a batch has read, and how it is read |
//! | `write`, `changes`, `agenda`, `batch` | what it has changed, as rows and statements |
//! | `recall` | jobs as they were last seen, so that they need not be read again |
//! | `settle`, `pace` | marks that spare reads what is over, and how much is done for them at a time |
//! | `audit` | the audit trail |
//! | `leases` | which node has which shard |
//! | `many` | several databases as one store |
//! | `read` | due jobs, lists, schedules |
//! | `record` | what is kept as bytes |
//! | `unreadable` | what is done about rows that cannot be read |
//! | `partitions`, `history` | days made ahead, and dropped when they are old |
//! | `upkeep` | what is done every so often, and when the database is in trouble |
//!
//! The layout of the tables, and why it is so, is in `docs/postgres.md`.

mod agenda;
mod apply;
mod audit;
mod batch;
mod changes;
mod connections;
mod desk;
mod documents;
mod fault;
mod history;
mod hosts;
mod leases;
mod load;
mod many;
mod migrate;
mod news;
mod news_text;
mod open;
mod options;
mod pace;
mod partitions;
mod read;
mod recall;
mod record;
mod schedules;
mod settle;
mod sql;
mod store;
mod submit;
mod tls;
mod uid;
mod unreadable;
mod upkeep;
mod write;

pub use many::{Seat, Spread, SpreadError, migrate_all, open_all};
pub use migrate::{MigrateError, Migrated, SCHEMA_NUMBER, Teller, migrate};
pub use open::OpenError;
pub use options::{
    CALL_DEFAULT, CALLER_CONNECTIONS_COUNT_DEFAULT, CONNECT_DEFAULT, Options,
    SCHEDULER_CONNECTIONS_COUNT_DEFAULT, SCHEMA_DEFAULT, STATEMENT_DEFAULT,
};
pub use store::PostgresStore;
pub use tls::connector;
