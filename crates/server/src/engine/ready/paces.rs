//! How fast pushes begin to each host, where a rate is set. What has to wait for it waits in its lane, and costs no attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::governor::{Bucket, Rate};
use crate::engine::host_rates::HostRates;

#[derive(Debug)]
struct Pace {
    rate: Rate,
    bucket: Bucket,
    waits: bool,
}

/// The hosts to which something was sent lately.
#[derive(Debug)]
pub(super) struct Paces {
    rates: HostRates,
    hosts: BTreeMap<Arc<str>, Pace>,
    /// Hosts whose lanes wait for another push to be allowed, and when it is.
    waiting: BTreeSet<(i64, Arc<str>)>,
}

impl Paces {
    pub(super) fn new(rates: HostRates) -> Self {
        Self { rates, hosts: BTreeMap::new(), waiting: BTreeSet::new() }
    }

    /// How many pushes to a host may begin now. If none, its turn comes later, and [`Self::due`] says when.
    pub(super) fn room(&mut self, host: &Arc<str>, monotonic_ms: i64) -> usize {
        if self.rates.is_empty() {
            return usize::MAX;
        }
        if !self.hosts.contains_key(host) {
            let Some(per_s) = self.rates.of(host) else { return usize::MAX };
            let rate = Rate::per_second(per_s);
            let bucket = Bucket::full(rate, monotonic_ms);
            self.hosts.insert(Arc::clone(host), Pace { rate, bucket, waits: false });
        }
        let Some(pace) = self.hosts.get_mut(host) else { return usize::MAX };
        pace.bucket.fill(pace.rate, monotonic_ms);
        let room = pace.bucket.whole();
        if room == 0 && !pace.waits {
            pace.waits = true;
            let wait_ms = pace.bucket.whole_in_ms(pace.rate).max(1);
            self.waiting.insert((monotonic_ms.saturating_add(wait_ms), Arc::clone(host)));
        }
        room
    }

    /// So many have begun.
    pub(super) fn took(&mut self, host: &str, count: usize) {
        if let Some(pace) = self.hosts.get_mut(host) {
            pace.bucket.take(count);
        }
    }

    /// Whether a host's lane waits for another push to be allowed.
    pub(super) fn waits(&self, host: &str) -> bool {
        !self.waiting.is_empty() && self.hosts.get(host).is_some_and(|pace| pace.waits)
    }

    /// When the next may go on.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.waiting.first().map(|(at_ms, _)| *at_ms)
    }

    /// A host that may go on.
    pub(super) fn due(&mut self, monotonic_ms: i64) -> Option<Arc<str>> {
        self.waiting.first().filter(|(at_ms, _)| *at_ms <= monotonic_ms)?;
        let (_, host) = self.waiting.pop_first()?;
        if let Some(pace) = self.hosts.get_mut(&host) {
            pace.waits = false;
        }
        Some(host)
    }

    /// Forgets hosts to which nothing was sent lately: a full bucket is what they would begin with.
    pub(super) fn forget_idle(&mut self, monotonic_ms: i64) {
        self.hosts.retain(|_, pace| {
            pace.bucket.fill(pace.rate, monotonic_ms);
            pace.waits || !pace.bucket.is_full(pace.rate)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_sees_more_than_the_rate_and_it_is_used_up() {
        let mut paces = Paces::new(HostRates { each_per_s: Some(40), named: Vec::new() });
        let host: Arc<str> = Arc::from("http://a");
        let mut began = Vec::new();
        let mut now_ms = 0;
        while now_ms < 10_000 {
            let room = paces.room(&host, now_ms);
            paces.took(&host, room);
            began.extend(std::iter::repeat_n(now_ms, room));
            now_ms = if room == 0 { paces.next_ms().unwrap() } else { now_ms };
            assert!(room > 0 || paces.due(now_ms).is_some());
        }
        for from in 0..9_000 {
            let count = began.iter().filter(|at| (from..from + 1_000).contains(*at)).count();
            assert!(count <= 40, "{count} from {from}");
        }
        assert!(began.len() > 350, "{}", began.len());
        paces.forget_idle(20_000);
        assert!(paces.hosts.is_empty());
    }
}
