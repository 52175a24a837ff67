//! What can be measured, one file each.

mod bare;
mod drain_sink;
mod drain_target;
mod herd;
mod lag;
mod latency;
mod postgres;
mod schedules;
mod submit_batch;
mod submit_single;
mod waiting;
mod workers;

use clap::ValueEnum;

use super::Bench;
use super::figures::Figure;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Part {
    /// The storage engine alone, writing jobs.
    Bare,
    /// Submissions over HTTP, a thousand to a request.
    Batch,
    /// Submissions over HTTP, one to a request, with and without waiting for the disk.
    Single,
    /// Due jobs to a runner inside the process, in turn with the storage engine alone.
    Sink,
    /// Due jobs to workers in processes of their own, and what idle ones cost.
    Workers,
    /// Due jobs to an HTTP target on this machine.
    Target,
    /// From submission to start, on an idle server.
    Latency,
    /// How late jobs start that are spread over time.
    Lag,
    /// How late jobs start that are all due at one instant.
    Herd,
    /// Making many schedules, and what they cost.
    Schedules,
    /// Schedules that are all due at one instant.
    ScheduleHerd,
    /// Two servers on one database against one, and jobs submitted to the one that does not have them.
    Nodes,
    /// Speed on a database where a transaction has been left open.
    OldTransaction,
    /// Disk, memory, start-up and speed with many jobs waiting.
    Waiting,
}

impl Part {
    /// All, in the order they are run: memory is measured first, before the others have used any.
    pub(super) const ALL: [Self; 14] = [
        Self::Waiting,
        Self::Schedules,
        Self::Bare,
        Self::Batch,
        Self::Single,
        Self::Sink,
        Self::Workers,
        Self::Target,
        Self::Latency,
        Self::Lag,
        Self::Herd,
        Self::ScheduleHerd,
        Self::Nodes,
        Self::OldTransaction,
    ];

    /// Whether it needs nothing but HTTP, so that any server can be measured.
    pub(super) const fn is_remote(self) -> bool {
        matches!(self, Self::Batch | Self::Single) || self.needs_target()
    }

    /// Whether it can be measured with PostgreSQL as the store.
    pub(super) const fn is_on_postgres(self) -> bool {
        matches!(self, Self::Batch | Self::Single | Self::Workers | Self::Latency | Self::Lag | Self::Waiting)
            || self.is_shared()
    }

    /// Whether it is about a database that is shared with others.
    pub(super) const fn is_shared(self) -> bool {
        matches!(self, Self::Nodes | Self::OldTransaction)
    }

    /// Whether the server must reach a target on this machine.
    pub(super) const fn needs_target(self) -> bool {
        matches!(self, Self::Latency | Self::Lag)
    }

    /// What to say while it runs.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Bare => "the bare engine",
            Self::Batch => "submissions in batches",
            Self::Single => "submissions one by one",
            Self::Sink => "drain to a sink",
            Self::Workers => "worker processes",
            Self::Target => "drain to an HTTP target",
            Self::Latency => "latency when idle",
            Self::Lag => "lag of jobs spread over time",
            Self::Herd => "a herd at one instant",
            Self::Schedules => "many schedules",
            Self::ScheduleHerd => "a herd of schedules",
            Self::Nodes => "two servers on one database",
            Self::OldTransaction => "an old transaction",
            Self::Waiting => "many jobs waiting",
        }
    }

    /// Measures it.
    pub(super) async fn run(self, bench: &Bench) -> anyhow::Result<Vec<Figure>> {
        match self {
            Self::Bare => Box::pin(bare::measure(bench)).await,
            Self::Batch => Box::pin(submit_batch::measure(bench)).await,
            Self::Single => Box::pin(submit_single::measure(bench)).await,
            Self::Sink => Box::pin(drain_sink::measure(bench)).await,
            Self::Workers if bench.postgres.is_some() => Box::pin(postgres::workers(bench)).await,
            Self::Workers => Box::pin(workers::measure(bench)).await,
            Self::Target => Box::pin(drain_target::measure(bench)).await,
            Self::Latency => Box::pin(latency::measure(bench)).await,
            Self::Lag => Box::pin(lag::measure(bench)).await,
            Self::Herd => Box::pin(herd::measure(bench)).await,
            Self::Schedules => Box::pin(schedules::many(bench)).await,
            Self::ScheduleHerd => Box::pin(schedules::herd(bench)).await,
            Self::Nodes => Box::pin(postgres::nodes(bench)).await,
            Self::OldTransaction => Box::pin(postgres::old_transaction(bench)).await,
            Self::Waiting if bench.postgres.is_some() => Box::pin(postgres::waiting(bench)).await,
            Self::Waiting => Box::pin(waiting::measure(bench)).await,
        }
    }
}
