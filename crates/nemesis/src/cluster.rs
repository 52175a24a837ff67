//! The nodes: started, killed, paused, stopped, cut off, and started again when they end by themselves, as a supervisor does.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::clock;
use crate::faketime;
use crate::forwarder::Forwarder;
use crate::history::{Event, History};
use crate::http::{Answer, Request, send};
use crate::network::{HUB, Network, RANGE};
use crate::pair::{Pair, url};
use crate::postgres::tail;
use crate::process::{Owned, Signal, signal};

/// What a node asks for.
pub const KEY: &str = "twk_nemesis_is_a_key_for_tests_only_0123456789";
/// How long a node may take to come up or to go.
const PATIENCE: Duration = Duration::from_secs(300);
/// Until a node that ended is started again.
const RESTART: Duration = Duration::from_millis(500);

/// How nodes are cut off.
#[derive(Debug)]
pub enum Lines {
    /// By forwarders between each node and the database servers.
    Forwarders(Vec<[Forwarder; 2]>),
    /// By network namespaces.
    Namespaces(Network),
}

/// How nodes are started.
#[derive(Debug)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// A folder for logs and keys.
    pub folder: PathBuf,
    /// How many.
    pub nodes: usize,
    /// The library that sets clocks, if there is one.
    pub faketime: Option<PathBuf>,
}

#[derive(Debug)]
struct Place {
    address: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Owned>,
    /// It served since it was started.
    was_ready: bool,
    /// It is meant to be down.
    is_down: bool,
}

/// The nodes.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    lines: Lines,
    stores: Vec<String>,
    places: Vec<Place>,
    history: Arc<History>,
}

impl Cluster {
    /// Starts all nodes, and waits until each has its share.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn start(plan: Plan, lines: Lines, pair: &Pair, history: Arc<History>) -> anyhow::Result<Self> {
        let (mut stores, mut places) = (Vec::new(), Vec::new());
        for node in 0..plan.nodes {
            let (store, address) = match &lines {
                Lines::Forwarders(each) => {
                    let ends = each.get(node).context("a node without lines")?;
                    let ends = ends.each_ref().map(|end| ("127.0.0.1".to_owned(), end.address().port()));
                    (url(&ends), TcpListener::bind("127.0.0.1:0")?.local_addr()?)
                }
                Lines::Namespaces(_) => (pair.url(), format!("{}:7400", Network::address(node)).parse()?),
            };
            stores.push(store);
            places.push(Place { address, state: Mutex::default() });
        }
        std::fs::write(plan.folder.join("admin.key"), KEY)?;
        let cluster = Self { plan, lines, stores, places, history };
        for node in 0..cluster.plan.nodes {
            cluster.set_clock(node, 0)?;
            cluster.launch(node)?;
        }
        cluster.until_shared().context("the nodes do not share the shards")?;
        Ok(cluster)
    }

    /// How many nodes there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.plan.nodes
    }

    /// Whether clocks can be set.
    #[must_use]
    pub const fn has_clocks(&self) -> bool {
        self.plan.faketime.is_some()
    }

    fn lock(&self, node: usize) -> Option<MutexGuard<'_, State>> {
        Some(self.places.get(node)?.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn log(&self, node: usize) -> PathBuf {
        self.plan.folder.join(format!("node-{node}.log"))
    }

    fn clock_file(&self, node: usize) -> PathBuf {
        self.plan.folder.join(format!("node-{node}.time"))
    }

    fn launch(&self, node: usize) -> anyhow::Result<()> {
        let (Some(place), Some(store)) = (self.places.get(node), self.stores.get(node)) else {
            anyhow::bail!("there is no node {node}")
        };
        let (mut command, range) = match &self.lines {
            Lines::Forwarders(_) => (Command::new(&self.plan.program), "127.0.0.0/8"),
            Lines::Namespaces(network) => (network.command(node, &self.plan.program), RANGE),
        };
        let said = File::options().create(true).append(true).open(self.log(node))?;
        command
            .args(["serve", "--listen", &place.address.to_string(), "--store", store])
            .args(["--allow-target", range, "--min-interval", "1s", "--breaker-cooldown-max", "2s"])
            .arg("--admin-key-file")
            .arg(self.plan.folder.join("admin.key"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        if let Some(library) = &self.plan.faketime {
            faketime::go_by(&mut command, library, &self.clock_file(node));
        }
        let Some(mut state) = self.lock(node) else { return Ok(()) };
        *state = State { process: Some(Owned::spawn(&mut command)?), was_ready: false, is_down: false };
        Ok(())
    }

    /// Starts again what ended by itself; notes it if it had served.
    pub fn supervise(&self) {
        for node in 0..self.count() {
            let is_ready = self.is_ready(node);
            let Some(mut state) = self.lock(node) else { return };
            state.was_ready |= is_ready;
            let ended = state.process.as_mut().and_then(Owned::ended);
            let (Some(code), false) = (ended, state.is_down) else { continue };
            if state.was_ready {
                self.history.note(Event::NodeDied { node, code });
            }
            drop(state);
            clock::pause(RESTART);
            self.launch(node).ok();
        }
    }

    /// kill -9.
    pub fn kill(&self, node: usize) {
        let Some(mut state) = self.lock(node) else { return };
        state.is_down = true;
        if let Some(process) = &mut state.process {
            process.kill();
        }
    }

    /// Starts a node that was killed or stopped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn revive(&self, node: usize) -> anyhow::Result<()> {
        self.launch(node)
    }

    /// Lets a node not run, or run again.
    pub fn pause(&self, node: usize, is_paused: bool) {
        let id = self.lock(node).and_then(|state| state.process.as_ref().map(Owned::id));
        if let Some(id) = id {
            signal(id, if is_paused { Signal::STOP } else { Signal::CONT });
        }
    }

    /// Cuts a node off, or joins it again.
    pub fn cut(&self, node: usize, is_cut: bool) {
        match &self.lines {
            Lines::Forwarders(each) => {
                each.get(node).into_iter().flatten().for_each(|end| end.block(is_cut));
            }
            Lines::Namespaces(network) => network.cut(node, is_cut),
        }
    }

    /// Sets the wall clock of a node, in seconds from the true time.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set_clock(&self, node: usize, by_s: i64) -> anyhow::Result<()> {
        Ok(faketime::set(&self.clock_file(node), by_s)?)
    }

    /// SIGTERM; gives its exit code once it is gone.
    ///
    /// # Errors
    /// When it does not go in time.
    pub fn stop(&self, node: usize) -> anyhow::Result<Option<i32>> {
        let id = {
            let Some(mut state) = self.lock(node) else { return Ok(None) };
            state.is_down = true;
            state.process.as_ref().map(Owned::id)
        };
        if let Some(id) = id {
            signal(id, Signal::TERM);
        }
        let ended = clock::until(PATIENCE, || self.lock(node)?.process.as_mut()?.ended());
        ended.with_context(|| format!("node {node} did not stop: {}", tail(&self.log(node))))
    }

    /// Whether a node takes work.
    #[must_use]
    pub fn is_ready(&self, node: usize) -> bool {
        let request = Request {
            method: "GET",
            path: "/readyz",
            tenant: "default",
            key: Some(KEY),
            idempotency_key: None,
            body: None,
            patience: Duration::from_secs(2),
        };
        self.places.get(node).and_then(|place| send(place.address, &request)).is_some_and(|a| a.status == 200)
    }

    /// Waits until all nodes serve, each its share.
    ///
    /// # Errors
    /// When they do not in time.
    pub fn until_shared(&self) -> anyhow::Result<()> {
        let shared = clock::until(PATIENCE, || {
            let (serving, all) = self.shares(0)?;
            let is_even = serving.iter().all(|shards| *shards > 0) && serving.iter().sum::<u64>() == all;
            (serving.len() == self.count() && is_even).then_some(())
        });
        let logs = || (0..self.count()).map(|node| tail(&self.log(node))).collect::<Vec<_>>().join("\n--\n");
        shared.with_context(|| format!("in their logs:\n{}", logs()))?;
        self.history.note(Event::Shared {});
        Ok(())
    }

    /// Waits until the others serve all shards, and take that node for gone.
    ///
    /// # Errors
    /// When they do not in time.
    pub fn until_missed(&self, node: usize) -> anyhow::Result<()> {
        let missed = clock::until(PATIENCE, || {
            let (serving, all) = self.shares(node + 1)?;
            (serving.len() + 1 == self.count() && serving.iter().sum::<u64>() == all).then_some(())
        });
        missed.with_context(|| format!("nobody takes over from node {node}"))
    }

    /// How many shards each serving node has, as one node sees it, and how many there are.
    fn shares(&self, asked: usize) -> Option<(Vec<u64>, u64)> {
        let answer = self.ask(asked, "default", "GET", "/v1/cluster", None)?.json();
        let nodes = answer.get("nodes")?.as_array()?;
        let serving = nodes
            .iter()
            .filter(|node| node.get("state").and_then(Value::as_str) == Some("serving"))
            .filter_map(|node| node.get("shards")?.as_u64())
            .collect();
        Some((serving, answer.get("shards")?.as_u64()?))
    }

    /// One request to one node.
    #[must_use]
    pub fn ask(
        &self,
        node: usize,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        self.ask_within(Duration::from_secs(6), node, tenant, method, path, body)
    }

    /// The same, with another patience.
    #[must_use]
    pub fn ask_within(
        &self,
        patience: Duration,
        node: usize,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let place = self.places.get(node % self.count())?;
        let (key, idempotency_key) = (Some(KEY), None);
        send(place.address, &Request { method, path, tenant, key, idempotency_key, body, patience })
    }

    /// Has one node make something under a key: asked again, it is not made twice.
    #[must_use]
    pub fn make(&self, node: usize, tenant: &str, path: &str, key: &str, body: &Value) -> Option<Answer> {
        let place = self.places.get(node % self.count())?;
        let request = Request {
            method: "POST",
            path,
            tenant,
            key: Some(KEY),
            idempotency_key: Some(key),
            body: Some(body),
            patience: Duration::from_secs(60),
        };
        send(place.address, &request)
    }

    /// The address targets are reached at.
    #[must_use]
    pub const fn hub(&self) -> &'static str {
        match &self.lines {
            Lines::Forwarders(_) => "127.0.0.1",
            Lines::Namespaces(_) => HUB,
        }
    }
}
