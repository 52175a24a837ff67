//! The model passes its own suite, and its faults and crashes are what a simulator takes them for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, Error, Layout, Store};
use tidewheel_store_testkit::conformance::Home;
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, MemoryStore};
use tokio::sync::oneshot;

const LAYOUT: Layout = Layout { shards: 8 };

/// Keeps the handle opened last, to open the next one from.
struct MemoryHome(Mutex<Arc<MemoryStore>>);

impl MemoryHome {
    fn new() -> Self {
        Self(Mutex::new(Arc::new(MemoryStore::new(LAYOUT))))
    }
}

#[async_trait]
impl Home for MemoryHome {
    async fn open(&self) -> Arc<dyn Store> {
        let mut last = self.0.lock().unwrap();
        *last = Arc::new(last.reopen());
        Arc::clone(&last) as Arc<dyn Store>
    }
}

tidewheel_store_testkit::conformance_tests!(MemoryHome::new);
tidewheel_store_testkit::lease_conformance_tests!(MemoryHome::new);

/// Hands out prepared faults in turn, then none, and notes what was called.
#[derive(Default)]
struct Script {
    faults: Mutex<VecDeque<Fault>>,
    calls: Mutex<Vec<Call>>,
}

impl Script {
    fn of(faults: impl IntoIterator<Item = Fault>) -> Arc<Self> {
        Arc::new(Self { faults: Mutex::new(faults.into_iter().collect()), ..Self::default() })
    }
}

impl Faults for Script {
    fn before(&self, call: Call) -> Fault {
        self.calls.lock().unwrap().push(call);
        self.faults.lock().unwrap().pop_front().unwrap_or_default()
    }
}

fn down() -> Error {
    Error::Unavailable("the test says so".to_owned())
}

fn checkpoint() -> Vec<Checkpoint> {
    use tidewheel_core::place::{Bucket, Shard};
    vec![Checkpoint { shard: Shard(0), frontier: Bucket(1), cursors: Vec::new() }]
}

#[tokio::test]
async fn a_call_can_fail_before_its_effect_or_after_it() {
    let script = Script::of([
        Fault { failure: Some(Failure::Before(down())), ..Fault::default() },
        Fault::default(),
        Fault { failure: Some(Failure::After(down())), ..Fault::default() },
    ]);
    let store = MemoryStore::new(LAYOUT).with_faults(Arc::clone(&script) as Arc<dyn Faults>);
    assert!(matches!(store.save_checkpoints(checkpoint()).await, Err(Error::Unavailable(_))));
    assert_eq!(store.checkpoints().await.unwrap(), []);
    assert!(matches!(store.save_checkpoints(checkpoint()).await, Err(Error::Unavailable(_))));
    assert_eq!(store.checkpoints().await.unwrap(), checkpoint());
    let expected = [Call::SaveCheckpoints, Call::Checkpoints, Call::SaveCheckpoints, Call::Checkpoints];
    assert_eq!(*script.calls.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_call_can_be_held_up_on_both_ways() {
    let (there, on_the_way_there) = oneshot::channel::<()>();
    let (back, on_the_way_back) = oneshot::channel::<()>();
    let script = Script::of([Fault {
        wait_before: Some(Box::pin(async { on_the_way_there.await.unwrap() })),
        wait_after: Some(Box::pin(async { on_the_way_back.await.unwrap() })),
        ..Fault::default()
    }]);
    let store = Arc::new(MemoryStore::new(LAYOUT).with_faults(script));
    let slow = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.save_checkpoints(checkpoint()).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(store.checkpoints().await.unwrap(), [], "it has not arrived yet");
    there.send(()).unwrap();
    while store.checkpoints().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(!slow.is_finished(), "its answer has not arrived yet");
    back.send(()).unwrap();
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_crash_cuts_off_the_old_handle_and_what_it_had_under_way() {
    let (release, held) = oneshot::channel::<()>();
    let script = Script::of([
        Fault::default(),
        Fault { wait_before: Some(Box::pin(async { held.await.unwrap() })), ..Fault::default() },
    ]);
    let old = Arc::new(MemoryStore::new(LAYOUT).with_faults(script));
    let epoch = old.open_epoch().await.unwrap();
    let under_way = tokio::spawn({
        let old = Arc::clone(&old);
        async move { old.save_checkpoints(checkpoint()).await }
    });
    tokio::task::yield_now().await;
    let new = old.reopen();
    release.send(()).unwrap();
    assert!(matches!(under_way.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(old.open_epoch().await, Err(Error::Closed)));
    assert_eq!(new.checkpoints().await.unwrap(), [], "what was under way did not happen");
    assert!(new.open_epoch().await.unwrap() > epoch);
    assert_eq!(new.drop_history(Timestamp::MIN, Timestamp::MIN).await.unwrap(), 0);
    assert_eq!(new.get(&Tenant::default(), Vec::new()).await.unwrap(), []);
}
