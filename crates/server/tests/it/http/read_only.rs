//! Workers that ask a server whose store takes no writes any more: told so, and not that it stops, nor answered with nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tidewheel_server::http::HttpLimits;
use tidewheel_store::{Error, Layout};
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, MemoryStore};

use crate::http::harness::Api;

/// Fails every write once a sync has failed.
#[derive(Default)]
struct Disk {
    is_broken: AtomicBool,
}

impl Faults for Disk {
    fn before(&self, call: Call) -> Fault {
        let fails = call.is_write() && self.is_broken.load(Ordering::SeqCst);
        let failure = fails.then(|| Failure::Before(Error::Poisoned("the disk is gone".to_owned())));
        Fault { failure, ..Fault::default() }
    }
}

async fn api() -> (Api, Arc<Disk>) {
    let disk = Arc::new(Disk::default());
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&disk) as Arc<dyn Faults>);
    (Api::over(Arc::new(store), HttpLimits::default()).await, disk)
}

#[tokio::test]
async fn a_take_after_a_failed_sync_is_told_that_the_store_is_read_only() {
    let (api, disk) = api().await;
    api.submit(&json!({"type": "t", "queue": "q"})).await;
    disk.is_broken.store(true, Ordering::SeqCst);
    // The first finds out, the others are told at once.
    for take in [json!({"wait": "60s"}), json!({"wait": "60s"}), json!({})] {
        api.post("/v1/queues/q/take", &take).await.problem(503, "store_read_only");
    }
}

#[tokio::test]
async fn whoever_finds_out_a_take_of_an_empty_queue_is_told() {
    let (api, disk) = api().await;
    disk.is_broken.store(true, Ordering::SeqCst);
    api.post("/v1/jobs", &json!({"type": "t", "delay": "1h"})).await.problem(503, "store_read_only");
    api.post("/v1/queues/q/take", &json!({"wait": "60s"})).await.problem(503, "store_read_only");
}
