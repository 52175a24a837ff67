//! The simulated world: its time, its dice, its record, and the servers in it, which come and go: one that has the store to
//! itself, or several nodes that share it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewheel_core::limits::{SECOND_MS, SUB_SHARDS_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Allotment, Engine, Parts};
use tidewheel_server::metrics::Metrics;
use tidewheel_store::{Error, Layout, NodeCard, Store};
use tidewheel_store_testkit::memory::{Faults, MemoryStore};

use crate::clock::{NodeClock, SimClock};
use crate::dice::Dice;
use crate::history::{Event, History};
use crate::plan::Plan;
use crate::stream_worker::Stroke;
use crate::target::SimTarget;
use crate::weather::Weather;

/// Everything in a run.
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct World {
    /// The run.
    pub plan: Plan,
    /// Its time.
    pub clock: Arc<SimClock>,
    /// Its dice.
    pub dice: Arc<Dice>,
    /// Its record.
    pub history: Arc<History>,
    nodes: Vec<Seat>,
    /// Counts the servers there were.
    lives: AtomicU32,
    /// Sees what the nodes of a cluster share, whatever befalls them.
    observer: Option<Arc<MemoryStore>>,
    /// Says which node of a cluster a caller reaches.
    router: Dice,
    calm: AtomicBool,
    streamed: AtomicUsize,
}

/// A place for a server.
struct Seat {
    clock: Arc<NodeClock>,
    weather: Arc<Weather>,
    server: Mutex<Server>,
    /// Something is being done to it.
    is_busy: AtomicBool,
}

impl Seat {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Server {
    life: u32,
    engine: Option<Engine>,
    store: Arc<MemoryStore>,
}

/// Why a call to the server brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// It was never sent: there is no server.
    NotSent,
    /// It may or may not have taken effect.
    Unclear,
}

/// The one server of a run that is no cluster.
pub const ALONE: usize = 0;

impl World {
    /// A world without a server.
    #[must_use]
    pub fn new(plan: Plan) -> Arc<Self> {
        let clock = Arc::new(SimClock::showing(plan.begins_ms));
        let dice = Arc::new(Dice::new(plan.seed));
        let history = Arc::new(History::new(Arc::clone(&clock)));
        let store = MemoryStore::new(Layout { shards: plan.shards });
        let is_cluster = plan.nodes > 1;
        let seat = |index: usize, store: MemoryStore| {
            let node_clock = Arc::new(NodeClock::new(Arc::clone(&clock), plan.clock_slowness));
            let weather = Weather::new(dice.fork(), Arc::clone(&clock));
            let weather = Arc::new(if is_cluster {
                weather.of_node(index, Arc::clone(&node_clock), Arc::clone(&history), plan.unfenced_claims)
            } else {
                weather
            });
            let store = Arc::new(store.with_faults(Arc::clone(&weather) as Arc<dyn Faults>));
            let server = Mutex::new(Server { life: 0, engine: None, store });
            Seat { clock: node_clock, weather, server, is_busy: AtomicBool::new(false) }
        };
        let (nodes, observer) = if is_cluster {
            let true_time = Arc::clone(&clock);
            let store = store.with_clock(Arc::new(move || true_time.now()));
            let nodes = (0_u64..).zip(0..plan.nodes).map(|(node, index)| seat(index, store.share(node)));
            (nodes.collect(), Some(Arc::new(store)))
        } else {
            (vec![seat(ALONE, store)], None)
        };
        let router = if is_cluster { dice.fork() } else { Dice::new(0) };
        Arc::new(Self {
            plan,
            history,
            clock,
            dice,
            nodes,
            lives: AtomicU32::new(0),
            observer,
            router,
            calm: AtomicBool::new(false),
            streamed: AtomicUsize::new(0),
        })
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits.
    pub async fn sleep_ms(&self, ms: i64) {
        self.clock.sleep_ms(ms).await;
    }

    /// The tenants.
    #[must_use]
    pub fn tenants(&self) -> Vec<Tenant> {
        (0..self.plan.tenants).filter_map(|n| Tenant::new(&format!("tenant-{n}")).ok()).collect()
    }

    /// The shortest lease a worker asks for, in seconds. Where clocks differ, it is long beside the difference.
    #[must_use]
    pub fn lease_s_min(&self) -> i64 {
        if self.plan.nodes > 1 { 3 } else { 1 }
    }

    /// Whether nothing is broken on purpose any more, and everybody behaves.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Ends all faults.
    pub fn calm_down(&self) {
        for seat in &self.nodes {
            seat.weather.clear();
            seat.clock.unfreeze();
        }
        self.calm.store(true, Ordering::SeqCst);
        self.history.note(Event::FaultsOver);
    }

    /// From now on the store is what the run says it is like.
    pub fn set_climate(&self) {
        self.weathers().for_each(|weather| weather.set(self.plan.climate));
    }

    /// What goes wrong between each node and the store.
    pub fn weathers(&self) -> impl Iterator<Item = &Weather> {
        self.nodes.iter().map(|seat| &*seat.weather)
    }

    /// What goes wrong between a node and the store.
    #[must_use]
    pub fn weather(&self, node: usize) -> Option<&Weather> {
        self.nodes.get(node).map(|seat| &*seat.weather)
    }

    /// The clock of a node.
    #[must_use]
    pub fn node_clock(&self, node: usize) -> Option<&NodeClock> {
        self.nodes.get(node).map(|seat| &*seat.clock)
    }

    /// Begins to do something to a node; says whether nobody else does at the time.
    #[must_use]
    pub fn engage(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|seat| !seat.is_busy.swap(true, Ordering::SeqCst))
    }

    /// Is done with a node.
    pub fn disengage(&self, node: usize) {
        if let Some(seat) = self.nodes.get(node) {
            seat.is_busy.store(false, Ordering::SeqCst);
        }
    }

    /// Notes what befalls a worker.
    pub fn note_stroke(&self, stroke: Stroke, extent: usize) {
        self.history.note(Event::Fault(stroke.name(), i64::try_from(extent).unwrap_or(i64::MAX)));
    }

    /// So many jobs came over a stream.
    pub fn count_streamed(&self, count: usize) {
        self.streamed.fetch_add(count, Ordering::SeqCst);
    }

    /// Jobs that came over a stream so far.
    #[must_use]
    pub fn streamed(&self) -> usize {
        self.streamed.load(Ordering::SeqCst)
    }

    /// The number of the server at a place.
    #[must_use]
    pub fn life_of(&self, node: usize) -> u32 {
        self.nodes.get(node).map_or(0, |seat| seat.server().life)
    }

    /// Whether the server of that number is still there.
    #[must_use]
    pub fn is_alive(&self, life: u32) -> bool {
        self.nodes.iter().any(|seat| {
            let server = seat.server();
            server.life == life && server.engine.is_some()
        })
    }

    /// The server that is there now; of several, the first.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.engines().next().map(|(_, engine)| engine)
    }

    /// The servers that are there now, each with its place.
    pub fn engines(&self) -> impl Iterator<Item = (usize, Engine)> {
        let engine = |(node, seat): (usize, &Seat)| Some((node, seat.server().engine.clone()?));
        self.nodes.iter().enumerate().filter_map(engine)
    }

    /// The server at a place.
    #[must_use]
    pub fn engine_at(&self, node: usize) -> Option<Engine> {
        self.nodes.get(node).and_then(|seat| seat.server().engine.clone())
    }

    /// What is stored, for whoever looks on.
    #[must_use]
    pub fn looked_at(&self) -> Option<Arc<dyn Store>> {
        match &self.observer {
            Some(observer) => Some(Arc::clone(observer) as Arc<dyn Store>),
            None => self.engine().map(|engine| Arc::clone(engine.store())),
        }
    }

    /// A node somebody may turn to.
    #[must_use]
    pub fn any_node(&self) -> usize {
        if self.nodes.len() > 1 { self.router.count(0, self.nodes.len() - 1) } else { ALONE }
    }

    /// Calls a server. If it goes while the call is under way, its answer is lost.
    ///
    /// # Errors
    /// When no answer came.
    pub async fn call<T, F>(&self, call: impl FnOnce(Engine) -> F) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.call_at(self.any_node(), call).await
    }

    /// As [`Self::call`], for the server at that place. One that stands still keeps callers waiting.
    ///
    /// # Errors
    /// When no answer came.
    pub async fn call_at<T, F>(&self, node: usize, call: impl FnOnce(Engine) -> F) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let seat = self.nodes.get(node).ok_or(NoAnswer::NotSent)?;
        if !seat.clock.is_awake_since(0) {
            seat.clock.thaw().await;
        }
        let (engine, life) = {
            let server = seat.server();
            (server.engine.clone(), server.life)
        };
        let engine = engine.filter(|engine| !engine.is_draining()).ok_or(NoAnswer::NotSent)?;
        let answer = call(engine).await;
        if !self.is_alive(life) {
            return Err(NoAnswer::Unclear);
        }
        answer.map_err(|_| NoAnswer::Unclear)
    }

    /// Starts a server at a place, on what the last one left, trying until the store lets it.
    pub async fn start_server(self: &Arc<Self>, node: usize) {
        let Some(seat) = self.nodes.get(node) else { return };
        loop {
            let life = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
            let store = {
                let mut server = seat.server();
                server.life = life;
                server.store = Arc::new(server.store.reopen());
                Arc::clone(&server.store)
            };
            seat.weather.reopened();
            let parts = Parts {
                store: store as Arc<dyn Store>,
                clock: Arc::clone(&seat.clock) as Arc<dyn Clock>,
                random: Arc::new(self.dice.fork()),
                metrics: Arc::new(Metrics::new()),
                deliverer: Arc::new(SimTarget::new(Arc::clone(self), life)),
                zones: Zones::bundled(),
            };
            let config = self.plan.config.clone();
            let started = if self.nodes.len() > 1 {
                let (id, address) = (Arc::from(format!("node-{node}-{life}")), Arc::from(""));
                Engine::join(parts, config, NodeCard { id, address, version: Arc::from("simulated") }).await
            } else {
                Engine::start(parts, config).await
            };
            if let Ok(engine) = started {
                engine.allot(self.allotments());
                seat.server().engine = Some(engine);
                self.history.note(Event::ServerUp);
                return;
            }
            self.sleep_ms(SECOND_MS).await;
        }
    }

    /// That tenants are spread as widely as they ever are: narrowed or not, their jobs may be anywhere.
    fn allotments(&self) -> Vec<Allotment> {
        let allotment = |tenant| Allotment {
            tenant,
            weight: 1,
            running_count_max: None,
            queue_running_count_max: None,
            starts_per_s: None,
            spread: SUB_SHARDS_COUNT_MAX,
        };
        self.tenants().into_iter().map(allotment).collect()
    }

    /// The server at a place dies: from here on it changes nothing and reaches nobody.
    pub fn crash(&self, node: usize) {
        self.remove_server(node, false);
    }

    /// The server at a place is asked to go.
    pub async fn drain(&self, node: usize, deadline_ms: i64) {
        let Some(engine) = self.engine_at(node) else { return };
        engine.drain(Duration::from_millis(deadline_ms.unsigned_abs())).await;
        self.remove_server(node, true);
    }

    fn remove_server(&self, node: usize, drained: bool) {
        let Some(seat) = self.nodes.get(node) else { return };
        seat.clock.unfreeze();
        let engine = {
            let mut server = seat.server();
            // Cuts off the calls under way, too.
            server.store = Arc::new(server.store.reopen());
            server.engine.take()
        };
        if let Some(engine) = engine {
            self.history.note(Event::ServerGone { drained });
            // Its tasks can no longer do anything; this only ends them.
            tokio::spawn(async move { engine.drain(Duration::ZERO).await });
        }
    }
}
