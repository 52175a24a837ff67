//! Who could take a job of one lane this moment. Subscribers with the same interest sit together, the least busy in
//! front, so that finding the right one looks at interests and never at every subscriber.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::job::Priority;

use super::interest::Interest;
use super::subscribers::SubscriberId;

/// A place among those with the same interest: the least busy first, among equals the longest unfed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) load: u32,
    pub(super) turn: u64,
    pub(super) id: SubscriberId,
}

/// Those who have room for jobs of one lane.
#[derive(Debug, Default)]
pub(super) struct Seats {
    groups: FxHashMap<Arc<Interest>, BTreeSet<Seat>>,
    /// Interests in exactly one tenant.
    by_tenant: FxHashMap<Arc<str>, Vec<Arc<Interest>>>,
    /// Interests in several.
    wide: Vec<Arc<Interest>>,
    /// Interests that pass over some jobs of their tenants.
    choosy: usize,
    seated: usize,
}

impl Seats {
    pub(super) fn is_empty(&self) -> bool {
        self.seated == 0
    }

    pub(super) fn len(&self) -> usize {
        self.seated
    }

    /// Whether everybody here takes every job of its tenants.
    pub(super) fn is_plain(&self) -> bool {
        self.choosy == 0
    }

    pub(super) fn sit(&mut self, interest: &Arc<Interest>, seat: Seat) {
        if let Some(group) = self.groups.get_mut(interest) {
            self.seated += usize::from(group.insert(seat));
            return;
        }
        self.seated += 1;
        self.choosy += usize::from(!interest.is_plain());
        self.groups.insert(Arc::clone(interest), BTreeSet::from([seat]));
        match interest.only_tenant() {
            Some(tenant) => self.by_tenant.entry(tenant.shared()).or_default().push(Arc::clone(interest)),
            None => self.wide.push(Arc::clone(interest)),
        }
    }

    pub(super) fn rise(&mut self, interest: &Arc<Interest>, seat: &Seat) {
        let Some(group) = self.groups.get_mut(interest) else { return };
        self.seated -= usize::from(group.remove(seat));
        if !group.is_empty() {
            return;
        }
        self.groups.remove(interest);
        self.choosy -= usize::from(!interest.is_plain());
        match interest.only_tenant() {
            Some(tenant) => {
                if let Some(interests) = self.by_tenant.get_mut(tenant.as_str()) {
                    interests.retain(|other| other != interest);
                    if interests.is_empty() {
                        self.by_tenant.remove(tenant.as_str());
                    }
                }
            }
            None => self.wide.retain(|other| other != interest),
        }
    }

    /// Whether somebody works for that tenant.
    pub(super) fn cover(&self, tenant: &str) -> bool {
        self.by_tenant.contains_key(tenant) || self.wide.iter().any(|interest| interest.covers(tenant))
    }

    /// Whether somebody takes such a job.
    pub(super) fn admit(&self, tenant: &str, priority: Priority, kind: &str) -> bool {
        self.interests(tenant).any(|interest| interest.admits(priority, kind))
    }

    /// The least busy of those who take such a job.
    pub(super) fn best(&self, tenant: &str, priority: Priority, kind: &str) -> Option<Seat> {
        self.interests(tenant)
            .filter(|interest| interest.admits(priority, kind))
            .filter_map(|interest| self.groups.get(interest)?.first().copied())
            .min()
    }

    fn interests(&self, tenant: &str) -> impl Iterator<Item = &Arc<Interest>> {
        let wide = self.wide.iter().filter(|interest| interest.covers(tenant));
        self.by_tenant.get(tenant).into_iter().flatten().chain(wide)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tidewheel_core::names::Tenant;

    use super::*;
    use crate::engine::ready::interest::Tenants;

    #[test]
    fn the_least_busy_of_those_who_take_it_is_found() {
        let mut seats = Seats::default();
        let mine = Arc::new(Interest::of_tenant(Tenant::new("a").unwrap()));
        let urgent = Arc::new(Interest::new(Tenants::All, Vec::new(), Priority::High));
        let seat = |load, id| Seat { load, turn: 0, id };
        seats.sit(&mine, seat(9, 1));
        seats.sit(&mine, seat(3, 2));
        seats.sit(&urgent, seat(0, 3));
        let best = |seats: &Seats, name: &str, priority| seats.best(name, priority, "t").map(|s| s.id);
        assert_eq!(best(&seats, "a", Priority::Normal), Some(2));
        assert_eq!(best(&seats, "a", Priority::High), Some(3));
        assert_eq!(best(&seats, "b", Priority::Normal), None);
        assert!(seats.cover("b") && !seats.is_plain() && seats.len() == 3);
        seats.rise(&urgent, &seat(0, 3));
        assert!(!seats.cover("b") && seats.is_plain());
        seats.rise(&mine, &seat(3, 2));
        assert_eq!(best(&seats, "a", Priority::High), Some(1));
        seats.rise(&mine, &seat(9, 1));
        assert!(seats.is_empty() && seats.by_tenant.is_empty() && seats.groups.is_empty());
    }
}
