//! How much of everything is measured. Every loop of the benchmark ends at one of these.

use std::time::Duration;

/// Jobs in one batched request, and in one write of the bare engine.
pub(super) const BATCH_COUNT: usize = 1_000;
/// Connections that send batches.
pub(super) const BATCH_CONNECTIONS: usize = 4;
/// Connections that send one job at a time.
pub(super) const SINGLE_CONNECTIONS: usize = 256;
/// Jobs are spread over this much time ahead.
pub(super) const AHEAD_MS: i64 = 24 * 60 * 60 * 1_000;
/// What is only to wait on PostgreSQL falls due after this, when the benchmark is over.
pub(super) const LATER_MS: i64 = 3 * 60 * 60 * 1_000;
/// A store writes out what it has read from its journals right after it was opened. What is compared begins after that, on
/// every side: how much of it there is has nothing to do with what is measured.
pub(super) const REST_MS: i64 = 3_000;
/// The same.
pub(super) const REST: Duration = Duration::from_millis(REST_MS.unsigned_abs());
/// Anything that takes longer is broken rather than slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// An older transaction shows nothing that one of this age does not.
pub(super) const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(60 * 60);

const QUICK_DIVISOR: u64 = 5;

/// The sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// How long a rate is measured.
    pub(super) rate_time: Duration,
    /// Jobs that wait while some of it is measured again.
    pub(super) waiting: u64,
    /// Due jobs drained to the sink, and by the bare engine.
    pub(super) sink_jobs: u64,
    /// Due jobs drained to the HTTP target.
    pub(super) target_jobs: u64,
    /// Jobs at one instant.
    pub(super) herd_jobs: u64,
    /// How far ahead that instant is: the jobs must be stored by then.
    pub(super) herd_ahead_ms: i64,
    /// Schedules made in batches.
    pub(super) schedules: u64,
    /// Schedules that fire at one instant.
    pub(super) herd_schedules: u64,
    /// Workers that are connected and have nothing to do.
    pub(super) idle_workers: u64,
    /// Jobs submitted one after another to an idle server.
    pub(super) latency_jobs: u64,
    /// Jobs spread over `lag_spread_ms`.
    pub(super) lag_jobs: u64,
    /// The time they are spread over.
    pub(super) lag_spread_ms: i64,
    /// Due jobs of one drain on PostgreSQL.
    pub(super) postgres_jobs: u64,
    /// How often what is compared there is measured, one side after the other.
    pub(super) rounds: usize,
    /// How old an old transaction is at least before anything is measured beside it.
    pub(super) transaction_age: Duration,
}

/// What was asked for by number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) waiting: Option<u64>,
    pub(super) seconds: Option<u64>,
    pub(super) drained: Option<u64>,
    pub(super) rounds: Option<usize>,
    pub(super) transaction_age: Option<Duration>,
}

impl Plan {
    pub(super) const FULL_WAITING: u64 = 1_000_000;
    pub(super) const FULL_SECONDS: u64 = 10;
    const QUICK_WAITING: u64 = 100_000;
    const QUICK_SECONDS: u64 = 3;
    const FULL_ROUNDS: usize = 5;
    const QUICK_ROUNDS: usize = 1;

    /// The sizes for these flags; what was asked for by number stands above `quick`.
    pub(super) fn new(quick: bool, wanted: Wanted) -> Self {
        let pick = |full, short| if quick { short } else { full };
        let rounds = if quick { Self::QUICK_ROUNDS } else { Self::FULL_ROUNDS };
        let seconds = wanted.seconds.unwrap_or(pick(Self::FULL_SECONDS, Self::QUICK_SECONDS));
        let scale = pick(1, QUICK_DIVISOR);
        Self {
            rate_time: Duration::from_secs(seconds.max(1)),
            waiting: wanted.waiting.unwrap_or(pick(Self::FULL_WAITING, Self::QUICK_WAITING)),
            sink_jobs: wanted.drained.unwrap_or(500_000 / scale).max(1),
            target_jobs: 100_000 / scale,
            herd_jobs: 50_000,
            herd_ahead_ms: if quick { 6_000 } else { 10_000 },
            schedules: 1_000_000 / scale,
            herd_schedules: 200_000 / scale,
            idle_workers: 10_000,
            latency_jobs: (1_000 / scale).min(wanted.drained.unwrap_or(u64::MAX)).max(1),
            lag_jobs: if quick { 10_000 } else { 30_000 },
            lag_spread_ms: if quick { 10_000 } else { 30_000 },
            postgres_jobs: wanted.drained.unwrap_or(200_000 / scale).max(1),
            rounds: wanted.rounds.unwrap_or(rounds).max(1),
            transaction_age: wanted.transaction_age.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_above_quick() {
        let wanted = Wanted {
            waiting: Some(7),
            seconds: Some(2),
            drained: Some(9),
            rounds: Some(6),
            transaction_age: Some(Duration::from_secs(600)),
        };
        assert_eq!(Plan::new(true, Wanted::default()).waiting, Plan::QUICK_WAITING);
        let plan = Plan::new(true, wanted);
        assert_eq!((plan.waiting, plan.rate_time, plan.rounds), (7, Duration::from_secs(2), 6));
        assert_eq!((plan.sink_jobs, plan.postgres_jobs), (9, 9));
        assert_eq!(plan.transaction_age, Duration::from_secs(600));
        assert_eq!(Plan::new(false, Wanted::default()).rate_time, Duration::from_secs(Plan::FULL_SECONDS));
    }
}
