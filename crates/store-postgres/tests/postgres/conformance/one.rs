//! The suite, on a real PostgreSQL. Meanwhile the marks that spare reads what is over are moved up all the time, and as far
//! as they may go, so that jobs come in before, at and after them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tidewheel_core::limits::BUCKET_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, Store};
use tidewheel_store_postgres::{Options, PostgresStore};
use tidewheel_store_testkit::conformance::Home;

use crate::database;

struct Schema(Options);

impl Schema {
    fn new() -> Self {
        Self(database::fresh())
    }
}

#[async_trait]
impl Home for Schema {
    async fn open(&self) -> Arc<dyn Store> {
        let store = Arc::new(PostgresStore::open(self.0.clone()).await.unwrap());
        // Two, as upkeep of several nodes may meet.
        tokio::spawn(settle(Arc::downgrade(&store)));
        tokio::spawn(settle(Arc::downgrade(&store)));
        store
    }
}

/// Until the store is closed.
async fn settle(store: Weak<PostgresStore>) {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    // Most of what the suite submits is due soon after this.
    let start = Timestamp::from_ms(3_000_000 * BUCKET_MS);
    let turns = [0, 1, 2, 5].map(|buckets| start.plus_ms(buckets * BUCKET_MS));
    for until in turns.into_iter().cycle() {
        tick.tick().await;
        let Some(store) = store.upgrade() else { return };
        // Other errors: it may have met with the batch of a test, which comes first.
        if matches!(store.settle(until).await, Err(Error::Closed)) {
            return;
        }
    }
}

tidewheel_store_testkit::conformance_tests!(Schema::new);
tidewheel_store_testkit::lease_conformance_tests!(Schema::new);
