//! What was measured: named numbers, and the ratios between them that matter.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::process;
use super::stopwatch::Stopwatch;

/// Which figure is told as a part of which other.
const RATIOS: [(&str, &str); 14] = [
    ("submit.batch", "bare.ingest"),
    ("submit.single", "submit.single.no_sync"),
    ("drain.sink", "bare.drain"),
    ("waiting.submit.batch", "submit.batch"),
    ("waiting.drain.sink", "drain.sink"),
    ("schedules.herd", "schedules.sink"),
    ("workers.drain", "workers.sink"),
    ("workers.drain.two", "workers.drain"),
    ("nodes.two.submit", "nodes.one.submit"),
    ("nodes.two.drain", "nodes.one.drain"),
    ("old_transaction.submit", "old_transaction.none.submit"),
    ("old_transaction.drain", "old_transaction.none.drain"),
    ("waiting.submit", "waiting.none.submit"),
    ("waiting.drain", "waiting.none.drain"),
];

/// One number.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    /// A stable name.
    pub(super) name: &'static str,
    /// What it says, for people.
    pub(super) what: String,
    /// The number.
    pub(super) value: f64,
    /// Its unit.
    pub(super) unit: &'static str,
    /// For a rate: CPU time per job on all threads of this process, load generator included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_job: Option<f64>,
    /// The number in each round, if it was measured in turns with another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rounds: Vec<f64>,
    /// This one over another; measured in turns, the middle of what it was in each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// Which other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to: Option<&'static str>,
    /// The ratio in each round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ratio_rounds: Vec<f64>,
}

impl Figure {
    pub(super) fn new(name: &'static str, what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        let (what, rounds, ratio_rounds) = (what.into(), Vec::new(), Vec::new());
        Self {
            name,
            what,
            value,
            unit,
            cpu_us_per_job: None,
            rounds,
            ratio: None,
            ratio_to: None,
            ratio_rounds,
        }
    }

    pub(super) fn rate(name: &'static str, what: impl Into<String>, rate: Rate) -> Self {
        let figure = Self::new(name, what, rate.per_second(), "jobs/s");
        Self { cpu_us_per_job: Some(rate.cpu_us_per_job()), ..figure }
    }

    /// The rate in the middle of those of all rounds.
    pub(super) fn rates(name: &'static str, what: impl Into<String>, rates: &[Rate]) -> anyhow::Result<Self> {
        let middle = median(rates.to_vec(), Rate::per_second)?;
        let rounds = rates.iter().map(|rate| rate.per_second()).collect();
        Ok(Self { rounds, ..Self::rate(name, what, middle) })
    }

    /// The same over another: of each round, if both were measured in turns, and in all.
    fn over(&self, base: &Self) -> (f64, Vec<f64>) {
        if self.rounds.is_empty() || self.rounds.len() != base.rounds.len() {
            return (self.value / base.value, Vec::new());
        }
        let rounds: Vec<f64> = self.rounds.iter().zip(&base.rounds).map(|(one, other)| one / other).collect();
        (between(rounds.clone()), rounds)
    }
}

/// Fills in the ratios whose both sides were measured.
pub(super) fn relate(figures: &mut [Figure]) {
    for (name, base) in RATIOS {
        let Some(whole) = figures.iter().find(|figure| figure.name == base && figure.value > 0.0).cloned()
        else {
            continue;
        };
        for figure in figures.iter_mut().filter(|figure| figure.name == name) {
            let (ratio, rounds) = figure.over(&whole);
            figure.ratio = Some(ratio);
            figure.ratio_to = Some(base);
            figure.ratio_rounds = rounds;
        }
    }
}

/// The one in the middle; of an even number, the lower.
pub(super) fn median<T: Copy>(mut all: Vec<T>, size: impl Fn(T) -> f64) -> anyhow::Result<T> {
    all.sort_by(|one, other| size(*one).total_cmp(&size(*other)));
    let middle = all.len().saturating_sub(1) / 2;
    all.get(middle).copied().ok_or_else(|| anyhow::anyhow!("nothing was measured"))
}

/// The one in the middle; of an even number, halfway between the two there.
fn between(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let (lower, upper) = (all.len().saturating_sub(1) / 2, all.len() / 2);
    match (all.get(lower), all.get(upper)) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => f64::NAN,
    }
}

/// How fast something went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    jobs: u64,
    elapsed: Duration,
    cpu_seconds: f64,
}

impl Rate {
    /// The same, in the time that counts of it.
    pub(super) const fn taking(self, elapsed: Duration) -> Self {
        Self { elapsed, ..self }
    }

    pub(super) fn per_second(self) -> f64 {
        number(self.jobs) / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    fn cpu_us_per_job(self) -> f64 {
        self.cpu_seconds * 1e6 / number(self.jobs).max(1.0)
    }
}

/// Measures a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    watch: Stopwatch,
    cpu_seconds: f64,
}

impl Meter {
    pub(super) fn start() -> anyhow::Result<Self> {
        Ok(Self { cpu_seconds: process::cpu_seconds()?, watch: Stopwatch::start() })
    }

    pub(super) fn elapsed(self) -> Duration {
        self.watch.elapsed()
    }

    pub(super) fn stop(self, jobs: u64) -> anyhow::Result<Rate> {
        let elapsed = self.watch.elapsed();
        Ok(Rate { jobs, elapsed, cpu_seconds: process::cpu_seconds()? - self.cpu_seconds })
    }
}

/// Times in microseconds, and how they spread.
pub(super) struct Spread {
    histogram: Histogram<u64>,
    early: u64,
}

impl Spread {
    const US_MAX: u64 = 600_000_000;
    const DIGITS: u8 = 3;

    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { histogram: Histogram::new_with_bounds(1, Self::US_MAX, Self::DIGITS)?, early: 0 })
    }

    /// Takes a time; one below zero came before it should have.
    pub(super) fn record(&mut self, us: i64) {
        self.early += u64::from(us < 0);
        self.histogram.saturating_record(u64::try_from(us).unwrap_or(0));
    }

    pub(super) const fn early(&self) -> u64 {
        self.early
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        number(self.histogram.value_at_quantile(quantile)) / 1e3
    }

    pub(super) fn max_ms(&self) -> f64 {
        number(self.histogram.max()) / 1e3
    }
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub(super) const fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_both_sides() {
        let mut figures = vec![
            Figure::new("submit.batch", "", 30.0, "jobs/s"),
            Figure::new("drain.sink", "", 30.0, "jobs/s"),
            Figure::new("bare.ingest", "", 40.0, "jobs/s"),
        ];
        relate(&mut figures);
        let ratios: Vec<_> = figures.iter().map(|figure| (figure.ratio, figure.ratio_to)).collect();
        assert_eq!(ratios, [(Some(0.75), Some("bare.ingest")), (None, None), (None, None)]);
    }

    #[test]
    fn what_is_measured_in_turns_is_compared_round_by_round() {
        let rounds =
            |name, rounds: &[f64]| Figure { rounds: rounds.to_vec(), ..Figure::new(name, "", 9.0, "jobs/s") };
        let mut figures = vec![
            rounds("nodes.two.drain", &[10.0, 40.0, 15.0]),
            rounds("nodes.one.drain", &[10.0, 20.0, 30.0]),
        ];
        relate(&mut figures);
        assert_eq!(figures[0].ratio_rounds, [1.0, 2.0, 0.5]);
        assert_eq!((figures[0].ratio, &figures[1].ratio), (Some(1.0), &None));
        assert_eq!(between(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0], |value| value).unwrap(), 2.0);
        assert_eq!(median(vec![4.0, 1.0], |value| value).unwrap(), 1.0);
        assert!(median(Vec::<f64>::new(), |value| value).is_err());
    }

    #[test]
    fn what_comes_early_is_counted() {
        let mut spread = Spread::new().unwrap();
        for us in [-1, 0, 1_000, 2_000] {
            spread.record(us);
        }
        assert_eq!((spread.early(), spread.count()), (1, 4));
        assert!((spread.max_ms() - 2.0).abs() < 0.01);
    }
}
