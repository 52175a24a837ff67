//! What a seed stands for: which faults a run has, how the engine is set, how much work there is. Every run
//! leaves most kinds of faults out, since some hide others: a restart repairs what a lost answer broke.

use tidewheel_server::engine::Config;

use crate::almanac;
use crate::dice::Dice;
use crate::weather::Climate;

/// A kind of fault that happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// The server dies.
    Crash,
    /// The server is asked to go, and does.
    Drain,
    /// The store does not answer for a while.
    Outage,
    /// A sync fails; the server must be restarted.
    FailedSync,
    /// The wall clock is set wrong.
    ClockStep,
    /// The machine stands still for a while.
    Pause,
}

impl Strike {
    const ALL: [Self; 6] =
        [Self::Crash, Self::Drain, Self::Outage, Self::FailedSync, Self::ClockStep, Self::Pause];
}

/// A kind of fault that befalls single nodes of a cluster, or what is between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterStrike {
    /// A node dies, and comes back as another.
    Crash,
    /// A node is asked to go, and does; then it comes back.
    Drain,
    /// A node stands still, mostly for longer than its leases last, and goes on without knowing.
    Pause,
    /// A node cannot reach the store: its calls fail, or hang.
    CutOff,
    /// News of one node do not reach another, or late.
    Silence,
    /// The store does not answer anybody.
    Outage,
    /// A node's wall clock is set, within the bound.
    ClockStep,
}

impl ClusterStrike {
    const ALL: [Self; 7] =
        [Self::Crash, Self::Drain, Self::Pause, Self::CutOff, Self::Silence, Self::Outage, Self::ClockStep];
}

/// Seeds from here on stand for clusters; those before, for one server that has the store to itself.
pub const CLUSTER_SEED_MIN: u64 = 1_000_000;
/// The most nodes a cluster has.
pub const NODES_MAX: usize = 5;
const NODES_MIN: usize = 3;

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where all of it comes from.
    pub seed: u64,
    /// How many nodes share the store; one has it to itself.
    pub nodes: usize,
    /// What happens to nodes of a cluster at moments.
    pub cluster_strikes: Vec<ClusterStrike>,
    /// How far the wall clock of a node may be from the true time.
    pub skew_ms_max: i64,
    /// The number of shards.
    pub shards: u16,
    /// What happens at moments.
    pub strikes: Vec<Strike>,
    /// What the store is like all the time.
    pub climate: Climate,
    /// How long things go wrong.
    pub faulty_ms: i64,
    /// How far ahead jobs are set, at most.
    pub ahead_ms_max: i64,
    /// How many tenants there are.
    pub tenants: usize,
    /// How many clients submit.
    pub clients: usize,
    /// How many schedules there are from the beginning.
    pub schedules: usize,
    /// What the wall clock shows at the beginning.
    pub begins_ms: i64,
    /// The longest a client waits between two submissions.
    pub gap_ms_max: i64,
    /// How the engine is set.
    pub config: Config,
    /// How workers get their jobs.
    pub workforce: Workforce,
    /// Breaks the server on purpose, for the checker to find: reports over streams count for the newest attempt,
    /// whichever they are about.
    pub unfenced: bool,
    /// Breaks the store on purpose: claims are granted whatever epoch they carry.
    pub unfenced_claims: bool,
    /// Breaks nodes on purpose: their clocks count one second where so many pass, so they trust their leases for too
    /// long. One counts right.
    pub clock_slowness: u32,
}

/// How workers get their jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workforce {
    /// They ask for some, again and again.
    Pulling,
    /// They are pushed to them over a stream.
    Streaming,
    /// Both kinds work beside each other.
    Mixed,
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        if seed < CLUSTER_SEED_MIN { Self::alone(seed) } else { Self::cluster(seed) }
    }

    /// The run of a seed with so many nodes.
    #[must_use]
    pub fn with_nodes(seed: u64, nodes: usize) -> Self {
        match nodes {
            0 | 1 => Self::alone(seed),
            _ => Self { nodes: nodes.min(NODES_MAX), ..Self::cluster(seed) },
        }
    }

    /// The run of a seed with several nodes. Short, since several of everything happen at once.
    fn cluster(seed: u64) -> Self {
        let alone = Self::alone(seed);
        let dice = Dice::new(!seed).fork();
        let cluster_strikes: Vec<_> = ClusterStrike::ALL.into_iter().filter(|_| dice.percent(40)).collect();
        let is_skewed = cluster_strikes.contains(&ClusterStrike::ClockStep) || dice.percent(20);
        Self {
            nodes: dice.count(NODES_MIN, NODES_MAX),
            cluster_strikes,
            skew_ms_max: if is_skewed { dice.pick(&[20, 200, 500], 500) } else { 0 },
            shards: 8,
            strikes: Vec::new(),
            faulty_ms: dice.between(12_000, 35_000),
            ahead_ms_max: 20_000,
            tenants: dice.count(2, 6),
            climate: Climate { news_lost: dice.pick(&[0, 0, 5, 40], 0), ..alone.climate },
            ..alone
        }
    }

    fn alone(seed: u64) -> Self {
        let dice = Dice::new(seed).fork();
        let strikes = Strike::ALL.into_iter().filter(|_| dice.percent(35)).collect();
        let flaky = dice.percent(50);
        let climate = Climate {
            fails: if flaky { dice.between(0, 8) } else { 0 },
            answer_lost: if flaky { dice.between(0, 8) } else { 0 },
            slow: if dice.percent(50) { dice.between(1, 30) } else { 0 },
            slow_ms_max: dice.pick(&[20, 200, 2_000], 20),
            news_lost: 0,
        };
        let is_long = dice.percent(15);
        let mut plan = Self {
            seed,
            nodes: 1,
            cluster_strikes: Vec::new(),
            skew_ms_max: 0,
            shards: 4,
            strikes,
            climate,
            faulty_ms: dice.between(20_000, 90_000),
            ahead_ms_max: if is_long { 4_500_000 } else { 20_000 },
            tenants: dice.count(1, 4),
            clients: dice.count(1, 3),
            gap_ms_max: dice.between(1_000, 5_000),
            config: config(&dice),
            schedules: dice.count(2, 4),
            begins_ms: almanac::beginning_ms(&dice),
            workforce: Workforce::Pulling,
            unfenced: false,
            unfenced_claims: false,
            clock_slowness: 1,
        };
        // Last, so that what was there before stays what it was.
        plan.workforce =
            dice.pick(&[Workforce::Pulling, Workforce::Streaming, Workforce::Mixed], Workforce::Mixed);
        plan.config.worker_dead_ms = dice.pick(&[3_000, 6_000, 15_000], 15_000);
        plan.config.worker_resume_ms = dice.pick(&[500, 2_000, 5_000], 5_000);
        plan.config.worker_take_back_ms = dice.pick(&[200, 1_000], 1_000);
        plan
    }
}

/// Small settings, so that a few hundred jobs reach every bound.
fn config(dice: &Dice) -> Config {
    let lot_count_max = dice.pick(&[2, 5, 20, 8_192], 20);
    Config {
        lookahead_ms: dice.pick(&[100, 500, 2_000], 2_000),
        held_count_max: dice.pick(&[4, 30, 200, 65_536], 200),
        lot_count_max,
        lot_count_min: dice.count(1, 16).min(lot_count_max),
        quantum: dice.pick(&[1, 3, 20, 1_024], 20),
        reads_max: dice.count(1, 2),
        claim_batch_max: dice.pick(&[1, 8, 512], 8),
        claims_max: dice.count(1, 4),
        push_max: dice.pick(&[4, 16, 1_024], 16),
        push_per_host_max: dice.pick(&[3, 16, 256], 16),
        aging_ms: dice.between(200, 30_000),
        catch_up_per_second: dice.pick(&[50, 500, 5_000], 500),
        tenant_catch_up_per_second: dice.pick(&[20, 100, 5_000], 100),
        catch_up_grace_ms: dice.pick(&[500, 10_000, 60_000], 60_000),
        checkpoint_ms: dice.between(500, 5_000),
        ..Config::default()
    }
}
