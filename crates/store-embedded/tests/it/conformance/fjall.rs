//! The suite, on the engine in use.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_store::Store;
use tidewheel_store_embedded::{EmbeddedStore, Options};
use tidewheel_store_testkit::conformance::Home;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        // In memory where there is such a place: the suite is about answers, not about what a power cut leaves.
        let memory = std::path::Path::new("/dev/shm");
        Self(if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap())
    }
}

#[async_trait]
impl Home for Folder {
    async fn open(&self) -> Arc<dyn Store> {
        let options = Options { cache_bytes: 8 << 20, ..Options::new(self.0.path()) };
        Arc::new(EmbeddedStore::open(options).unwrap())
    }
}

tidewheel_store_testkit::conformance_tests!(Folder::new);
