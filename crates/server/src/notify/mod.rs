//! Tells a tenant, at the URL it has set, of what its owner should know: dead letters, missed runs, targets that fail, and
//! lag. Each notification is a job of that tenant, pushed, signed and retried like any other; what becomes of it is never
//! notified of.
//!
//! | file | what it holds |
//! |---|---|
//! | `digest` | gathering what happens, so that a flood of it makes few notifications |
//! | `message` | what a notification says |

mod digest;
mod message;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Job, Priority, Spec, Target};
use tidewheel_core::limits::{
    DAY_MS, IDEMPOTENCY_WINDOW_MS, NOTIFICATION_ATTEMPTS_COUNT, NOTIFICATION_TIMEOUT_MS, SECOND_MS,
};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{IdempotencyClaim, OnConflict, Submission};
use tokio::sync::mpsc;

use self::digest::{Digest, Gathered};
use self::message::Item;
use crate::directory::{Directory, Event, NotificationSettings};
use crate::engine::{Engine, LaneView, Tiding, origin_of};

/// The type of the jobs that notifications are.
pub const NOTIFICATION_TYPE: &str = "tidewheel.notification";

/// How often lag is looked at, and what was gathered sent.
const LOOK_MS: i64 = SECOND_MS;
/// Lanes of a tenant that are looked at.
const LANES_COUNT_MAX: usize = 1_000;

/// Starts telling; does nothing if it was started before.
pub fn start(engine: &Engine, directory: &Arc<Directory>) {
    if let Some(tidings) = engine.tidings() {
        let notifier = Notifier {
            engine: engine.clone(),
            directory: Arc::clone(directory),
            digest: Digest::default(),
            lagging: BTreeSet::new(),
            look_ms: 0,
        };
        tokio::spawn(notifier.run(tidings));
    }
}

struct Notifier {
    engine: Engine,
    directory: Arc<Directory>,
    digest: Digest,
    /// Tenants that were over their budget at the last look.
    lagging: BTreeSet<Tenant>,
    look_ms: i64,
}

impl Notifier {
    async fn run(mut self, mut tidings: mpsc::Receiver<Tiding>) {
        let clock = Arc::clone(self.engine.clock());
        while !self.engine.is_draining() {
            let nap_ms = (self.look_ms - clock.monotonic_ms()).clamp(1, LOOK_MS);
            tokio::select! {
                biased;
                tiding = tidings.recv() => match tiding {
                    Some(tiding) => self.note(tiding),
                    None => return,
                },
                () = clock.sleep(Duration::from_millis(nap_ms.unsigned_abs())) => {}
            }
            if clock.monotonic_ms() >= self.look_ms {
                self.look_ms = clock.monotonic_ms() + LOOK_MS;
                self.look_at_lag().await;
                self.send().await;
            }
        }
    }

    /// What a tenant wants to be told of an event, if it does.
    fn wanted(&self, tenant: &Tenant, event: Event) -> Option<Arc<NotificationSettings>> {
        self.directory.notifications(tenant).filter(|settings| settings.events.contains(&event))
    }

    fn note(&mut self, tiding: Tiding) {
        let (tenant, event) = match &tiding {
            Tiding::Dead(job) => (&job.tenant, Event::DeadLetter),
            Tiding::Missed { job, .. } => (&job.tenant, Event::MissedRun),
            Tiding::TargetDown { tenant, .. } => (tenant, Event::BreakerOpen),
        };
        let Some(settings) = self.wanted(tenant, event) else { return };
        // What becomes of notifications themselves is not told: there would be no end to it.
        let is_own = match &tiding {
            Tiding::Dead(job) | Tiding::Missed { job, .. } => &*job.spec.kind == NOTIFICATION_TYPE,
            Tiding::TargetDown { host, .. } => origin_of(&settings.url) == &**host,
        };
        if !is_own {
            let (now, monotonic_ms) = self.times();
            let tenant = tenant.clone();
            self.digest.note(tenant, event, Item::of(tiding, now), monotonic_ms);
        }
    }

    fn times(&self) -> (Timestamp, i64) {
        let clock = self.engine.clock();
        (clock.now(), clock.monotonic_ms())
    }

    /// Tells of a lag when it goes over the budget, and not again before it was back.
    async fn look_at_lag(&mut self) {
        for (tenant, settings) in self.directory.all_notifications() {
            if !settings.events.contains(&Event::Lag) {
                self.lagging.remove(&tenant);
                continue;
            }
            let lanes = self.engine.lanes(tenant.clone(), LANES_COUNT_MAX).await;
            let down = self.engine.breakers(tenant.clone()).await;
            let (now, monotonic_ms) = self.times();
            let own = origin_of(&settings.url);
            // What waits for a target that is down is told of as such.
            let is_down = |lane: &LaneView| down.iter().any(|breaker| breaker.host == lane.name);
            let others = lanes.iter().filter(|lane| &*lane.name != own && !is_down(lane));
            let oldest = others.min_by_key(|lane| lane.oldest);
            let over = oldest.filter(|lane| now.since_ms(lane.oldest) > settings.lag_budget_ms);
            match over {
                None => {
                    self.lagging.remove(&tenant);
                }
                Some(lane) => {
                    if self.lagging.insert(tenant.clone()) {
                        let item = Item::lag(lane, now, settings.lag_budget_ms);
                        self.digest.note(tenant, Event::Lag, item, monotonic_ms);
                    }
                }
            }
        }
    }

    async fn send(&mut self) {
        let (now, monotonic_ms) = self.times();
        for gathered in self.digest.due(monotonic_ms) {
            let Some(settings) = self.wanted(&gathered.tenant, gathered.event) else { continue };
            let submission = self.submission(&gathered, &settings, now);
            if let Err(error) = self.engine.submit(vec![submission], OnConflict::KeepOthers).await {
                tracing::warn!(%error, tenant = %gathered.tenant, "a notification could not be stored; trying again");
                self.digest.put_back(gathered, monotonic_ms);
            }
        }
    }

    fn submission(&self, gathered: &Gathered, settings: &NotificationSettings, now: Timestamp) -> Submission {
        let key: Arc<str> = Arc::from(gathered.key());
        let target = Target { url: settings.url.clone(), method: "POST".into(), headers: Vec::new() };
        let spec = Spec {
            kind: Arc::from(NOTIFICATION_TYPE),
            payload: Bytes::from(message::write(gathered, now)),
            destination: Destination::Target(Arc::new(target)),
            priority: Priority::Normal,
            retry: RetryPolicy { max_attempts: NOTIFICATION_ATTEMPTS_COUNT, ..RetryPolicy::default() },
            timeout_ms: NOTIFICATION_TIMEOUT_MS,
            expires_at: Some(now.plus_ms(DAY_MS)),
            idempotency_key: Some(Arc::clone(&key)),
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: now,
        };
        let mut fingerprint = [0; 16];
        blake3::Hasher::new().update(key.as_bytes()).finalize_xof().fill(&mut fingerprint);
        let until = now.plus_ms(IDEMPOTENCY_WINDOW_MS);
        Submission {
            job: Job::new(gathered.tenant.clone(), spec, now, self.engine.random().tail()),
            key: Some(IdempotencyClaim { key, fingerprint, until }),
            fresh: true,
        }
    }
}
