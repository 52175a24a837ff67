//! One run: a database with a synchronous standby, nodes, load; faults; everything mended; a rolling restart; and in the end all
//! that was acknowledged is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidewheel_core::time::Timestamp;

use crate::checker::{Bounds, Violation, check};
use crate::clock;
use crate::cluster::{Cluster, Lines, Plan};
use crate::dice::Dice;
use crate::faketime::faketime;
use crate::faults::Nemesis;
pub use crate::faults::{KINDS, Kind};
use crate::forwarder::Forwarder;
use crate::history::{Event, History, Phase};
use crate::load::Load;
use crate::network::{self, Network};
use crate::pair::Pair;
use crate::postgres::Setup;
use crate::target::Target;
use crate::workers::{self, Workshop};

/// Tenants, so many that each node serves some.
const TENANTS_COUNT: usize = 6;
/// Time between two submissions.
const PACE: Duration = Duration::from_millis(150);
/// How long a pause is in a long run: longer than a lease.
const PAUSE: Duration = Duration::from_secs(20);
/// How long load goes before anything is broken.
const CALM: Duration = Duration::from_secs(4);
/// How long everything must have been on time to count as recovered.
const STEADY_MS: i64 = 4_000;
/// How long what is left in the end may take, besides the bound of recovery.
const ENDING: Duration = Duration::from_secs(60);
/// The states in which jobs end.
const ENDED: [&str; 5] = ["succeeded", "dead", "cancelled", "expired", "skipped"];

/// What to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The program under test.
    pub program: PathBuf,
    /// How long things are broken.
    pub length: Duration,
    /// Chooses what is broken, and when.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// What may be broken.
    pub kinds: Vec<Kind>,
    /// Where the history is written, besides.
    pub history: Option<PathBuf>,
    /// By how much bounds in time are stretched.
    pub slack: u32,
    /// Keeps the logs here.
    pub logs: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// All that is wrong.
    pub violations: Vec<Violation>,
    /// In words.
    pub summary: String,
}

/// Runs it.
///
/// # Errors
/// When something of the run itself fails; what is wrong with the program is in the report.
pub fn run(config: &Config) -> anyhow::Result<Report> {
    let folder = TempDir::new()?;
    let logs = config.logs.clone().unwrap_or_else(|| folder.path().to_owned());
    std::fs::create_dir_all(&logs)?;
    let history = Arc::new(History::new(config.history.as_deref())?);
    let setup = match network::is_inside() {
        true => Setup { host: network::HUB.to_owned(), logs: Some(logs.clone()), ..Setup::default() },
        false => Setup { logs: Some(logs.clone()), ..Setup::default() },
    };
    // Laid first: the database listens on it.
    let network = network::is_inside().then(|| Network::lay(config.nodes)).transpose()?;
    let pair = Arc::new(Pair::start(&setup)?);
    let lines = match network {
        Some(network) => Lines::Namespaces(network),
        None => Lines::Forwarders(forwarders(&pair, config.nodes)?),
    };
    let wants_clocks = config.kinds.contains(&Kind::Clock);
    let plan = Plan {
        program: config.program.clone(),
        folder: logs,
        nodes: config.nodes,
        faketime: faketime().filter(|_| wants_clocks),
    };
    let cluster = Arc::new(Cluster::start(plan, lines, &pair, Arc::clone(&history))?);
    let stage = Stage { config, pair, cluster, history };
    stage.play()?;
    let entries = stage.history.entries();
    let violations = check(&entries, Bounds::stretched(config.slack));
    Ok(Report { violations, summary: summary(&entries) })
}

fn forwarders(pair: &Pair, nodes: usize) -> anyhow::Result<Vec<[Forwarder; 2]>> {
    let [first, second] = pair.servers();
    let start = |port: u16| Forwarder::start(([127, 0, 0, 1], port).into());
    (0..nodes).map(|_| Ok([start(first.port())?, start(second.port())?])).collect()
}

struct Stage<'a> {
    config: &'a Config,
    pair: Arc<Pair>,
    cluster: Arc<Cluster>,
    history: Arc<History>,
}

impl Stage<'_> {
    fn begin(&self, phase: Phase) {
        self.history.note(Event::Phase { phase });
    }

    fn play(&self) -> anyhow::Result<()> {
        let (is_gentle, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let no_more_load = Arc::new(AtomicBool::new(false));
        let tenants: Vec<String> = (0..TENANTS_COUNT).map(|number| format!("tenant-{number}")).collect();
        let target = Target::start(self.cluster.hub(), &self.history, &is_gentle)?;
        let load = Load {
            cluster: Arc::clone(&self.cluster),
            history: Arc::clone(&self.history),
            target_port: target.port,
            tenants: tenants.clone(),
            pace: PACE,
            is_over: Arc::clone(&no_more_load),
            clients: Arc::new(AtomicUsize::new(0)),
        };
        self.begin(Phase::Calm);
        let schedules = load.make_schedules()?;
        let workshop = Workshop {
            cluster: Arc::clone(&self.cluster),
            history: Arc::clone(&self.history),
            is_gentle: Arc::clone(&is_gentle),
            is_over: Arc::clone(&is_over),
        };
        let hands = workers::start(&workshop, &tenants);
        let supervisor = self.supervise(&is_over);
        let dice = Dice::new(self.config.seed);
        let submitting = std::thread::spawn(move || load.submit_all(dice));
        let outcome = self.trouble(&is_gentle);
        no_more_load.store(true, Ordering::SeqCst);
        submitting.join().map_err(|_| anyhow::anyhow!("the load failed"))?;
        self.begin(Phase::Ending);
        let outcome = outcome.and_then(|()| self.end(&schedules));
        is_over.store(true, Ordering::SeqCst);
        for hand in hands.into_iter().chain([supervisor]) {
            hand.join().map_err(|_| anyhow::anyhow!("a worker failed"))?;
        }
        outcome
    }

    fn supervise(&self, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
        let (cluster, is_over) = (Arc::clone(&self.cluster), Arc::clone(is_over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                cluster.supervise();
                clock::pause(Duration::from_millis(200));
            }
        })
    }

    /// Faults, recovery, rolling restart.
    fn trouble(&self, is_gentle: &AtomicBool) -> anyhow::Result<()> {
        clock::pause(CALM.min(self.config.length));
        self.begin(Phase::Faults);
        let nemesis = Nemesis {
            cluster: Arc::clone(&self.cluster),
            pair: Arc::clone(&self.pair),
            history: Arc::clone(&self.history),
            pause: PAUSE.min(self.config.length / 3).max(Duration::from_secs(3)),
        };
        nemesis.work(self.config.length, &self.config.kinds, Dice::new(self.config.seed ^ 1))?;
        self.begin(Phase::Healed);
        self.recover();
        is_gentle.store(true, Ordering::SeqCst);
        self.cluster.until_shared()?;
        // What failed before is tried again by now, and done.
        clock::until(Duration::from_secs(30), || self.is_steady().then_some(()));
        self.begin(Phase::Rolling);
        for node in 0..self.cluster.count() {
            let code = self.cluster.stop(node)?;
            self.history.note(Event::NodeStopped { node, code });
            anyhow::ensure!(code == Some(0), "node {node} stopped with {code:?}");
            self.cluster.revive(node)?;
            self.cluster.until_shared()?;
        }
        Ok(())
    }

    /// Waits until what is due starts in time again, or it is certain that it does not.
    fn recover(&self) {
        let bounds = Bounds::stretched(self.config.slack);
        let most_ms = bounds.recovery_ms_max + 2 * bounds.lag_ms_max;
        let most = Duration::from_millis(u64::try_from(most_ms).unwrap_or(0));
        clock::until(most, || {
            clock::pause(Duration::from_millis(300));
            self.is_steady().then_some(())
        });
    }

    /// Whether all that is due has started, and all of the last seconds in time.
    fn is_steady(&self) -> bool {
        let lag_ms_max = Bounds::stretched(self.config.slack).lag_ms_max;
        let now_ms = clock::now_ms();
        let entries = self.history.entries();
        let healed = Event::Phase { phase: Phase::Healed };
        let healed_ms = entries.iter().rev().find(|entry| entry.event == healed).map_or(now_ms, |e| e.at_ms);
        let started: BTreeSet<&str> = entries
            .iter()
            .filter_map(|entry| {
                if let Event::Started { run_key, .. } = &entry.event { Some(run_key.as_str()) } else { None }
            })
            .collect();
        let asked = entries.iter().filter_map(|entry| {
            if let Event::Submitting { key, run_at_ms, .. } = &entry.event {
                Some((key.as_str(), *run_at_ms))
            } else {
                None
            }
        });
        let given_up: BTreeSet<&str> =
            entries
                .iter()
                .filter_map(|entry| {
                    if let Event::GivenUp { key, .. } = &entry.event { Some(key.as_str()) } else { None }
                })
                .collect();
        let is_due = |run_at_ms: i64| run_at_ms < now_ms - lag_ms_max / 5;
        let mut waiting = asked.filter(|(key, run_at_ms)| {
            is_due(*run_at_ms) && !started.contains(key) && !given_up.contains(key)
        });
        now_ms - healed_ms > STEADY_MS && waiting.next().is_none()
    }

    /// Asks for all that was acknowledged, until it has ended, and for what became of schedules.
    fn end(&self, schedules: &[(String, String)]) -> anyhow::Result<()> {
        for (tenant, id) in schedules {
            self.history.note(Event::Pausing { id: id.clone() });
            let path = format!("/v1/schedules/{id}/pause");
            self.insist(tenant, "POST", &path)?;
            self.history.note(Event::Paused { id: id.clone() });
        }
        let mut jobs = self.acknowledged();
        let mut firings = Vec::new();
        for (tenant, id) in schedules {
            for firing in self.firings(tenant, id)? {
                if let Event::Firing { job_id: Some(job), .. } = &firing {
                    jobs.insert((tenant.clone(), job.clone()));
                }
                firings.push(firing);
            }
        }
        self.note_ends(jobs);
        firings.into_iter().for_each(|firing| self.history.note(firing));
        Ok(())
    }

    fn acknowledged(&self) -> BTreeSet<(String, String)> {
        let entries = self.history.entries();
        let submitted = entries.into_iter().filter_map(|entry| {
            if let Event::Submitted { tenant, id, .. } = entry.event { Some((tenant, id)) } else { None }
        });
        submitted.collect()
    }

    /// Waits until these jobs have ended, and notes how; those that do not in time as they are.
    fn note_ends(&self, mut jobs: BTreeSet<(String, String)>) {
        let slack = Duration::from_millis(25_000) * self.config.slack;
        let began = clock::instant();
        while !jobs.is_empty() {
            let is_late = began.elapsed() > ENDING + slack;
            let tenants: BTreeSet<String> = jobs.iter().map(|(tenant, _)| tenant.clone()).collect();
            for tenant in tenants {
                let states = self.states(&tenant).unwrap_or_default();
                let (ours, others) = jobs.into_iter().partition(|(of, _)| *of == tenant);
                jobs = others;
                for (tenant, id) in ours {
                    let state = states.get(&id).cloned();
                    if is_late || state.as_deref().is_some_and(|state| ENDED.contains(&state)) {
                        let state = state.or_else(|| self.state(&tenant, &id));
                        self.history.note(Event::Job { tenant, id, state });
                    } else {
                        jobs.insert((tenant, id));
                    }
                }
            }
            clock::pause(Duration::from_millis(300));
        }
    }

    /// The states of all of a tenant's jobs.
    fn states(&self, tenant: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let items = self.pages(tenant, "/v1/jobs")?;
        let text = |item: &Value, name: &str| Some(item.get(name)?.as_str()?.to_owned());
        Ok(items.iter().filter_map(|item| Some((text(item, "id")?, text(item, "state")?))).collect())
    }

    /// All items of a list.
    fn pages(&self, tenant: &str, path: &str) -> anyhow::Result<Vec<Value>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.insist(tenant, "GET", &format!("{path}?limit=1000{cursor}"))?;
            found.extend(page.get("items").and_then(Value::as_array).into_iter().flatten().cloned());
            match page.get("next_cursor").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
    }

    fn state(&self, tenant: &str, id: &str) -> Option<String> {
        let job = self.insist(tenant, "GET", &format!("/v1/jobs/{id}")).ok()?;
        job.get("state")?.as_str().map(str::to_owned)
    }

    fn insist(&self, tenant: &str, method: &str, path: &str) -> anyhow::Result<Value> {
        let mut said = String::new();
        for node in 0..self.cluster.count() * 10 {
            if let Some(answer) = self.cluster.ask(node, tenant, method, path, None) {
                if answer.status < 300 {
                    return Ok(answer.json());
                }
                said = String::from_utf8_lossy(&answer.body).into_owned();
                if answer.status == 404 {
                    break;
                }
            }
            clock::pause(Duration::from_millis(200));
        }
        anyhow::bail!("{method} {path}: {said}")
    }

    /// The ledger, all of it.
    fn firings(&self, tenant: &str, id: &str) -> anyhow::Result<Vec<Event>> {
        let items = self.pages(tenant, &format!("/v1/schedules/{id}/firings"))?;
        let firing = |item: &Value| {
            let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
            let fire_at = text("fire_at").and_then(|at| at.parse::<Timestamp>().ok());
            Event::Firing {
                schedule: id.to_owned(),
                fire_at_ms: fire_at.map_or(0, Timestamp::as_ms),
                outcome: text("outcome").unwrap_or_default(),
                job_id: text("job_id"),
            }
        };
        Ok(items.iter().map(firing).collect())
    }
}

/// What happened, in a few numbers.
fn summary(entries: &[crate::history::Entry]) -> String {
    let count = |is: fn(&Event) -> bool| entries.iter().filter(|entry| is(&entry.event)).count();
    let lines = [
        ("submissions", count(|event| matches!(event, Event::Submitting { .. }))),
        ("acknowledged", count(|event| matches!(event, Event::Submitted { .. }))),
        ("attempts started", count(|event| matches!(event, Event::Started { .. }))),
        ("outcomes reported", count(|event| matches!(event, Event::Reported { .. }))),
        ("instants in ledgers", count(|event| matches!(event, Event::Firing { .. }))),
        ("faults", count(|event| matches!(event, Event::Fault { .. }))),
    ];
    let lines = lines.map(|(name, count)| format!("{count} {name}"));
    lines.join(", ")
}
