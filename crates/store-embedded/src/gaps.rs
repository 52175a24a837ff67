//! Stretches of `waiting` that are known to be empty. The engine keeps deleted entries until it merges them away,
//! and a read that starts where a hundred thousand jobs have been drained steps over all of them before it finds
//! the first that is left. What such a read found out the slow way is kept here, so that the next one skips it.
//!
//! Readers note gaps they saw in their snapshot; the commit thread takes back what it fills, after the commit and
//! before anybody hears of it. A reader whose snapshot is older than a commit into the same bucket cannot note
//! anything there: the gap may be filled already.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// Gaps kept; the oldest go first.
const GAPS_COUNT_MAX: usize = 20_000;
/// Buckets whose newest commit is remembered; when there are more, older readers can note nothing.
const BUCKETS_COUNT_MAX: usize = 8_192;

#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts commits into `waiting`.
    version: u64,
    /// From the first key of a gap to the first key after it.
    gaps: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The newest commit into a bucket.
    filled: FxHashMap<[u8; 4], u64>,
    /// What is older than this is not known.
    filled_since: u64,
}

/// How to go on from a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Nothing lies between the key and this.
    pub(crate) from: Vec<u8>,
    /// The next known gap begins here.
    pub(crate) to: Option<Vec<u8>>,
}

impl Gaps {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves the tables half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked before the snapshot is taken, and given to [`Self::note`].
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Where to read on from `key`.
    pub(crate) fn skip(&self, key: &[u8]) -> Step {
        let inner = self.lock();
        let around = inner.gaps.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let from = match around {
            Some((_, end)) if &**end > key => end.clone(),
            Some(_) | None => key.to_vec(),
        };
        let next = inner.gaps.range::<[u8], _>((Bound::Included(&*from), Bound::Unbounded)).next();
        let to = next.map(|(start, _)| start.clone());
        Step { from, to }
    }

    /// Notes that nothing lies from `start` up to, not including, `end`, as seen by a reader that began at `version`.
    pub(crate) fn note(&self, version: u64, start: &[u8], end: &[u8]) {
        let mut inner = self.lock();
        if start >= end || inner.is_filled_since(version, start, end) {
            return;
        }
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        // Join with what it touches.
        while let Some((before, before_end)) = inner.touching(&start, &end) {
            start = start.min(before.clone());
            end = end.max(before_end);
            inner.gaps.remove(&before);
        }
        inner.gaps.insert(start, end);
        while inner.gaps.len() > GAPS_COUNT_MAX {
            inner.gaps.pop_first();
        }
    }

    /// Takes back what these new entries fill.
    pub(crate) fn fill(&self, keys: &[impl AsRef<[u8]>]) {
        if keys.is_empty() {
            return;
        }
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        for key in keys.iter().map(AsRef::as_ref) {
            if let Some((bucket, _)) = key.split_first_chunk::<4>() {
                inner.filled.insert(*bucket, version);
            }
            inner.split(key);
        }
        if inner.filled.len() > BUCKETS_COUNT_MAX {
            inner.filled.clear();
            inner.filled_since = version;
        }
    }
}

impl Inner {
    fn is_filled_since(&self, version: u64, start: &[u8], end: &[u8]) -> bool {
        let bucket = |key: &[u8]| {
            key.split_first_chunk::<4>().map_or(u32::MAX, |(bucket, _)| u32::from_be_bytes(*bucket))
        };
        let buckets = bucket(start)..=bucket(end);
        self.filled_since > version
            || self
                .filled
                .iter()
                .any(|(filled, at)| *at > version && buckets.contains(&u32::from_be_bytes(*filled)))
    }

    fn touching(&self, start: &[u8], end: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (before, before_end) =
            self.gaps.range::<[u8], _>((Bound::Unbounded, Bound::Included(end))).next_back()?;
        (&**before_end >= start).then(|| (before.clone(), before_end.clone()))
    }

    fn split(&mut self, key: &[u8]) {
        let around = self.gaps.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let Some((start, end)) = around.filter(|(_, end)| &***end > key) else { return };
        let is_first = &**start == key;
        // The gap now ends here. Most keys lie within one: it is found once, and stays where it is.
        let end = std::mem::replace(end, key.to_vec());
        if is_first {
            self.gaps.remove(key);
        }
        let mut after = Vec::with_capacity(key.len() + 1);
        after.extend_from_slice(key);
        after.push(0);
        if after < end {
            self.gaps.insert(after, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(n: u8) -> Vec<u8> {
        vec![0, 0, 0, n / 16, n]
    }

    #[test]
    fn gaps_join_and_are_taken_back() {
        let gaps = Gaps::default();
        let version = gaps.version();
        gaps.note(version, &key(10), &key(20));
        gaps.note(version, &key(20), &key(30));
        gaps.note(version, &key(50), &key(60));
        assert_eq!(gaps.skip(&key(12)), Step { from: key(30), to: Some(key(50)) });
        assert_eq!(gaps.skip(&key(5)), Step { from: key(5), to: Some(key(10)) });
        gaps.fill(&[key(15)]);
        assert_eq!(gaps.skip(&key(12)).from, key(15));
        assert_eq!(gaps.skip(&key(16)).from, key(30));
    }

    #[test]
    fn a_gap_seen_before_it_was_filled_is_not_noted() {
        let gaps = Gaps::default();
        let version = gaps.version();
        gaps.fill(&[key(15)]);
        gaps.note(version, &key(10), &key(20));
        assert_eq!(gaps.skip(&key(12)).from, key(12));
        gaps.note(version, &key(40), &key(44));
        assert_eq!(gaps.skip(&key(41)).from, key(44), "other buckets are not concerned");
        gaps.note(gaps.version(), &key(10), &key(15));
        assert_eq!(gaps.skip(&key(12)).from, key(15));
    }

    proptest! {
        /// A gap never hides an entry, whatever is noted and filled in whatever order.
        #[test]
        fn nothing_is_hidden(steps in proptest::collection::vec((0_u8..3, any::<u8>(), any::<u8>()), 1..60)) {
            let gaps = Gaps::default();
            let mut entries: BTreeSet<Vec<u8>> = BTreeSet::new();
            let (mut seen, mut seen_at) = (entries.clone(), gaps.version());
            for (kind, a, b) in steps {
                match kind {
                    0 => {
                        entries.insert(key(a));
                        gaps.fill(&[key(a)]);
                    }
                    1 => (seen, seen_at) = (entries.clone(), gaps.version()),
                    _ => {
                        let start = key(a.min(b));
                        let end = seen.range(start.clone()..).next().cloned().unwrap_or_else(|| key(a.max(b))).min(key(a.max(b)));
                        gaps.note(seen_at, &start, &end);
                    }
                }
                for n in 0..=u8::MAX {
                    let step = gaps.skip(&key(n));
                    prop_assert!(entries.range(key(n)..step.from).next().is_none());
                }
            }
        }
    }
}
