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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Timestamp;

    const CONFIG: BreakerConfig =
        BreakerConfig { failures: 3, percent: 0, lately_ms: 1_000, cooldown_ms: 100, cooldown_ms_max: 1_000 };

    fn job(number: u128) -> JobId {
        JobId::new(Timestamp::from_ms(0), number)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for n in 0..3 {
            breaker.heard(&CONFIG, &job(n), Answer::Failed, 0);
        }
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_an_answer_starts_the_count_again() {
        let mut breaker = Breaker::default();
        for answer in [Answer::Failed, Answer::Failed, Answer::Fine, Answer::Failed, Answer::Failed] {
            assert_eq!(breaker.heard(&CONFIG, &job(1), answer, 0), None);
        }
        assert!(breaker.admits());
        assert_eq!(breaker.heard(&CONFIG, &job(1), Answer::Failed, 5), Some(Turn::Opened));
        assert_eq!((breaker.state(), breaker.open_until_ms()), (BreakerState::Open, Some(105)));
        assert!(!breaker.admits());
    }

    #[test]
    fn one_probe_decides_and_the_wait_doubles_up_to_its_maximum() {
        let mut breaker = opened();
        let (mut now_ms, mut waits) = (0, Vec::new());
        for n in 10..16 {
            let until_ms = breaker.open_until_ms().unwrap();
            waits.push(until_ms - now_ms);
            assert!(!breaker.cool(until_ms - 1));
            now_ms = until_ms;
            assert!(breaker.cool(now_ms));
            assert!(breaker.began(job(n)), "the first is the probe");
            assert!(!breaker.admits() && !breaker.began(job(99)), "there is one");
            assert_eq!(breaker.heard(&CONFIG, &job(0), Answer::Fine, now_ms), None, "of an earlier time");
            assert_eq!(breaker.heard(&CONFIG, &job(n), Answer::Failed, now_ms), Some(Turn::Reopened));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        breaker.cool(i64::MAX);
        breaker.began(job(20));
        assert_eq!(breaker.heard(&CONFIG, &job(20), Answer::Fine, now_ms), Some(Turn::Closed));
        assert!(breaker.is_blank(), "the next time begins from the start");
    }

    #[test]
    fn a_probe_that_comes_to_nothing_leaves_room_for_another() {
        let mut breaker = opened();
        breaker.cool(100);
        breaker.began(job(7));
        assert!(!breaker.gave_up(&job(8)));
        assert!(breaker.gave_up(&job(7)));
        assert!(breaker.admits() && breaker.began(job(8)));
    }

    #[test]
    fn a_target_that_asks_to_wait_is_left_alone_that_long_but_not_for_ever() {
        let mut breaker = Breaker::default();
        for _ in 0..2 {
            assert_eq!(
                breaker.heard(&CONFIG, &job(1), Answer::Wait { ms: 5_000 }, 10),
                None,
                "it may be one path"
            );
        }
        assert_eq!(breaker.heard(&CONFIG, &job(1), Answer::Wait { ms: 5_000 }, 10), Some(Turn::Held));
        assert_eq!((breaker.state(), breaker.open_until_ms()), (BreakerState::Held, Some(5_010)));
        assert_eq!(breaker.heard(&CONFIG, &job(2), Answer::Wait { ms: i64::MAX }, 20), None);
        assert_eq!(breaker.open_until_ms(), Some(20 + BREAKER_HOLD_MS_MAX));
        breaker.cool(i64::MAX);
        breaker.began(job(3));
        assert_eq!(breaker.heard(&CONFIG, &job(3), Answer::Failed, 30), Some(Turn::Opened));
    }

    #[test]
    fn without_a_threshold_it_never_opens() {
        let config = BreakerConfig { failures: 0, ..CONFIG };
        let mut breaker = Breaker::default();
        for answer in [Answer::Failed, Answer::Failed, Answer::Failed, Answer::Wait { ms: 5 }] {
            assert_eq!(breaker.heard(&config, &job(1), answer, 0), None);
        }
        assert!(breaker.is_blank());
    }

    #[test]
    fn one_that_answers_now_and_then_opens_by_the_share_that_fails() {
        let config = BreakerConfig { failures: 0, percent: 50, ..CONFIG };
        let mut breaker = Breaker::default();
        let mut hear = |answer, at_ms| breaker.heard(&config, &job(1), answer, at_ms);
        for call in 1..20 {
            let answer = if call % 2 == 0 { Answer::Fine } else { Answer::Failed };
            assert_eq!(hear(answer, 0), None, "{call} calls are too few to tell");
        }
        assert_eq!(hear(Answer::Failed, 1), Some(Turn::Opened));
        assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Open, 11));
        breaker.cool(i64::MAX);
        breaker.began(job(2));
        assert_eq!(breaker.heard(&config, &job(2), Answer::Fine, 2_000), Some(Turn::Closed));
        assert!(breaker.is_blank(), "what was before the probe is over");
    }

    #[test]
    fn a_share_that_is_small_or_long_ago_opens_nothing() {
        let config = BreakerConfig { failures: 0, percent: 50, ..CONFIG };
        let mut breaker = Breaker::default();
        for call in 0..10_000 {
            let answer = if call % 3 == 0 { Answer::Failed } else { Answer::Fine };
            assert_eq!(breaker.heard(&config, &job(1), answer, call), None, "a third fails");
        }
        for call in 0..19 {
            breaker.heard(&config, &job(1), Answer::Failed, 20_000 + call);
        }
        assert_eq!(breaker.heard(&config, &job(1), Answer::Failed, 22_000), None, "the others are long ago");
        assert!(!breaker.is_blank());
        breaker.heard(&config, &job(1), Answer::Fine, 24_000);
        assert!(breaker.is_blank(), "all of them are");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pass(i64),
        Begin(u128),
        GiveUp(u128),
        Hear(u128, Answer),
    }

    fn step() -> impl Strategy<Value = Step> {
        let answer = prop_oneof![
            Just(Answer::Fine),
            Just(Answer::Failed),
            (0..5_000_i64).prop_map(|ms| Answer::Wait { ms })
        ];
        prop_oneof![
            (0..400_i64).prop_map(Step::Pass),
            (0..6_u128).prop_map(Step::Begin),
            (0..6_u128).prop_map(Step::GiveUp),
            (0..6_u128, answer).prop_map(|(n, answer)| Step::Hear(n, answer)),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_it_admits_again_in_time_and_one_probe_at_most(
            steps in prop::collection::vec(step(), 0..200)
        ) {
            let (mut breaker, mut now_ms, mut probe) = (Breaker::default(), 0_i64, None);
            for step in steps {
                let before = breaker.state();
                match step {
                    Step::Pass(ms) => {
                        now_ms += ms;
                        breaker.cool(now_ms);
                    }
                    Step::Begin(n) => {
                        if breaker.began(job(n)) {
                            prop_assert_eq!(probe, None, "a second probe");
                            probe = Some(n);
                        }
                    }
                    Step::GiveUp(n) => {
                        prop_assert_eq!(breaker.gave_up(&job(n)), probe == Some(n));
                        probe = probe.filter(|probe| *probe != n);
                    }
                    Step::Hear(n, answer) => {
                        let turn = breaker.heard(&CONFIG, &job(n), answer, now_ms);
                        prop_assert_eq!(turn.is_some(), before != breaker.state());
                        if before == BreakerState::HalfOpen && turn == Some(Turn::Closed) {
                            prop_assert_eq!(probe, Some(n), "only the probe closes it");
                        }
                    }
                }
                if breaker.state() != BreakerState::HalfOpen {
                    probe = None;
                }
                prop_assert_eq!(
                    breaker.admits(),
                    match breaker.state() {
                        BreakerState::Closed => true,
                        BreakerState::Held | BreakerState::Open => false,
                        BreakerState::HalfOpen => probe.is_none(),
                    }
                );
                if let Some(until_ms) = breaker.open_until_ms() {
                    prop_assert!(until_ms - now_ms <= CONFIG.cooldown_ms_max.max(5_000));
                }
            }
            if let Some(until_ms) = breaker.open_until_ms() {
                prop_assert!(breaker.cool(until_ms) && breaker.admits());
            }
        }
    }
}
