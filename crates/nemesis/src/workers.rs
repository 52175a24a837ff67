//! Workers that pull over HTTP, two for each tenant: at whichever node answers. They take on more while they work. Some attempts
//! fail, and some take longer than their lease, so that what they report is stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tidewheel_core::time::Timestamp;

use crate::clock;
use crate::cluster::Cluster;
use crate::dice::fate;
use crate::history::{Event, History, Verdict};

/// The queue of all pulled jobs.
pub(crate) const QUEUE: &str = "pull";
/// How long a worker has until it must be heard of.
const LEASE: &str = "10s";
/// Longer than that.
const TOO_LONG: Duration = Duration::from_secs(12);
/// How long a node may keep a worker waiting that takes, besides what the worker asked for.
const TAKE: Duration = Duration::from_secs(10);
/// How long an outcome is reported again while its answer is unclear.
const REPORT: Duration = Duration::from_secs(40);
/// Of a hundred first attempts, so many fail, and so many take too long.
const FAILED_PERCENT: u64 = 8;
const SLOW_PERCENT: u64 = 3;

/// What workers share.
#[derive(Clone)]
pub(crate) struct Workshop {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) history: Arc<History>,
    /// Nobody fails or is slow any more.
    pub(crate) is_gentle: Arc<AtomicBool>,
    pub(crate) is_over: Arc<AtomicBool>,
}

/// Starts two workers for each tenant.
pub(crate) fn start(workshop: &Workshop, tenants: &[String]) -> Vec<JoinHandle<()>> {
    let tenants = tenants.iter().chain(tenants);
    tenants
        .enumerate()
        .map(|(number, tenant)| {
            let (workshop, tenant) = (workshop.clone(), tenant.clone());
            std::thread::spawn(move || workshop.pull(number, &tenant))
        })
        .collect()
}

impl Workshop {
    fn pull(&self, number: usize, tenant: &str) {
        let mut node = number;
        let wish = json!({"worker": format!("w{number}"), "max": 10, "wait": "5s", "lease": LEASE});
        while !self.is_over.load(Ordering::SeqCst) {
            let path = format!("/v1/queues/{QUEUE}/take");
            let answer = self.cluster.ask_within(TAKE, node, tenant, "POST", &path, Some(&wish));
            match answer.filter(|answer| answer.status == 200) {
                Some(answer) => {
                    for job in answer.json().get("jobs").and_then(Value::as_array).into_iter().flatten() {
                        let (workshop, tenant, job) = (self.clone(), tenant.to_owned(), job.clone());
                        std::thread::spawn(move || workshop.work(node, &tenant, &job));
                    }
                }
                None => {
                    node += 1;
                    clock::pause(Duration::from_millis(100));
                }
            }
        }
    }

    fn work(&self, node: usize, tenant: &str, job: &Value) -> Option<()> {
        let text = |name: &str| job.get(name).and_then(Value::as_str).map(str::to_owned);
        let (id, token) = (text("id")?, job.get("token")?.as_u64()?);
        let attempt = u32::try_from(job.get("attempt")?.as_u64()?).ok()?;
        self.history.note(Event::Started {
            tenant: tenant.to_owned(),
            id: id.clone(),
            run_key: text("idempotency_key").unwrap_or_default(),
            attempt,
            token,
            fire_at_ms: text("fire_at").and_then(|at| at.parse::<Timestamp>().ok()).map(Timestamp::as_ms),
            at: format!("node {}", node % self.cluster.count()),
        });
        let is_rough = attempt == 1 && !self.is_gentle.load(Ordering::SeqCst);
        let fate = if is_rough { fate(&id) % 100 } else { 100 };
        if fate < FAILED_PERCENT {
            self.report(node, tenant, &id, token, "failed");
        } else if fate < FAILED_PERCENT + SLOW_PERCENT {
            clock::pause(TOO_LONG);
            self.report(node, tenant, &id, token, "succeeded");
        } else {
            self.report(node, tenant, &id, token, "succeeded");
        }
        Some(())
    }

    /// Until it is known what became of it.
    fn report(&self, mut node: usize, tenant: &str, id: &str, token: u64, status: &str) {
        let outcome = json!({"token": token.to_string(), "status": status});
        let path = format!("/v1/jobs/{id}/outcome");
        let began = clock::instant();
        while began.elapsed() < REPORT {
            let told = || (id.to_owned(), token, status.to_owned());
            let (id, token, status) = told();
            self.history.note(Event::Reporting { id, token, status });
            let answer = self.cluster.ask(node, tenant, "POST", &path, Some(&outcome));
            let verdict = match answer.map(|answer| answer.status) {
                Some(200..=299) => Verdict::Accepted,
                Some(400..=499) => Verdict::Refused,
                Some(_) | None => Verdict::Unclear,
            };
            let (id, token, status) = told();
            self.history.note(Event::Reported { id, token, status, verdict });
            if verdict != Verdict::Unclear {
                return;
            }
            node += 1;
            clock::pause(Duration::from_millis(300));
        }
    }
}
