//! Promises with a bound: how late, how many.

use super::{Asked, Bounds, Checker, Promise};
use crate::history::Phase;

/// Of a hundred submissions, so many must be taken while things are broken.
const TAKEN_PERCENT_MIN: usize = 50;

impl Checker {
    pub(super) fn judge_times(&mut self, bounds: Bounds) {
        let died = std::mem::take(&mut self.died);
        for (node, code) in died {
            self.blame(
                Promise::NodesStayUp,
                format!("node {node}"),
                format!("it ended by itself, with {code:?}"),
            );
        }
        self.judge_taken();
        if let Some(healed_ms) = self.began(Phase::Healed) {
            self.judge_recovery(healed_ms, bounds);
        }
        if let (Some(from_ms), Some(until_ms)) = (self.began(Phase::Rolling), self.ended(Phase::Rolling)) {
            self.judge_rolling(from_ms, until_ms, bounds);
        }
    }

    fn judge_taken(&mut self) {
        let (Some(from_ms), Some(until_ms)) = (self.began(Phase::Faults), self.ended(Phase::Faults)) else {
            return;
        };
        let meanwhile = || self.asked.values().filter(|asked| (from_ms..until_ms).contains(&asked.at_ms));
        let (sent, taken) = (meanwhile().count(), meanwhile().filter(|asked| !asked.ids.is_empty()).count());
        if taken * 100 < sent * TAKEN_PERCENT_MIN {
            self.blame(Promise::SubmissionsTaken, "all", format!("{taken} of {sent} submissions were taken"));
        }
    }

    /// When a job could first start.
    fn due_ms(asked: &Asked) -> Option<i64> {
        Some(asked.run_at_ms.max(asked.taken_at_ms?))
    }

    fn judge_recovery(&mut self, healed_ms: i64, bounds: Bounds) {
        let recovered_ms = healed_ms + bounds.recovery_ms_max;
        let mut faults = Vec::new();
        for asked in self.asked.values() {
            let Some(due_ms) = Self::due_ms(asked) else { continue };
            let latest_ms = due_ms.max(recovered_ms) + bounds.lag_ms_max;
            for id in &asked.ids {
                let start_ms = self.jobs.get(id).and_then(super::Seen::first_start_ms);
                if let Some(start_ms) = start_ms.filter(|start_ms| *start_ms > latest_ms) {
                    let (lag, since) = (start_ms - due_ms, start_ms - healed_ms);
                    let text = format!("started {lag} ms late, {since} ms after everything was mended");
                    faults.push((id.clone(), text));
                }
            }
        }
        for (id, text) in faults {
            self.blame(Promise::LagRecovers, id, text);
        }
    }

    fn judge_rolling(&mut self, from_ms: i64, until_ms: i64, bounds: Bounds) {
        let mut faults = Vec::new();
        for asked in self.asked.values().filter(|asked| (from_ms..until_ms).contains(&asked.at_ms)) {
            let Some(due_ms) = Self::due_ms(asked) else { continue };
            for id in &asked.ids {
                let Some(seen) = self.jobs.get(id) else { continue };
                if seen.starts.len() > 1 {
                    let text = format!("started {} times, and nothing was broken", seen.starts.len());
                    faults.push((Promise::RollingRunsOnce, id.clone(), text));
                }
                let lag_ms = seen.first_start_ms().map_or(0, |start_ms| start_ms - due_ms);
                if lag_ms > bounds.lag_ms_max {
                    faults.push((Promise::RollingOnTime, id.clone(), format!("started {lag_ms} ms late")));
                }
            }
        }
        for (promise, id, text) in faults {
            self.blame(promise, id, text);
        }
    }
}
