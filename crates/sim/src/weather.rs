//! What goes wrong between a node and the store: slow calls, calls that fail without effect, calls whose answer is lost,
//! calls that hang, outages, news of other nodes that are late or lost, and a failed sync after which it takes nothing until
//! it is opened again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewheel_server::clock::Clock;
use tidewheel_store::Error;
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, Passage, Wait, Written};

use crate::clock::{NodeClock, SimClock};
use crate::dice::Dice;
use crate::history::{Event, History};

/// How likely faults are, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Climate {
    /// A call fails and has done nothing.
    pub fails: i64,
    /// A call does its work and its answer is lost.
    pub answer_lost: i64,
    /// A call takes long.
    pub slow: i64,
    /// How long, at most.
    pub slow_ms_max: i64,
    /// News of another node are lost.
    pub news_lost: i64,
}

/// What a call takes that is not slow, at most.
const CALL_MS_MAX: i64 = 2;
/// How long a call hangs before it is given up, at most.
const HANG_MS_MAX: i64 = 10_000;

impl Climate {
    /// What a call takes before it has an effect, at most.
    #[must_use]
    pub fn call_ms_max(&self) -> i64 {
        if self.slow > 0 { self.slow_ms_max.max(CALL_MS_MAX) } else { CALL_MS_MAX }
    }
}

#[derive(Debug, Default)]
struct Now {
    climate: Climate,
    down_until_ms: i64,
    /// While it is down, calls hang instead of failing at once.
    hangs: bool,
    /// By node, what happens to its news, and until when.
    peers: BTreeMap<u64, (PeerTrouble, i64)>,
    poisoned: bool,
    still: bool,
    calls: u64,
}

/// What happens to news of one node on their way to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerTrouble {
    /// They are lost.
    Lost,
    /// They are late by so much.
    Late(i64),
}

/// A node's place in a cluster.
#[derive(Debug)]
struct Place {
    index: usize,
    clock: Arc<NodeClock>,
    history: Arc<History>,
    /// Claims are granted whatever they carry.
    unfenced: bool,
}

/// Decides about every call to the store.
#[derive(Debug)]
pub struct Weather {
    dice: Dice,
    clock: Arc<SimClock>,
    place: Option<Place>,
    now: Mutex<Now>,
}

impl Weather {
    /// Fair weather.
    #[must_use]
    pub fn new(dice: Dice, clock: Arc<SimClock>) -> Self {
        Self { dice, clock, place: None, now: Mutex::default() }
    }

    /// The same for one of several nodes: what it does in the store is noted. `unfenced` breaks the store on purpose.
    #[must_use]
    pub fn of_node(
        mut self,
        index: usize,
        clock: Arc<NodeClock>,
        history: Arc<History>,
        unfenced: bool,
    ) -> Self {
        self.place = Some(Place { index, clock, history, unfenced });
        self
    }

    /// Sets how likely faults are from now on.
    pub fn set(&self, climate: Climate) {
        self.lock().climate = climate;
    }

    /// The store does not answer for so long.
    pub fn take_down(&self, ms: i64) {
        self.cut_off(ms, false);
    }

    /// The store cannot be reached for so long: calls fail, or hang.
    pub fn cut_off(&self, ms: i64, hangs: bool) {
        let mut now = self.lock();
        now.down_until_ms = self.clock.monotonic_ms() + ms;
        now.hangs = hangs;
    }

    /// For so long, this happens to news of that node.
    pub fn trouble_news(&self, from_node: u64, trouble: PeerTrouble, ms: i64) {
        let until_ms = self.clock.monotonic_ms() + ms;
        self.lock().peers.insert(from_node, (trouble, until_ms));
    }

    /// A sync fails: no write is taken until [`Self::reopened`].
    pub fn poison(&self) {
        self.lock().poisoned = true;
    }

    /// The store was opened anew.
    pub fn reopened(&self) {
        self.lock().poisoned = false;
    }

    /// Everything works from now on.
    pub fn clear(&self) {
        let calls = self.lock().calls;
        *self.lock() = Now { calls, ..Now::default() };
    }

    /// From now on calls take no time at all, so that several of them see one state of things.
    pub fn stand_still(&self) {
        self.lock().still = true;
    }

    /// Calls to the store so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, ms: i64) -> Option<Wait> {
        let clock = Arc::clone(&self.clock);
        let Some(place) = &self.place else {
            return (ms > 0).then(|| Box::pin(async move { clock.sleep_ms(ms).await }) as Wait);
        };
        let thaw = (ms > 0 || !place.clock.is_awake_since(0)).then(|| place.clock.thaw())?;
        Some(Box::pin(async move {
            clock.sleep_ms(ms).await;
            thaw.await;
        }))
    }

    /// A call that hangs: it arrives late or its answer never does; in the end the caller has waited long enough.
    fn hang(&self, left_ms: i64) -> Fault {
        let unavailable = Error::Unavailable("simulated: no answer in time".to_owned());
        let wait = self.wait(left_ms.min(HANG_MS_MAX));
        match self.dice.between(0, 2) {
            0 => Fault { wait_before: wait, failure: Some(Failure::Before(unavailable)), ..Fault::default() },
            1 => Fault { wait_before: wait, failure: Some(Failure::After(unavailable)), ..Fault::default() },
            _ => Fault { wait_after: wait, failure: Some(Failure::After(unavailable)), ..Fault::default() },
        }
    }

    fn latency_ms(&self, climate: Climate) -> i64 {
        if self.dice.percent(climate.slow) {
            self.dice.between(1, climate.slow_ms_max)
        } else {
            self.dice.between(0, CALL_MS_MAX)
        }
    }
}

impl Faults for Weather {
    fn before(&self, call: Call) -> Fault {
        let mut now = self.lock();
        now.calls += 1;
        if now.still {
            return Fault::default();
        }
        let down_ms = now.down_until_ms - self.clock.monotonic_ms();
        if down_ms > 0 && now.hangs {
            return self.hang(down_ms);
        }
        let (wait_before, wait_after) =
            (self.wait(self.latency_ms(now.climate)), self.wait(self.latency_ms(now.climate)));
        let unavailable = || Error::Unavailable("simulated".to_owned());
        let failure = if now.poisoned && call.is_write() {
            Some(Failure::Before(Error::Poisoned("simulated".to_owned())))
        } else if down_ms > 0 || self.dice.percent(now.climate.fails) {
            Some(Failure::Before(unavailable()))
        } else if self.dice.percent(now.climate.answer_lost) {
            Some(Failure::After(unavailable()))
        } else {
            None
        };
        let unfenced = self.place.as_ref().is_some_and(|place| place.unfenced);
        Fault { wait_before, failure, wait_after, unfenced }
    }

    fn passage(&self, from_node: u64) -> Passage {
        let now = self.lock();
        let monotonic_ms = self.clock.monotonic_ms();
        if now.down_until_ms > monotonic_ms {
            // With the connection, what would have come over it is lost.
            return Passage::Missed;
        }
        let trouble = now.peers.get(&from_node).filter(|(_, until_ms)| *until_ms > monotonic_ms);
        let late_ms = match trouble {
            Some((PeerTrouble::Lost, _)) => return Passage::Lost,
            Some((PeerTrouble::Late(ms), _)) => *ms,
            None if self.dice.percent(now.climate.news_lost) => return Passage::Lost,
            None => self.dice.between(0, CALL_MS_MAX),
        };
        self.wait(late_ms).map_or(Passage::Free, Passage::Slow)
    }

    fn witness(&self, deed: Written) {
        if let Some(place) = &self.place {
            place.history.note(Event::Witnessed { node: place.index, deed });
        }
    }
}
