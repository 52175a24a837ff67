//! Intervals and a wall clock that is set while they run, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::cron::Dst;
use tidewheel_core::job::{Destination, Job, Priority};
use tidewheel_core::limits::{HOUR_MS, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing, Zone,
};
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Engine, Take, Tenants};
use tidewheel_store::{Layout, ScheduleCommand, ScheduleOrder};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::engine::settable_clock::{SettableClock, start};

const INTERVAL_MS: i64 = 60_000;
/// How late a job may be taken, and the clock be seen to be set.
const SLACK_MS: i64 = 2_000;

fn creating() -> ScheduleOrder {
    let definition = Definition {
        rule: Arc::new(Rule {
            timing: Timing::Every { interval_ms: INTERVAL_MS, anchor: Timestamp::MIN },
            zone: Zone::utc(),
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: "beat".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: TIMEOUT_MS_DEFAULT,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    };
    let id = ScheduleId::from_bytes([7; 16]);
    let new = NewSchedule { id, tenant: Tenant::default(), name: None, definition, paused: false };
    let command = ScheduleCommand::Create { new: Box::new(new), fresh: true };
    ScheduleOrder { tenant: Tenant::default(), id, if_version: None, command, key: None }
}

/// The next fire, however long that takes; longer than the clock may be behind.
async fn take(engine: &Engine) -> Arc<Job> {
    for _ in 0..200 {
        let take = Take {
            tenants: Tenants::Only(vec![Tenant::default()]),
            queue: "q".into(),
            kinds: Vec::new(),
            worker: "w".into(),
            count_max: 1,
            wait_ms: 60_000,
            lease_ms: 10 * HOUR_MS,
        };
        if let Some(job) = engine.take(take).await.unwrap().pop() {
            return job;
        }
    }
    panic!("nothing fires");
}

/// Takes fires; each comes an interval after the one before, and not before the clock shows its time.
async fn expect_beats(engine: &Engine, clock: &SettableClock, since_ms: &mut i64, count: usize) {
    for _ in 0..count {
        let job = take(engine).await;
        let gap_ms = clock.monotonic_ms() - *since_ms;
        *since_ms = clock.monotonic_ms();
        assert!((gap_ms - INTERVAL_MS).abs() < SLACK_MS, "{gap_ms} ms after the one before");
        assert!(job.spec.occurrence.as_ref().unwrap().fire_at <= clock.now());
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_goes_on_when_the_clock_is_set_back() {
    let clock = Arc::new(SettableClock::new());
    let engine = start(&Arc::new(MemoryStore::new(Layout { shards: 4 })), &clock).await;
    engine.edit_schedules(vec![creating()]).await.unwrap().pop().unwrap().unwrap();
    let mut since_ms = clock.monotonic_ms();
    expect_beats(&engine, &clock, &mut since_ms, 3).await;
    for hours in [1, 1, 24] {
        clock.step(-hours * HOUR_MS);
        expect_beats(&engine, &clock, &mut since_ms, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_goes_on_when_the_clock_was_set_back_while_nobody_was_there() {
    let clock = Arc::new(SettableClock::new());
    let store = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let engine = start(&store, &clock).await;
    engine.edit_schedules(vec![creating()]).await.unwrap().pop().unwrap().unwrap();
    let mut since_ms = clock.monotonic_ms();
    expect_beats(&engine, &clock, &mut since_ms, 3).await;
    clock.sleep(Duration::from_secs(20)).await;
    drop(engine);
    clock.step(-HOUR_MS);
    let engine = start(&Arc::new(store.reopen()), &clock).await;
    // By how much exactly nobody saw, so that one may be left out.
    take(&engine).await;
    let gap_ms = clock.monotonic_ms() - since_ms;
    assert!((INTERVAL_MS - SLACK_MS..2 * INTERVAL_MS + SLACK_MS).contains(&gap_ms), "{gap_ms} ms");
    since_ms = clock.monotonic_ms();
    expect_beats(&engine, &clock, &mut since_ms, 3).await;
}
