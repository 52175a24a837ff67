//! Which jobs a group knows, and in which slots. Nearly everybody asks for one that it does not know: that is answered by a
//! few bytes a job, which stay in a processor's cache where slots do not.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

use crate::place::JobTag;

#[derive(Default)]
pub(super) struct Index {
    /// By slot.
    tags: Vec<JobTag>,
    slots: HashTable<usize>,
}

impl Index {
    /// The slot of a job.
    pub(super) fn find(&self, tag: JobTag) -> Option<usize> {
        self.slots.find(hash(tag), |slot| self.tags.get(*slot) == Some(&tag)).copied()
    }

    /// The slot of a job, and whether it is a new one: the one after all others.
    pub(super) fn find_or_add(&mut self, tag: JobTag) -> (usize, bool) {
        let Self { tags, slots } = self;
        let is_its = |slot: &usize| tags.get(*slot) == Some(&tag);
        match slots.entry(hash(tag), is_its, |slot| tags.get(*slot).copied().map_or(0, hash)) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(place) => {
                let slot = tags.len();
                place.insert(slot);
                tags.push(tag);
                (slot, true)
            }
        }
    }

    /// Makes room for that many more.
    pub(super) fn reserve(&mut self, count: usize) {
        let Self { tags, slots } = self;
        tags.reserve(count);
        slots.reserve(count, |slot| tags.get(*slot).copied().map_or(0, hash));
    }

    /// Forgets everything but the room it took.
    pub(super) fn clear(&mut self) {
        self.tags.clear();
        self.slots.clear();
    }
}

fn hash(tag: JobTag) -> u64 {
    FxBuildHasher.hash_one(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    use tidewheel_core::id::JobId;
    use tidewheel_core::names::Tenant;
    use tidewheel_core::time::Timestamp;

    fn tag(n: u128) -> JobTag {
        JobTag::new(&Tenant::default(), JobId::new(Timestamp::from_ms(0), n))
    }

    #[test]
    fn each_job_has_one_slot_also_after_it_was_cleared() {
        let mut index = Index::default();
        for _ in 0..2 {
            index.reserve(10);
            for (n, slot) in (0..1_000_u128).zip(0_usize..) {
                assert_eq!(index.find(tag(n)), None);
                assert_eq!(index.find_or_add(tag(n)), (slot, true));
                assert_eq!((index.find(tag(n)), index.find_or_add(tag(n))), (Some(slot), (slot, false)));
            }
            assert_eq!(index.find(tag(1_000)), None);
            index.clear();
        }
    }
}
