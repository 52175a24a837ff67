//! How a database is used.

use std::time::Duration;

use tidewheel_core::limits::SHARDS_COUNT_DEFAULT;
use tidewheel_core::zones::Zones;

use crate::many::Seat;

/// Connections for callers: submissions, lookups, edits.
pub const CALLER_CONNECTIONS_COUNT_DEFAULT: usize = 8;
/// Connections kept for the scheduler, which callers never get.
pub const SCHEDULER_CONNECTIONS_COUNT_DEFAULT: usize = 6;
/// How long a connection may take to be made, and a call may wait for a free one.
pub const CONNECT_DEFAULT: Duration = Duration::from_secs(5);
/// How long the database may take over one statement.
pub const STATEMENT_DEFAULT: Duration = Duration::from_secs(10);
/// How long a call may take in all; a database that hangs answers nothing, not even that it took too long.
pub const CALL_DEFAULT: Duration = Duration::from_secs(15);
/// How long what keeps leases may take. A connection that hangs must leave time to try another before the node stops to
/// trust its leases.
const LEASE_CALL_DEFAULT: Duration = Duration::from_secs(4);
/// How long whoever makes, changes or drops a table waits for a lock: others wait behind it meanwhile. Longer than the second
/// after which the database's own upkeep makes way.
const TABLE_LOCK_DEFAULT: Duration = Duration::from_secs(3);
/// How often a migration tries for a table that others keep in use, every five seconds.
const MIGRATION_TRIES_COUNT_DEFAULT: u32 = 60;
/// Longer than a machine that has much else to do takes for nothing, and well within a lease.
const SILENCE_DEFAULT: Duration = Duration::from_secs(5);
/// The schema the tables stand in.
pub const SCHEMA_DEFAULT: &str = "tidewheel";

/// How a database is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it is: `postgres://user:password@host:port/database`.
    pub url: String,
    /// The schema the tables stand in.
    pub schema: String,
    /// Shards, if the tables are made now.
    pub shards: u16,
    /// Connections for callers, at most.
    pub caller_connections: usize,
    /// Connections for the scheduler, at most.
    pub scheduler_connections: usize,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long one statement may take.
    pub statement: Duration,
    /// How long a call may take in all.
    pub call: Duration,
    /// How long a call that keeps leases may take, if that is less.
    pub lease_call: Duration,
    /// How long whoever makes, changes or drops a table waits for a lock.
    pub table_lock: Duration,
    /// How often a migration tries for a table that others keep in use.
    pub migration_tries: u32,
    /// How long one of several databases may take to say that it is there, before it counts as away.
    pub silence: Duration,
    /// Whether partitions are made ahead by itself; without, everything is kept in the default ones.
    pub makes_partitions: bool,
    /// The time zones schedules may be in; none is the database that comes with the program.
    pub zones: Option<Zones>,
    /// Whether the audit trail has what became of every job, or only what was asked for.
    pub audit_changes: bool,
    /// Which of how many databases it is, if the tables are made now.
    pub seat: Seat,
    /// Whether the tables are made when it is opened, if there are none.
    pub makes_tables: bool,
}

impl Options {
    /// The usual, for the database at `url`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            schema: SCHEMA_DEFAULT.to_owned(),
            shards: SHARDS_COUNT_DEFAULT,
            caller_connections: CALLER_CONNECTIONS_COUNT_DEFAULT,
            scheduler_connections: SCHEDULER_CONNECTIONS_COUNT_DEFAULT,
            connect: CONNECT_DEFAULT,
            statement: STATEMENT_DEFAULT,
            call: CALL_DEFAULT,
            lease_call: LEASE_CALL_DEFAULT,
            table_lock: TABLE_LOCK_DEFAULT,
            migration_tries: MIGRATION_TRIES_COUNT_DEFAULT,
            silence: SILENCE_DEFAULT,
            makes_partitions: true,
            zones: None,
            audit_changes: true,
            seat: Seat::default(),
            makes_tables: true,
        }
    }
}
