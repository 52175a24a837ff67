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

    /// Takes jobs, of which `least` is the least urgent, or says that the server is overloaded. What is under way decides,
    /// not what is asked for: a server that is idle takes a batch of any size.
    pub(super) fn enter(&self, count: usize, least: Priority) -> Result<Storing, Problem> {
        let before = self.storing.fetch_add(count, Ordering::SeqCst);
        let (counter, metrics) = (Arc::clone(&self.storing), Arc::clone(&self.metrics));
        let storing = Storing { storing: counter, metrics, count };
        if before == 0 || before < self.count_max.saturating_mul(taken_until(least)) / 100 {
            self.metrics.set_storing(before + count);
            return Ok(storing);
        }
        self.metrics.shed(least, count);
        let detail = format!(
            "{before} jobs are being stored, more than jobs of priority {} are taken beside; try again",
            least.as_str()
        );
        Err(Problem::new(Code::Overloaded, detail).retry_after(RETRY_S))
    }
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
    fn an_idle_server_takes_a_batch_of_any_size() {
        let overload = Overload::new(10, Arc::new(Metrics::new()));
        let held = overload.enter(10_000, Priority::Low).unwrap();
        assert!(!is_taken(&overload, Priority::Critical));
        drop(held);
        assert!(is_taken(&overload, Priority::Low));
    }
}
