//! A circuit breaker: whether a target is worth calling.
//!
//! ```text
//!      so many failures in a row, or lately         cooled down
//!  closed ──────────────────────────────► open ─────────────────► half-open
//!    ▲  └──so many times asked to wait───► (held)                  │  │
//!    │                                       ▲                     │  │
//!    │                                       └────the probe fails──┘  │
//!    └──────────────────the probe is answered─────────────────────────┘
//! ```
//!
//! While open nobody calls. Half-open, one call may go as a probe, and only what comes of it counts: answers to calls
//! that began earlier tell of a time that is over. A target that answers now and then never fails often enough in a row, so
//! the share of failures lately may open it as well. Each failed probe doubles the time to the next, up to a maximum.
//!
//! Pure: the time, monotonic, is an argument.

use crate::id::JobId;
use crate::limits::{
    BREAKER_COOLDOWN_MS_DEFAULT, BREAKER_COOLDOWN_MS_MAX_DEFAULT, BREAKER_FAILURES_COUNT_DEFAULT,
    BREAKER_HOLD_MS_MAX, BREAKER_LATELY_CALLS_COUNT_MIN, BREAKER_LATELY_MS_DEFAULT,
};

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it. Zero: never.
    pub failures: u32,
    /// Hundredths of the calls lately that open it by failing. Zero: never.
    pub percent: u32,
    /// How long ago is lately.
    pub lately_ms: i64,
    /// How long it is open the first time.
    pub cooldown_ms: i64,
    /// How long it is open at most, however many probes failed.
    pub cooldown_ms_max: i64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: BREAKER_FAILURES_COUNT_DEFAULT,
            percent: 0,
            lately_ms: BREAKER_LATELY_MS_DEFAULT,
            cooldown_ms: BREAKER_COOLDOWN_MS_DEFAULT,
            cooldown_ms_max: BREAKER_COOLDOWN_MS_MAX_DEFAULT,
        }
    }
}

impl BreakerConfig {
    /// Whether none ever opens.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.failures == 0 && self.percent == 0
    }
}

/// What a call tells of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is there and works, whatever it thinks of the request.
    Fine,
    /// It cannot be reached, does not answer in time, or is broken.
    Failed,
    /// It asks to be left alone for so long.
    Wait {
        /// How long.
        ms: i64,
    },
}

/// How a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// None does: the target asked for it.
    Held,
    /// None does: the target failed.
    Open,
    /// One may go through, to see.
    HalfOpen,
}

impl BreakerState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Closed, Self::Held, Self::Open, Self::HalfOpen];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Held => "held",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A change of state that others should hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It opened for failures.
    Opened,
    /// The target asked to wait.
    Held,
    /// A probe failed.
    Reopened,
    /// Calls go through again.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Closed,
    Open { until_ms: i64, asked: bool },
    HalfOpen { probe: Option<JobId>, asked: bool },
}

/// Calls, and how many of them failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    calls: u32,
    failed: u32,
}

/// What came of calls lately, in two halves of that time, so that the older ones fade out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lately {
    since_ms: i64,
    newer: Tally,
    older: Tally,
}

impl Lately {
    fn note(&mut self, config: &BreakerConfig, failed: bool, now_ms: i64) {
        if config.percent == 0 {
            return;
        }
        let half_ms = (config.lately_ms / 2).max(1);
        let passed_ms = now_ms.saturating_sub(self.since_ms);
        if passed_ms >= half_ms {
            let older = if passed_ms < half_ms.saturating_mul(2) { self.newer } else { Tally::default() };
            *self = Self { since_ms: now_ms, newer: Tally::default(), older };
        }
        self.newer.calls = self.newer.calls.saturating_add(1);
        self.newer.failed = self.newer.failed.saturating_add(u32::from(failed));
    }

    const fn failed(&self) -> u32 {
        self.newer.failed.saturating_add(self.older.failed)
    }

    fn is_too_much(&self, config: &BreakerConfig) -> bool {
        let calls = self.newer.calls.saturating_add(self.older.calls);
        let share = u64::from(self.failed()) * 100;
        config.percent > 0
            && calls >= BREAKER_LATELY_CALLS_COUNT_MIN
            && share >= u64::from(config.percent) * u64::from(calls)
    }
}

/// One breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    stage: Stage,
    /// In a row; of those lately, if they opened it.
    failures: u32,
    lately: Lately,
    /// How long it was open last; zero before it ever was.
    cooled_ms: i64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { stage: Stage::Closed, failures: 0, lately: Lately::default(), cooled_ms: 0 }
    }
}

impl Breaker {
    /// How it stands.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        match self.stage {
            Stage::Closed => BreakerState::Closed,
            Stage::Open { asked: true, .. } => BreakerState::Held,
            Stage::Open { asked: false, .. } => BreakerState::Open,
            Stage::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Failures in a row, or lately if they opened it.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it remembers nothing, and so need not be kept.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        matches!(self.stage, Stage::Closed) && self.failures == 0 && self.lately.failed() == 0
    }

    /// Whether another call may begin.
    #[must_use]
    pub const fn admits(&self) -> bool {
        matches!(self.stage, Stage::Closed | Stage::HalfOpen { probe: None, .. })
    }

    /// When a probe may go, while it is open.
    #[must_use]
    pub const fn open_until_ms(&self) -> Option<i64> {
        match self.stage {
            Stage::Open { until_ms, .. } => Some(until_ms),
            Stage::Closed | Stage::HalfOpen { .. } => None,
        }
    }

    /// A call begins. Says whether it is the probe.
    pub fn began(&mut self, id: JobId) -> bool {
        match &mut self.stage {
            Stage::HalfOpen { probe: probe @ None, .. } => {
                *probe = Some(id);
                true
            }
            Stage::Closed | Stage::Open { .. } | Stage::HalfOpen { .. } => false,
        }
    }

    /// A call that began came to nothing, and tells nothing. Says whether it was the probe: another may go.
    pub fn gave_up(&mut self, id: &JobId) -> bool {
        match &mut self.stage {
            Stage::HalfOpen { probe, .. } if probe.as_ref() == Some(id) => {
                *probe = None;
                true
            }
            Stage::Closed | Stage::Open { .. } | Stage::HalfOpen { .. } => false,
        }
    }

    /// Lets a probe go if its time has come; says whether that is news.
    pub fn cool(&mut self, now_ms: i64) -> bool {
        match self.stage {
            Stage::Open { until_ms, asked } if until_ms <= now_ms => {
                self.stage = Stage::HalfOpen { probe: None, asked };
                true
            }
            Stage::Closed | Stage::Open { .. } | Stage::HalfOpen { .. } => false,
        }
    }

    /// What came of a call.
    pub fn heard(&mut self, config: &BreakerConfig, id: &JobId, answer: Answer, now_ms: i64) -> Option<Turn> {
        if config.is_off() {
            return None;
        }
        match (self.stage, answer) {
            (Stage::Closed, Answer::Fine) => {
                self.failures = 0;
                self.lately.note(config, false, now_ms);
                None
            }
            (Stage::Closed, Answer::Failed) => self.is_enough(config, now_ms).then(|| {
                self.open(config, now_ms);
                Turn::Opened
            }),
            (Stage::Open { until_ms, asked }, Answer::Wait { ms }) => {
                let until_ms = until_ms.max(now_ms.saturating_add(held_ms(ms)));
                self.stage = Stage::Open { until_ms, asked };
                None
            }
            // One of its answers may be about one caller or one path. Many in a row are about all of it.
            (Stage::Closed, Answer::Wait { ms }) => self.is_enough(config, now_ms).then(|| {
                let until_ms = now_ms.saturating_add(held_ms(ms));
                self.stage = Stage::Open { until_ms, asked: true };
                Turn::Held
            }),
            (Stage::HalfOpen { .. }, Answer::Wait { ms }) => {
                let until_ms = now_ms.saturating_add(held_ms(ms));
                self.stage = Stage::Open { until_ms, asked: true };
                Some(Turn::Held)
            }
            (Stage::HalfOpen { probe, .. }, Answer::Fine) if probe.as_ref() == Some(id) => {
                *self = Self::default();
                Some(Turn::Closed)
            }
            (Stage::HalfOpen { probe, asked }, Answer::Failed) if probe.as_ref() == Some(id) => {
                self.failures = self.failures.saturating_add(1);
                self.open(config, now_ms);
                Some(if asked { Turn::Opened } else { Turn::Reopened })
            }
            (Stage::Open { .. } | Stage::HalfOpen { .. }, Answer::Fine | Answer::Failed) => None,
        }
    }

    /// Another failure: whether they are enough to open it.
    fn is_enough(&mut self, config: &BreakerConfig, now_ms: i64) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.lately.note(config, true, now_ms);
        if config.failures > 0 && self.failures >= config.failures {
            return true;
        }
        let is_too_much = self.lately.is_too_much(config);
        if is_too_much {
            self.failures = self.lately.failed();
        }
        is_too_much
    }

    fn open(&mut self, config: &BreakerConfig, now_ms: i64) {
        let next_ms = self.cooled_ms.saturating_mul(2).max(config.cooldown_ms).max(1);
        self.cooled_ms = next_ms.min(config.cooldown_ms_max.max(config.cooldown_ms)).max(1);
        self.stage = Stage::Open { until_ms: now_ms.saturating_add(self.cooled_ms), asked: false };
    }
}

/// However long a target asks for, it is tried again within the limit.
fn held_ms(ms: i64) -> i64 {
    ms.clamp(1, BREAKER_HOLD_MS_MAX)
}

#[cfg(test)]
mod tests;
