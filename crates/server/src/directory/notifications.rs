//! Where a tenant is told of what its owner should know, and of what.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewheel_core::names::Tenant;
use tidewheel_store::{DocumentKey, Error, IfVersion};

use super::Directory;

pub(super) const KIND: &str = "notifications";
const NAME: &str = "settings";

/// What a tenant can be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Jobs were given up.
    DeadLetter,
    /// Occurrences of schedules did not run at their time.
    MissedRun,
    /// Targets fail and are not called any more.
    BreakerOpen,
    /// Jobs are due for longer than the budget.
    Lag,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::DeadLetter, Self::MissedRun, Self::BreakerOpen, Self::Lag];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::MissedRun => "missed_run",
            Self::BreakerOpen => "breaker_open",
            Self::Lag => "lag",
        }
    }
}

/// What is set for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationSettings {
    /// Where to.
    pub url: Box<str>,
    /// Of what.
    pub events: BTreeSet<Event>,
    /// How long a job may be due before that is told.
    pub lag_budget_ms: i64,
}

impl Directory {
    /// What is set for a tenant, if it wants to be told.
    pub(crate) fn notifications(&self, tenant: &Tenant) -> Option<Arc<NotificationSettings>> {
        self.snapshot().notifications.get(tenant).cloned()
    }

    /// All tenants that want to be told.
    pub(crate) fn all_notifications(&self) -> Vec<(Tenant, Arc<NotificationSettings>)> {
        let snapshot = self.snapshot();
        snapshot
            .notifications
            .iter()
            .map(|(tenant, settings)| (tenant.clone(), Arc::clone(settings)))
            .collect()
    }

    /// Replaces what is set for a tenant; `None` is to be told nothing.
    pub(crate) async fn put_notifications(
        &self,
        tenant: &Tenant,
        settings: Option<&NotificationSettings>,
    ) -> Result<(), Error> {
        let key = DocumentKey { kind: KIND, tenant: tenant.clone(), name: Arc::from(NAME) };
        self.put(key, settings, IfVersion::Any).await.map(drop)
    }
}
