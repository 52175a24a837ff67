//! What a worker is willing to run, beside the queues it names: that is how dedicated pools are made.

use std::sync::Arc;

use tidewheel_core::job::Priority;
use tidewheel_core::names::Tenant;

/// What a worker is willing to run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest {
    tenants: Tenants,
    /// Sorted; none means every type.
    kinds: Vec<Arc<str>>,
    priority_min: Priority,
}

/// For whom a worker works.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenants {
    /// For everybody.
    All,
    /// For these.
    Only(Vec<Tenant>),
}

impl Interest {
    /// Jobs of these tenants, of these types (none: of every type), at least that urgent.
    #[must_use]
    pub fn new(tenants: Tenants, mut kinds: Vec<Arc<str>>, priority_min: Priority) -> Self {
        let tenants = match tenants {
            Tenants::All => Tenants::All,
            Tenants::Only(mut names) => {
                names.sort();
                names.dedup();
                Tenants::Only(names)
            }
        };
        kinds.sort();
        kinds.dedup();
        Self { tenants, kinds, priority_min }
    }

    /// Everything of one tenant.
    #[must_use]
    pub fn of_tenant(tenant: Tenant) -> Self {
        Self::new(Tenants::Only(vec![tenant]), Vec::new(), Priority::Low)
    }

    /// For whom.
    #[must_use]
    pub const fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Of which types; none means every type.
    #[must_use]
    pub fn kinds(&self) -> &[Arc<str>] {
        &self.kinds
    }

    /// The least urgent priority.
    #[must_use]
    pub const fn priority_min(&self) -> Priority {
        self.priority_min
    }

    /// The tenant, if it is one.
    #[must_use]
    pub fn only_tenant(&self) -> Option<&Tenant> {
        match &self.tenants {
            Tenants::Only(names) if names.len() == 1 => names.first(),
            Tenants::Only(_) | Tenants::All => None,
        }
    }

    /// Whether it takes jobs of that tenant.
    #[must_use]
    pub fn covers(&self, tenant: &str) -> bool {
        match &self.tenants {
            Tenants::All => true,
            Tenants::Only(names) => names.binary_search_by(|name| name.as_str().cmp(tenant)).is_ok(),
        }
    }

    /// Whether it takes every job of its tenants.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.kinds.is_empty() && self.priority_min == Priority::Low
    }

    /// Whether it takes jobs of that priority and type.
    #[must_use]
    pub fn admits(&self, priority: Priority, kind: &str) -> bool {
        priority <= self.priority_min
            && (self.kinds.is_empty() || self.kinds.binary_search_by(|known| (**known).cmp(kind)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_interest_admits_what_it_names() {
        let tenants = Tenants::Only(["b", "a", "a"].map(|name| Tenant::new(name).unwrap()).to_vec());
        let some = Interest::new(tenants, vec![Arc::from("t2"), Arc::from("t1")], Priority::High);
        assert!(some.covers("a") && some.covers("b") && !some.covers("c"));
        assert!(some.admits(Priority::Critical, "t1") && some.admits(Priority::High, "t2"));
        assert!(!some.admits(Priority::Normal, "t1") && !some.admits(Priority::High, "t3"));
        assert!(!some.is_plain() && some.only_tenant().is_none());
        let plain = Interest::of_tenant(Tenant::new("a").unwrap());
        assert!(plain.is_plain() && plain.admits(Priority::Low, "x") && !plain.covers("b"));
        assert_eq!(plain.only_tenant().map(Tenant::as_str), Some("a"));
    }
}
