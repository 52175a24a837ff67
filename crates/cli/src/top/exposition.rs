//! The server's metrics, as far as `top` shows them: the text form of Prometheus, read line by line.

use std::collections::BTreeMap;

/// What stands for all tenants and queues beyond those with numbers of their own.
const OTHERS: &str = "(other)";

/// What is read from the metrics.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Jobs of all tenants, by state.
    pub(super) jobs: BTreeMap<String, u64>,
    /// Attempts started since the server's start, by tenant.
    pub(super) starts: BTreeMap<String, u64>,
    /// Whether tenants without numbers of their own have started some, too.
    pub(super) starts_of_others: bool,
    /// Queues of all tenants.
    pub(super) queues: BTreeMap<String, Queue>,
}

/// A queue, over all tenants.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Queue {
    pub(super) depth: u64,
    pub(super) oldest_age_s: f64,
    pub(super) workers: u64,
}

impl Metrics {
    /// Reads `/metrics`; passes over whatever it does not know.
    pub(super) fn read(text: &str) -> Self {
        let mut metrics = Self::default();
        for (name, label, value) in text.lines().filter_map(sample) {
            match name {
                "tidewheel_jobs" => drop(metrics.jobs.insert(label, whole(value))),
                "tidewheel_scheduling_lag_seconds_count" if label == OTHERS => {
                    metrics.starts_of_others = value > 0.0;
                }
                "tidewheel_scheduling_lag_seconds_count" => {
                    metrics.starts.insert(label, whole(value));
                }
                "tidewheel_queue_depth" => metrics.queue(label).depth = whole(value),
                "tidewheel_queue_oldest_age_seconds" => metrics.queue(label).oldest_age_s = value,
                "tidewheel_queue_workers" => metrics.queue(label).workers = whole(value),
                _ => {}
            }
        }
        metrics
    }

    fn queue(&mut self, name: String) -> &mut Queue {
        self.queues.entry(name).or_default()
    }
}

/// Name, the value of the one label, and number of a line such as `name{label="value"} 1`.
fn sample(line: &str) -> Option<(&str, String, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, number) = rest.rsplit_once("} ")?;
    let label = labels.split_once("=\"")?.1.strip_suffix('"')?;
    let number = number.split(' ').next()?.parse().ok()?;
    Some((name, label.replace("\\\"", "\"").replace("\\\\", "\\"), number))
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, far below 2^53")]
    let whole = value.max(0.0) as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_lines_are_read_and_others_passed_over() {
        let metrics = Metrics::read(
            "# TYPE tidewheel_jobs gauge\n\
             tidewheel_jobs{state=\"dead\"} 7\n\
             tidewheel_scheduling_lag_seconds_count{tenant=\"acme\"} 12\n\
             tidewheel_scheduling_lag_seconds_count{tenant=\"(other)\"} 99\n\
             tidewheel_queue_depth{queue=\"mail\"} 3.0\n\
             tidewheel_queue_oldest_age_seconds{queue=\"mail\"} 1.5\n\
             tidewheel_queue_workers{queue=\"mail\"} 2\n\
             tidewheel_held_jobs 5\nnonsense{\n# EOF\n",
        );
        assert_eq!(metrics.jobs, BTreeMap::from([("dead".to_owned(), 7)]));
        assert_eq!(metrics.starts, BTreeMap::from([("acme".to_owned(), 12)]));
        assert!(metrics.starts_of_others && !Metrics::read("").starts_of_others);
        let mail = metrics.queues["mail"];
        assert_eq!((mail.depth, mail.workers), (3, 2));
        assert!((mail.oldest_age_s - 1.5).abs() < 1e-9);
    }
}
