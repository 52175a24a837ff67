//! Calls that are too many for a record each: those of the jobs' own path, and those that were refused. They are
//! counted by who made them, and each count is one record a second. What the store does not take for now is kept, and written
//! with what comes next.

use rustc_hash::FxHashMap;
use tidewheel_api::wire::audit::Act;
use tidewheel_core::limits::AUDIT_SUMS_COUNT_MAX;
use tidewheel_core::names::Tenant;

/// What calls are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Counted {
    pub(super) tenant: Tenant,
    pub(super) actor: Box<str>,
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) action: std::sync::Arc<str>,
    pub(super) call: std::sync::Arc<str>,
    pub(super) status: u16,
}

/// A call, and how often it was made.
pub(super) type Sum = (Counted, u64);

/// What is kept of sums that the store did not take: as many again fit in beside them.
const KEPT_COUNT_MAX: usize = AUDIT_SUMS_COUNT_MAX / 2;

/// How often what was called.
#[derive(Debug, Default)]
pub(super) struct Sums {
    counts: FxHashMap<Counted, u64>,
    /// Somebody will write them soon.
    is_awaited: bool,
}

/// What to do after a call was counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: they will be written soon.
    Nothing,
    /// See to it that they are written soon.
    WriteSoon,
    /// Write these now: there is no room for more.
    Write(Vec<Sum>),
}

impl Sums {
    pub(super) fn count(&mut self, call: Counted) -> Then {
        *self.counts.entry(call).or_default() += 1;
        if self.counts.len() >= AUDIT_SUMS_COUNT_MAX {
            return Then::Write(self.take_counts());
        }
        if self.awaits_already() { Then::Nothing } else { Then::WriteSoon }
    }

    fn awaits_already(&mut self) -> bool {
        std::mem::replace(&mut self.is_awaited, true)
    }

    /// All that was counted; nobody will write it but the caller.
    pub(super) fn take(&mut self) -> Vec<Sum> {
        self.is_awaited = false;
        self.take_counts()
    }

    /// Takes back what could not be written. Says what to do then, and how many calls there was no room for.
    pub(super) fn put_back(&mut self, sums: Vec<Sum>) -> (Then, u64) {
        let mut dropped = 0;
        for (call, count) in sums {
            if self.counts.len() < KEPT_COUNT_MAX || self.counts.contains_key(&call) {
                *self.counts.entry(call).or_default() += count;
            } else {
                dropped += count;
            }
        }
        (if self.awaits_already() { Then::Nothing } else { Then::WriteSoon }, dropped)
    }

    fn take_counts(&mut self) -> Vec<Sum> {
        let mut sums: Vec<Sum> = std::mem::take(&mut self.counts).into_iter().collect();
        // In an order that does not hang on a hash.
        sums.sort_by(|(a, _), (b, _)| (&a.tenant, &a.actor, &a.call).cmp(&(&b.tenant, &b.actor, &b.call)));
        sums
    }
}

/// A sum as it is recorded.
pub(super) fn act((call, count): &Sum) -> Act {
    Act {
        tenant: call.tenant.to_string(),
        actor: call.actor.to_string(),
        address: call.address.map(|address| address.to_string()),
        action: call.action.to_string(),
        object: None,
        call: call.call.to_string(),
        request_id: None,
        status: call.status,
        fields: Vec::new(),
        count: *count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(actor: &str) -> Counted {
        Counted {
            tenant: Tenant::new("acme").unwrap(),
            actor: actor.into(),
            address: None,
            action: "jobs.create".into(),
            call: "post /v1/jobs".into(),
            status: 201,
        }
    }

    #[test]
    fn calls_are_counted_by_who_made_them() {
        let mut sums = Sums::default();
        assert_eq!(sums.count(call("key_1")), Then::WriteSoon);
        assert_eq!(sums.count(call("key_1")), Then::Nothing);
        assert_eq!(sums.count(call("key_2")), Then::Nothing);
        let taken = sums.take();
        let found: Vec<_> = taken.iter().map(|(call, count)| (&*call.actor, *count)).collect();
        assert_eq!(found, [("key_1", 2), ("key_2", 1)]);
        assert!(sums.take().is_empty());
        assert_eq!(sums.count(call("key_1")), Then::WriteSoon);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sums = Sums::default();
        let written: usize = (0..AUDIT_SUMS_COUNT_MAX * 3)
            .map(|n| match sums.count(call(&n.to_string())) {
                Then::Write(sums) => sums.len(),
                Then::Nothing | Then::WriteSoon => 0,
            })
            .sum();
        assert_eq!(written, AUDIT_SUMS_COUNT_MAX * 3);
    }

    #[test]
    fn what_could_not_be_written_is_kept_beside_what_comes_next() {
        let mut sums = Sums::default();
        sums.count(call("key_1"));
        let taken = sums.take();
        assert_eq!(sums.count(call("key_1")), Then::WriteSoon);
        assert_eq!(sums.put_back(taken), (Then::Nothing, 0), "somebody else will write it");
        let taken = sums.take();
        assert_eq!(taken, [(call("key_1"), 2)]);
        assert_eq!(sums.put_back(taken), (Then::WriteSoon, 0));
        let many = (0..2 * KEPT_COUNT_MAX).map(|n| (call(&n.to_string()), 1)).collect();
        let (_, dropped) = sums.put_back(many);
        assert_eq!(dropped, u64::try_from(KEPT_COUNT_MAX).unwrap() + 1);
        assert!(matches!(sums.count(call("one more")), Then::Nothing), "and there is room for more");
    }
}
