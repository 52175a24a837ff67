//! The simulated world: its time, its dice, its record, and the one server in it, which comes and goes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Engine, Parts};
use tidewheel_server::metrics::Metrics;
use tidewheel_store::memory::{Faults, MemoryStore};
use tidewheel_store::{Error, Layout, Store};

use crate::clock::SimClock;
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
    pub history: History,
    /// Its store's moods.
    pub weather: Arc<Weather>,
    server: Mutex<Server>,
    calm: AtomicBool,
    streamed: AtomicUsize,
}

struct Server {
    /// Counts the servers there were.
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

const SHARDS: u16 = 4;

impl World {
    /// A world without a server.
    #[must_use]
    pub fn new(plan: Plan) -> Arc<Self> {
        let clock = Arc::new(SimClock::showing(plan.begins_ms));
        let dice = Arc::new(Dice::new(plan.seed));
        let weather = Arc::new(Weather::new(dice.fork(), Arc::clone(&clock)));
        let store =
            MemoryStore::new(Layout { shards: SHARDS }).with_faults(Arc::clone(&weather) as Arc<dyn Faults>);
        Arc::new(Self {
            plan,
            history: History::new(Arc::clone(&clock)),
            clock,
            dice,
            weather,
            server: Mutex::new(Server { life: 0, engine: None, store: Arc::new(store) }),
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

    /// Whether nothing is broken on purpose any more, and everybody behaves.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Ends all faults.
    pub fn calm_down(&self) {
        self.weather.clear();
        self.calm.store(true, Ordering::SeqCst);
        self.history.note(Event::FaultsOver);
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

    /// The number of the latest server.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.server().life
    }

    /// Whether the server of that number is still there.
    #[must_use]
    pub fn is_alive(&self, life: u32) -> bool {
        let server = self.server();
        server.life == life && server.engine.is_some()
    }

    /// The server that is there now.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.server().engine.clone()
    }

    /// Calls the server. If it goes while the call is under way, its answer is lost.
    ///
    /// # Errors
    /// When no answer came.
    pub async fn call<T, F>(&self, call: impl FnOnce(Engine) -> F) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (engine, life) = {
            let server = self.server();
            (server.engine.clone(), server.life)
        };
        let engine = engine.filter(|engine| !engine.is_draining()).ok_or(NoAnswer::NotSent)?;
        let answer = call(engine).await;
        if !self.is_alive(life) {
            return Err(NoAnswer::Unclear);
        }
        answer.map_err(|_| NoAnswer::Unclear)
    }

    /// Starts a server on what the last one left, trying until the store lets it.
    pub async fn start_server(self: &Arc<Self>) {
        loop {
            let (life, store) = {
                let mut server = self.server();
                server.life += 1;
                server.store = Arc::new(server.store.reopen());
                (server.life, Arc::clone(&server.store))
            };
            self.weather.reopened();
            let parts = Parts {
                store: store as Arc<dyn Store>,
                clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
                random: Arc::new(self.dice.fork()),
                metrics: Arc::new(Metrics::new()),
                deliverer: Arc::new(SimTarget::new(Arc::clone(self), life)),
                zones: Zones::bundled(),
            };
            if let Ok(engine) = Engine::start(parts, self.plan.config.clone()).await {
                self.server().engine = Some(engine);
                self.history.note(Event::ServerUp);
                return;
            }
            self.sleep_ms(SECOND_MS).await;
        }
    }

    /// The server dies: from here on it changes nothing and reaches nobody.
    pub fn crash(&self) {
        self.remove_server(false);
    }

    /// The server is asked to go.
    pub async fn drain(&self, deadline_ms: i64) {
        let Some(engine) = self.engine() else { return };
        engine.drain(Duration::from_millis(deadline_ms.unsigned_abs())).await;
        self.remove_server(true);
    }

    fn remove_server(&self, drained: bool) {
        let engine = {
            let mut server = self.server();
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

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
