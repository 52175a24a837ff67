//! Calls that are too many for a record each: those of the jobs' own path, and those that were refused. They are
//! counted by who made them, and each count is one record a second.

use rustc_hash::FxHashMap;
use tidewheel_api::wire::audit::Act;
use tidewheel_core::limits::AUDIT_SUMS_COUNT_MAX;

/// What calls are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Counted {
    pub(super) tenant: Box<str>,
    pub(super) actor: Box<str>,
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) action: std::sync::Arc<str>,
    pub(super) call: std::sync::Arc<str>,
    pub(super) status: u16,
}

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
    Write(Vec<Act>),
}

impl Sums {
    pub(super) fn count(&mut self, call: Counted) -> Then {
        *self.counts.entry(call).or_default() += 1;
        if self.counts.len() >= AUDIT_SUMS_COUNT_MAX {
            return Then::Write(self.take_counts());
        }
        if std::mem::replace(&mut self.is_awaited, true) { Then::Nothing } else { Then::WriteSoon }
    }

    /// All that was counted; nobody will write it but the caller.
    pub(super) fn take(&mut self) -> Vec<Act> {
        self.is_awaited = false;
        self.take_counts()
    }

    fn take_counts(&mut self) -> Vec<Act> {
        let mut acts: Vec<Act> = std::mem::take(&mut self.counts).into_iter().map(act).collect();
        // In an order that does not hang on a hash.
        acts.sort_by(|a, b| (&a.tenant, &a.actor, &a.call).cmp(&(&b.tenant, &b.actor, &b.call)));
        acts
    }
}

fn act((call, count): (Counted, u64)) -> Act {
    Act {
        tenant: call.tenant.into(),
        actor: call.actor.into(),
        address: call.address.map(|address| address.to_string()),
        action: call.action.to_string(),
        object: None,
        call: call.call.to_string(),
        request_id: None,
        status: call.status,
        fields: Vec::new(),
        count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(actor: &str) -> Counted {
        Counted {
            tenant: "acme".into(),
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
        let acts = sums.take();
        let found: Vec<_> = acts.iter().map(|act| (act.actor.as_str(), act.count)).collect();
        assert_eq!(found, [("key_1", 2), ("key_2", 1)]);
        assert!(sums.take().is_empty());
        assert_eq!(sums.count(call("key_1")), Then::WriteSoon);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sums = Sums::default();
        let written: usize = (0..AUDIT_SUMS_COUNT_MAX * 3)
            .map(|n| match sums.count(call(&n.to_string())) {
                Then::Write(acts) => acts.len(),
                Then::Nothing | Then::WriteSoon => 0,
            })
            .sum();
        assert_eq!(written, AUDIT_SUMS_COUNT_MAX * 3);
    }
}
