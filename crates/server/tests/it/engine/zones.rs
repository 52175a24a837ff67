//! An engine started with another time zone database than the one before it: everything that waits is brought in
//! line before it starts, and a start that was cut short leaves nothing that the next one does not see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tidewheel_core::cron::{Cron, Dst};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job, Priority};
use tidewheel_core::limits::{HOUR_MS, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing,
};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::{Clock, SystemClock};
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{Error, Layout, ScheduleCommand, ScheduleOrder, Schedules, Store};
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, MemoryStore};

const ZONE: &str = "Atlantic/Atlantis";
/// More than fit on one page.
const SCHEDULES_COUNT: u16 = 1_200;

struct Silence;

impl Deliver for Silence {
    fn deliver(&self, _: Vec<Arc<Job>>, _: &Reports) {}
    fn abort(&self, _: &JobId) {}
}

/// Lets so many edits of schedules through, and no more.
struct Edits(AtomicUsize);

impl Faults for Edits {
    fn before(&self, call: Call) -> Fault {
        let spent = || self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if call == Call::EditSchedules && spent().is_err() {
            let failure = Some(Failure::Before(Error::Unavailable("on purpose".to_owned())));
            return Fault { failure, ..Fault::default() };
        }
        Fault::default()
    }
}

/// A database in which the zone's clock goes by these rules.
fn database(posix: &str) -> Zones {
    let mut header = b"TZif2".to_vec();
    header.extend([0; 15]);
    for count in [0_u32, 0, 0, 0, 1, 2] {
        header.extend(count.to_be_bytes());
    }
    let block = [0, 0, 0, 0, 0, 0, b'-', 0];
    let file = [&header[..], &block, &header, &block, format!("\n{posix}\n").as_bytes()].concat();
    Zones::from_files(&BTreeMap::from([(Box::from(ZONE), file)]), None, "/zones").unwrap()
}

async fn start(store: &Arc<MemoryStore>, zones: &Zones) -> Result<Engine, Error> {
    let parts = Parts {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::new(Silence),
        zones: zones.clone(),
    };
    Engine::start(parts, Config::default()).await
}

fn creating(number: u16, zones: &Zones) -> ScheduleOrder {
    let id = ScheduleId::from_bytes(u128::from(number).to_be_bytes());
    let definition = Definition {
        rule: Arc::new(Rule {
            timing: Timing::Cron(Box::new(Cron::parse("0 9 29 2 *").unwrap())),
            zone: zones.zone(ZONE).unwrap(),
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: "report".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("reports".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: TIMEOUT_MS_DEFAULT,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    };
    let new = NewSchedule { id, tenant: Tenant::default(), name: None, definition, paused: false };
    let command = ScheduleCommand::Create { new: Box::new(new), fresh: false };
    ScheduleOrder { tenant: Tenant::default(), id, if_version: None, command, key: None }
}

async fn next_fires(store: &MemoryStore) -> Vec<Timestamp> {
    let ids = (0..SCHEDULES_COUNT).map(|n| ScheduleId::from_bytes(u128::from(n).to_be_bytes())).collect();
    let schedules = store.schedules(&Tenant::default(), ids).await.unwrap();
    schedules.into_iter().map(|schedule| schedule.unwrap().next.unwrap().fire_at).collect()
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_made_up_for_by_the_next() {
    let (old, new) = (database("<+00>0"), database("<-01>1"));
    let edits = Arc::new(Edits(AtomicUsize::new(usize::MAX)));
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&edits) as Arc<dyn Faults>);
    let store = Arc::new(store);
    let engine = start(&store, &old).await.unwrap();
    assert_eq!(store.noted_zones().await.unwrap().as_deref(), Some(&*old.identity()));
    let orders = (0..SCHEDULES_COUNT).map(|number| creating(number, &old)).collect();
    store.edit_schedules(SystemClock::new().now(), orders).await.unwrap();
    let before = next_fires(&store).await;
    let after: Vec<_> = before.iter().map(|at| at.plus_ms(HOUR_MS)).collect();
    drop(engine);

    // Some are moved, then it ends: the store knows neither database any more.
    let store = Arc::new(store.reopen());
    edits.0.store(1, Ordering::SeqCst);
    assert!(start(&store, &new).await.is_err());
    assert_eq!(store.noted_zones().await.unwrap(), None);
    let mixed = next_fires(&store).await;
    assert!(mixed != before && mixed != after);

    // Whichever database comes next, all of them are by it.
    edits.0.store(usize::MAX, Ordering::SeqCst);
    for (zones, expected) in [(&old, &before), (&new, &after)] {
        let store = Arc::new(store.reopen());
        drop(start(&store, zones).await.unwrap());
        assert_eq!(&next_fires(&store).await, expected);
        assert_eq!(store.noted_zones().await.unwrap().as_deref(), Some(&*zones.identity()));
    }

    // And where nothing is new, nothing is written.
    edits.0.store(0, Ordering::SeqCst);
    let store = Arc::new(store.reopen());
    assert!(start(&store, &new).await.is_ok());
}
