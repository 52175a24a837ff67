//! The knobs of the engine, each with its default as a named constant.

use tidewheel_core::breaker::BreakerConfig;
use tidewheel_core::limits::{
    AUDIT_RETENTION_MS_DEFAULT, HISTORY_MS_DEFAULT, MINUTE_MS, SECOND_MS, TENANT_CATCH_UP_JOBS_PER_S_DEFAULT,
    WORKER_DEAD_MS, WORKER_RESUME_MS, WORKER_TAKE_BACK_MS,
};

use super::host_limits::HostLimits;
use super::host_rates::HostRates;
use crate::traces::Traces;

/// What tenants share by while they have more to run than there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FairBy {
    /// How many attempts start.
    #[default]
    Count,
    /// How long attempts run.
    RunTime,
}

/// How the engine behaves. Every bound here is on memory or on pace; none can lose a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How far ahead jobs are taken from the store into the wheel.
    pub lookahead_ms: i64,
    /// Jobs held in memory before their delivery, all tenants together.
    pub held_count_max: usize,
    /// Bytes of those jobs.
    pub held_bytes_max: usize,
    /// Jobs one tenant may have ready in one lane and priority.
    pub lot_count_max: usize,
    /// Jobs a lane takes of a tenant even when memory is full, so that a flood of others cannot shut it out.
    pub lot_count_min: usize,
    /// Jobs read for one tenant in one turn.
    pub quantum: usize,
    /// Reads of the store under way at once.
    pub reads_max: usize,
    /// Jobs claimed in one write.
    pub claim_batch_max: usize,
    /// Claim writes under way at once.
    pub claims_max: usize,
    /// Pushes under way at once.
    pub push_max: usize,
    /// Pushes under way at once to one host.
    pub push_per_host_max: usize,
    /// The same, to hosts that have their own bound.
    pub push_per_host_named: HostLimits,
    /// Pushes begun per second to one host.
    pub host_rates: HostRates,
    /// When a tenant's pushes to a host that fails are held back.
    pub breaker: BreakerConfig,
    /// What tenants share by.
    pub fair_by: FairBy,
    /// Wait after which a job counts as one priority higher.
    pub aging_ms: i64,
    /// Pace at which jobs are started that are made up for (missed while the server was down, backfilled or
    /// replayed), all tenants together, per second.
    pub catch_up_per_second: u32,
    /// The same, for each tenant.
    pub tenant_catch_up_per_second: u32,
    /// Lateness up to which a job does not count as missed.
    pub catch_up_grace_ms: i64,
    /// How often cursors are noted in the store.
    pub checkpoint_ms: i64,
    /// How often everything due is read again, in case a hint or a cursor was lost.
    pub sweep_ms: i64,
    /// How often old history is dropped.
    pub upkeep_ms: i64,
    /// How long finished jobs are kept.
    pub history_ms: i64,
    /// How long the audit trail is kept.
    pub audit_retention_ms: i64,
    /// Silence after which a connected worker is taken for dead.
    pub worker_dead_ms: i64,
    /// How long after a lost connection a worker may come back for its session.
    pub worker_resume_ms: i64,
    /// How long a job may lie unstarted at one worker while another is idle.
    pub worker_take_back_ms: i64,
    /// Who is told what jobs go through.
    pub traces: Traces,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lookahead_ms: 2 * SECOND_MS,
            held_count_max: 65_536,
            held_bytes_max: 128 << 20,
            lot_count_max: 16_384,
            lot_count_min: 16,
            quantum: 2_048,
            reads_max: 2,
            claim_batch_max: 2_048,
            claims_max: 4,
            push_max: 1_024,
            push_per_host_max: 256,
            push_per_host_named: HostLimits::default(),
            host_rates: HostRates::default(),
            breaker: BreakerConfig::default(),
            fair_by: FairBy::default(),
            aging_ms: 30 * SECOND_MS,
            catch_up_per_second: 5_000,
            tenant_catch_up_per_second: TENANT_CATCH_UP_JOBS_PER_S_DEFAULT,
            catch_up_grace_ms: MINUTE_MS,
            checkpoint_ms: 5 * SECOND_MS,
            sweep_ms: 10 * MINUTE_MS,
            upkeep_ms: 10 * MINUTE_MS,
            history_ms: HISTORY_MS_DEFAULT,
            audit_retention_ms: AUDIT_RETENTION_MS_DEFAULT,
            worker_dead_ms: WORKER_DEAD_MS,
            worker_resume_ms: WORKER_RESUME_MS,
            worker_take_back_ms: WORKER_TAKE_BACK_MS,
            traces: Traces::default(),
        }
    }
}
