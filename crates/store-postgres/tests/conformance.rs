//! The suite, on a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod database;

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_store::Store;
use tidewheel_store::conformance::Home;
use tidewheel_store_postgres::{Options, PostgresStore};

struct Schema(Options);

impl Schema {
    fn new() -> Self {
        Self(database::fresh())
    }
}

#[async_trait]
impl Home for Schema {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(self.0.clone()).await.unwrap())
    }
}

tidewheel_store::conformance_tests!(Schema::new);
tidewheel_store::lease_conformance_tests!(Schema::new);
