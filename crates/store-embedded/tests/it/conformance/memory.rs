//! The suite, on the engine in memory, which also refuses batches that write a key twice. Its commits take a while, so that
//! calls side by side are judged while those before them are being written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidewheel_store::Store;
use tidewheel_store_embedded::faulty::FaultyKv;
use tidewheel_store_embedded::{EmbeddedStore, Options};
use tidewheel_store_testkit::conformance::Home;

const PACE: Duration = Duration::from_micros(200);

struct Memory(Mutex<Arc<FaultyKv>>);

impl Memory {
    fn new() -> Self {
        Self(Mutex::default())
    }
}

#[async_trait]
impl Home for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        // Only what was synced is there again.
        let mut kv = self.0.lock().unwrap();
        *kv = Arc::new(FaultyKv::reopen(kv.image()));
        kv.set_before_commit(Arc::new(|| std::thread::park_timeout(PACE)));
        Arc::new(EmbeddedStore::open_on(kv.clone(), Options::new("memory")).unwrap())
    }
}

tidewheel_store_testkit::conformance_tests!(Memory::new);
