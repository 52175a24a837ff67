//! A schema of its own for every test, in the database that `scripts/with-postgres` starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidewheel_store_postgres::Options;

/// Where the database is.
pub(crate) fn url() -> String {
    std::env::var("TIDEWHEEL_TEST_POSTGRES").expect(
        "these tests need a PostgreSQL: run them with `scripts/with-postgres cargo test -p tidewheel-store-postgres`, \
         or say where one is in TIDEWHEEL_TEST_POSTGRES",
    )
}

/// A schema that nobody else uses. It is left behind: the database is thrown away as a whole.
pub(crate) fn fresh() -> Options {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    let schema = format!("test_{}_{number}", std::process::id());
    Options {
        schema,
        shards: 8,
        caller_connections: 4,
        scheduler_connections: 4,
        // A test says nothing about speed.
        connect: Duration::from_secs(60),
        statement: Duration::from_secs(60),
        call: Duration::from_secs(120),
        lease_call: Duration::from_secs(60),
        table_lock: Duration::from_secs(60),
        silence: Duration::from_secs(60),
        makes_partitions: false,
        ..Options::new(&url())
    }
}
