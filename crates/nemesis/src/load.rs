//! Who submits: jobs at a constant rate, whatever becomes of the ones before, and schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tidewheel_core::time::Timestamp;

use crate::clock;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::history::{Event, History};
use crate::workers::QUEUE;

/// How long a client tries to submit one job, at one node after the other.
const INSIST: Duration = Duration::from_secs(10);
/// How long it is tried to make one schedule. Nothing is broken then, but the machine may be busy.
const MAKING: Duration = Duration::from_secs(60);
/// Clients at a time; what would be more is not submitted.
const CLIENTS_COUNT_MAX: usize = 300;
/// Time between two fires of schedules.
const EVERY_MS: [i64; 3] = [2_000, 3_000, 5_000];

/// Who submits.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) history: Arc<History>,
    pub(crate) target_port: u16,
    pub(crate) tenants: Vec<String>,
    /// Time between two submissions.
    pub(crate) pace: Duration,
    pub(crate) is_over: Arc<AtomicBool>,
    pub(crate) clients: Arc<AtomicUsize>,
}

fn retry() -> Value {
    json!({"max_attempts": 100, "policy": "fixed", "base": "300ms"})
}

impl Load {
    /// Submits until it is told to stop.
    pub(crate) fn submit_all(&self, mut dice: Dice) {
        let mut number = 0_u64;
        while !self.is_over.load(Ordering::SeqCst) {
            clock::pause(self.pace);
            if self.clients.load(Ordering::SeqCst) >= CLIENTS_COUNT_MAX {
                continue;
            }
            let tenant = self.tenants.get(dice.below(self.tenants.len())).cloned().unwrap_or_default();
            let is_pushed = dice.percent(50);
            let delay = if dice.percent(40) { Duration::ZERO } else { dice.between_ms(1, 5_000) };
            let (load, key, node) = (self.clone(), format!("job-{number}"), dice.below(self.cluster.count()));
            self.clients.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                load.submit(&tenant, &key, delay, is_pushed, node);
                load.clients.fetch_sub(1, Ordering::SeqCst);
            });
            number += 1;
        }
        clock::until(2 * INSIST, || (self.clients.load(Ordering::SeqCst) == 0).then_some(()));
    }

    fn destination(&self, body: &mut Value, is_pushed: bool) {
        let (name, value) = if is_pushed {
            ("target_url", format!("http://{}:{}/", self.cluster.hub(), self.target_port))
        } else {
            ("queue", QUEUE.to_owned())
        };
        if let Some(fields) = body.as_object_mut() {
            fields.insert(name.to_owned(), Value::from(value));
        }
    }

    fn submit(&self, tenant: &str, key: &str, delay: Duration, is_pushed: bool, mut node: usize) {
        let run_at_ms = clock::now_ms() + i64::try_from(delay.as_millis()).unwrap_or(0);
        let mut body = json!({
            "type": "t", "run_at": Timestamp::from_ms(run_at_ms).to_string(), "payload": {"key": key},
            "idempotency_key": key, "retry": retry(), "timeout": "4s",
        });
        self.destination(&mut body, is_pushed);
        let to = if is_pushed { "target" } else { "queue" }.to_owned();
        let (tenant_of, key_of) = (tenant.to_owned(), key.to_owned());
        self.history.note(Event::Submitting { tenant: tenant_of, key: key_of, run_at_ms, to });
        let began = clock::instant();
        let mut status = None;
        while began.elapsed() < INSIST {
            let answer = self.cluster.ask(node, tenant, "POST", "/v1/jobs", Some(&body));
            status = answer.as_ref().map(|answer| answer.status);
            let id = answer.filter(|answer| answer.status < 300).map(|answer| answer.json());
            if let Some(id) = id.and_then(|job| job.get("id")?.as_str().map(str::to_owned)) {
                self.history.note(Event::Submitted { tenant: tenant.to_owned(), key: key.to_owned(), id });
                return;
            }
            node += 1;
            clock::pause(Duration::from_millis(200));
        }
        self.history.note(Event::GivenUp { tenant: tenant.to_owned(), key: key.to_owned(), status });
    }

    /// Schedules of each kind for each tenant; gives their tenants and ids.
    pub(crate) fn make_schedules(&self) -> anyhow::Result<Vec<(String, String)>> {
        let policies = [("fire_all", 50), ("fire_latest", 0), ("skip", 0)];
        let mut made = Vec::new();
        for (number, tenant) in self.tenants.iter().enumerate() {
            for (kind, (misfire, cap)) in policies.into_iter().enumerate() {
                let every_ms = EVERY_MS.get((number + kind) % EVERY_MS.len()).copied().unwrap_or(2_000);
                let mut body = json!({
                    "name": format!("every-{kind}"), "every": format!("{}s", every_ms / 1_000), "type": "tick",
                    "misfire": misfire, "retry": retry(), "timeout": "4s", "overlap": "allow",
                });
                if let (true, Some(fields)) = (cap > 0, body.as_object_mut()) {
                    fields.insert("misfire_cap".to_owned(), Value::from(cap));
                }
                self.destination(&mut body, (number + kind) % 2 == 0);
                // Not a key in the body: it would be that of its runs.
                let key = format!("schedule-{kind}");
                let answer = clock::until(MAKING, || {
                    let answer = self.cluster.make(number, tenant, "/v1/schedules", &key, &body)?;
                    (answer.status != 503).then_some(answer)
                });
                let answer = answer.context("no answer to a new schedule")?;
                let said = String::from_utf8_lossy(&answer.body);
                anyhow::ensure!([200, 201].contains(&answer.status), "{said}");
                let schedule = answer.json();
                let text = |name: &str| schedule.get(name).and_then(Value::as_str).map(str::to_owned);
                let id = text("id").context("a schedule without an id")?;
                // When it fires next is no help: one whose first answer was lost may have fired.
                let made_at = text("created_at").and_then(|at| at.parse::<Timestamp>().ok());
                let first_ms = made_at.context("a schedule that was never made")?.as_ms() + every_ms;
                made.push((tenant.clone(), id.clone()));
                self.history.note(Event::Schedule { tenant: tenant.clone(), id, first_ms, every_ms });
            }
        }
        Ok(made)
    }
}
