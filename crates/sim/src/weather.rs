//! What goes wrong with the store: slow calls, calls that fail without effect, calls whose answer is lost,
//! outages, and a failed sync after which it takes nothing until it is opened again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewheel_server::clock::Clock;
use tidewheel_store::Error;
use tidewheel_store::memory::{Call, Failure, Fault, Faults, Wait};

use crate::clock::SimClock;
use crate::dice::Dice;

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
}

/// What a call takes that is not slow, at most.
const CALL_MS_MAX: i64 = 2;

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
    poisoned: bool,
    still: bool,
    calls: u64,
}

/// Decides about every call to the store.
#[derive(Debug)]
pub struct Weather {
    dice: Dice,
    clock: Arc<SimClock>,
    now: Mutex<Now>,
}

impl Weather {
    /// Fair weather.
    #[must_use]
    pub fn new(dice: Dice, clock: Arc<SimClock>) -> Self {
        Self { dice, clock, now: Mutex::default() }
    }

    /// Sets how likely faults are from now on.
    pub fn set(&self, climate: Climate) {
        self.lock().climate = climate;
    }

    /// The store does not answer for so long.
    pub fn take_down(&self, ms: i64) {
        self.lock().down_until_ms = self.clock.monotonic_ms() + ms;
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
        (ms > 0).then(|| Box::pin(async move { clock.sleep_ms(ms).await }) as Wait)
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
        let (wait_before, wait_after) =
            (self.wait(self.latency_ms(now.climate)), self.wait(self.latency_ms(now.climate)));
        let unavailable = || Error::Unavailable("simulated".to_owned());
        let failure = if now.poisoned && call.is_write() {
            Some(Failure::Before(Error::Poisoned("simulated".to_owned())))
        } else if self.clock.monotonic_ms() < now.down_until_ms || self.dice.percent(now.climate.fails) {
            Some(Failure::Before(unavailable()))
        } else if self.dice.percent(now.climate.answer_lost) {
            Some(Failure::After(unavailable()))
        } else {
            None
        };
        Fault { wait_before, failure, wait_after }
    }
}
