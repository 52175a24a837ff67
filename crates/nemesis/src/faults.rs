//! What is broken: in waves, each of some kinds at once, on nodes chosen by the seed; the last wave has all kinds. A wave ends
//! when everything in it is mended. A run too short for pauses that outlast leases begins with one.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::SHARD_LEASE_MS;

use crate::clock;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::history::{Event, History};
use crate::pair::Pair;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// kill -9 of a node.
    Kill,
    /// A node does not run for a while, longer than its leases.
    Pause,
    /// A node is cut off.
    Partition,
    /// kill -9 of the database, or a failover to its standby.
    Database,
    /// The wall clock of a node is set, by seconds or by an hour, either way.
    Clock,
}

/// All kinds.
pub const KINDS: [Kind; 5] = [Kind::Kill, Kind::Pause, Kind::Partition, Kind::Database, Kind::Clock];

/// Steps of a clock, in seconds.
const STEPS_S: [i64; 6] = [3_600, -3_600, 120, -120, 2, -2];
/// A pause of so long outlasts every lease.
const OUTLASTS: Duration = Duration::from_millis(SHARD_LEASE_MS.unsigned_abs() + 2_000);
/// Between two waves.
const BREATH: Duration = Duration::from_secs(2);

/// Who breaks things.
#[derive(Clone)]
pub(crate) struct Nemesis {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) pair: Arc<Pair>,
    pub(crate) history: Arc<History>,
    /// How long a pause is.
    pub(crate) pause: Duration,
}

impl Nemesis {
    /// Breaks and mends for that long, and a little longer for the last wave.
    pub(crate) fn work(&self, length: Duration, kinds: &[Kind], mut dice: Dice) -> anyhow::Result<()> {
        if kinds.contains(&Kind::Pause) && self.pause < OUTLASTS && self.cluster.count() > 1 {
            self.outlast_leases(dice.below(self.cluster.count()))?;
        }
        let began = clock::instant();
        while began.elapsed() + self.pause < length {
            let mut wave: Vec<Kind> = kinds.iter().copied().filter(|_| dice.percent(50)).collect();
            if wave.is_empty() {
                wave.extend(kinds.get(dice.below(kinds.len())));
            }
            self.wave(&wave, &mut dice)?;
            clock::pause(BREATH);
        }
        self.wave(kinds, &mut dice)
    }

    /// Pauses a node until the others have all that was its own. Whoever wakes up from that still believes in leases that are
    /// over, whatever it was about to do. Nothing else is broken meanwhile, so that somebody is there to take over.
    fn outlast_leases(&self, node: usize) -> anyhow::Result<()> {
        self.during("pause", &format!("node {node}"), || {
            self.cluster.pause(node, true);
            clock::pause(OUTLASTS);
            let missed = self.cluster.until_missed(node);
            self.cluster.pause(node, false);
            missed
        })
    }

    /// Each on a node of its own as far as there are so many.
    fn wave(&self, kinds: &[Kind], dice: &mut Dice) -> anyhow::Result<()> {
        let first = dice.below(self.cluster.count());
        let threads: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(number, kind)| {
                let node = (first + number) % self.cluster.count();
                let (nemesis, kind, dice) = (self.clone(), *kind, Dice::new(dice.roll()));
                std::thread::spawn(move || nemesis.strike(kind, node, dice))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a fault could not be mended"))??;
        }
        Ok(())
    }

    fn strike(&self, kind: Kind, node: usize, mut dice: Dice) -> anyhow::Result<()> {
        // Not all at the same moment.
        clock::pause(dice.between_ms(0, 2_000));
        let on = format!("node {node}");
        let length = dice.between_ms(2_000, u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX));
        match kind {
            Kind::Kill => self.during("kill", &on, || {
                self.cluster.kill(node);
                clock::pause(length / 2);
                self.cluster.revive(node)
            }),
            Kind::Pause => self.during("pause", &on, || {
                self.cluster.pause(node, true);
                clock::pause(self.pause);
                self.cluster.pause(node, false);
                Ok(())
            }),
            Kind::Partition => self.during("partition", &on, || {
                self.cluster.cut(node, true);
                clock::pause(length);
                self.cluster.cut(node, false);
                Ok(())
            }),
            Kind::Database if dice.percent(50) => self.during("database crash", "database", || {
                self.pair.primary().crash();
                clock::pause(length / 4);
                self.pair.primary().begin()
            }),
            Kind::Database => {
                self.during("failover", "database", || self.pair.fail_over())?;
                // From here on it works; until it has a standby again, it must not fail over.
                self.pair.restore()
            }
            Kind::Clock if self.cluster.has_clocks() => self.during("clock", &on, || {
                let by_s = STEPS_S.get(dice.below(STEPS_S.len())).copied().unwrap_or(2);
                self.cluster.set_clock(node, by_s)?;
                clock::pause(length);
                self.cluster.set_clock(node, 0)
            }),
            Kind::Clock => Ok(()),
        }
    }

    fn during(
        &self,
        fault: &str,
        on: &str,
        breaking: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (fault, on) = (fault.to_owned(), on.to_owned());
        self.history.note(Event::Fault { fault: fault.clone(), on: on.clone() });
        let outcome = breaking();
        self.history.note(Event::Mended { fault, on });
        outcome
    }
}
