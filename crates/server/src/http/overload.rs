//! What is refused when more comes in than the store takes. The sign of overload is the number of jobs that were taken
//! from callers and are not stored yet: it grows exactly while submissions come faster than commits, whatever the store,
//! and every one of them takes memory and makes the next wait longer. Before it reaches its bound the least urgent are
//! turned away, so that what is urgent still gets in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewheel_api::wire::fault::Code;
use tidewheel_core::job::Priority;

use super::problem::Problem;
use crate::metrics::Metrics;

/// When to come back.
const RETRY_S: u32 = 1;
/// Hundredths of the bound up to which jobs of a priority are taken.
const fn taken_until(priority: Priority) -> usize {
    match priority {
        Priority::Critical => 100,
        Priority::High => 85,
        Priority::Normal => 70,
        Priority::Low => 50,
    }
}

/// How many jobs there are of each priority.
pub(super) type PerPriority = [(Priority, usize); 4];

/// Jobs that were taken from callers and are not stored yet.
pub(super) struct Overload {
    storing: Arc<AtomicUsize>,
    count_max: usize,
    metrics: Arc<Metrics>,
}

/// Jobs on their way into the store, until this is dropped.
pub(super) struct Storing {
    storing: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    count: usize,
}

impl Drop for Storing {
    fn drop(&mut self) {
        let before = self.storing.fetch_sub(self.count, Ordering::SeqCst);
        self.metrics.set_storing(before.saturating_sub(self.count));
    }
}

impl Overload {
    pub(super) fn new(count_max: usize, metrics: Arc<Metrics>) -> Self {
        Self { storing: Arc::default(), count_max: count_max.max(1), metrics }
    }

    /// Takes those jobs of each priority that are urgent enough beside what is under way, and says which priorities are
    /// not; it is an error if none is.
    pub(super) fn enter_each(&self, counts: PerPriority) -> Result<(Storing, Vec<Priority>), Problem> {
        let sum = |counts: &PerPriority| counts.iter().map(|(_, count)| count).sum::<usize>();
        let before = self.storing.fetch_add(sum(&counts), Ordering::SeqCst);
        let is_taken = |priority: Priority| before == 0 || before < self.taken_until(priority);
        let (taken, shed): (Vec<_>, Vec<_>) =
            counts.into_iter().filter(|(_, count)| *count > 0).partition(|(priority, _)| is_taken(*priority));
        shed.iter().for_each(|(priority, count)| self.metrics.shed(*priority, *count));
        let (counter, metrics) = (Arc::clone(&self.storing), Arc::clone(&self.metrics));
        let count = taken.iter().map(|(_, count)| count).sum::<usize>();
        let storing = Storing { storing: counter, metrics, count };
        let refused = shed.iter().map(|(_, count)| count).sum::<usize>();
        self.storing.fetch_sub(refused, Ordering::SeqCst);
        self.metrics.set_storing(before + count);
        match shed.first() {
            Some((priority, _)) if taken.is_empty() => Err(overloaded(before, *priority)),
            Some(_) | None => Ok((storing, shed.into_iter().map(|(priority, _)| priority).collect())),
        }
    }

    fn taken_until(&self, priority: Priority) -> usize {
        self.count_max.saturating_mul(taken_until(priority)) / 100
    }

    /// Takes jobs, of which `least` is the least urgent, or says that the server is overloaded. What is under way decides,
    /// not what is asked for: a server that is idle takes a batch of any size.
    pub(super) fn enter(&self, count: usize, least: Priority) -> Result<Storing, Problem> {
        let before = self.storing.fetch_add(count, Ordering::SeqCst);
        let (counter, metrics) = (Arc::clone(&self.storing), Arc::clone(&self.metrics));
        let storing = Storing { storing: counter, metrics, count };
        if before == 0 || before < self.taken_until(least) {
            self.metrics.set_storing(before + count);
            return Ok(storing);
        }
        self.metrics.shed(least, count);
        Err(overloaded(before, least))
    }
}

fn overloaded(before: usize, priority: Priority) -> Problem {
    let detail = format!(
        "{before} jobs are being stored, more than jobs of priority {} are taken beside; try again",
        priority.as_str()
    );
    Problem::new(Code::Overloaded, detail).retry_after(RETRY_S)
}

/// The answer for one job of a batch whose others were urgent enough.
pub(super) fn shed_beside_others(priority: Priority) -> Problem {
    let detail = format!(
        "more jobs are being stored than jobs of priority {} are taken beside; try again",
        priority.as_str()
    );
    Problem::new(Code::Overloaded, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(overload: &Overload, priority: Priority) -> bool {
        overload.enter(1, priority).is_ok()
    }

    #[test]
    fn the_least_urgent_are_turned_away_first_and_taken_again_last() {
        let overload = Overload::new(1_000, Arc::new(Metrics::new()));
        let taken = |overload: &Overload| Priority::ALL.map(|priority| is_taken(overload, priority));
        assert_eq!(taken(&overload), [true; 4]);
        let mut held = vec![overload.enter(499, Priority::Low).unwrap()];
        assert_eq!(taken(&overload), [true; 4]);
        for (more, wanted) in [
            (1, [true, true, true, false]),
            (200, [true, true, false, false]),
            (150, [true, false, false, false]),
            (150, [false, false, false, false]),
        ] {
            held.push(overload.enter(more, Priority::Critical).unwrap());
            assert_eq!(taken(&overload), wanted, "after {more} more");
        }
        held.pop();
        assert_eq!(taken(&overload), [true, false, false, false]);
        drop(held);
        assert_eq!(taken(&overload), [true; 4]);
        let text = overload.metrics.render();
        assert!(text.contains("tidewheel_shed_total{priority=\"low\"} 5"), "{text}");
        assert!(text.contains("tidewheel_shed_total{priority=\"critical\"} 1"), "{text}");
    }

    #[test]
    fn of_many_those_that_are_urgent_enough_are_taken() {
        let overload = Overload::new(1_000, Arc::new(Metrics::new()));
        let some = || Priority::ALL.map(|priority| (priority, 10));
        let under_way = |overload: &Overload| overload.storing.load(Ordering::SeqCst);
        let (held, shed) = overload.enter_each(some()).unwrap();
        assert_eq!((under_way(&overload), shed), (40, vec![]));
        let more = overload.enter(700, Priority::Critical).unwrap();
        let (few, shed) = overload.enter_each(some()).unwrap();
        assert_eq!((under_way(&overload), shed), (760, vec![Priority::Normal, Priority::Low]));
        let low = Priority::ALL.map(|priority| (priority, usize::from(priority == Priority::Low)));
        assert!(overload.enter_each(low).is_err());
        drop((held, more, few));
        assert_eq!(under_way(&overload), 0);
    }

    #[test]
    fn an_idle_server_takes_a_batch_of_any_size() {
        let overload = Overload::new(10, Arc::new(Metrics::new()));
        let held = overload.enter(10_000, Priority::Low).unwrap();
        assert!(!is_taken(&overload, Priority::Critical));
        drop(held);
        assert!(is_taken(&overload, Priority::Low));
    }
}
