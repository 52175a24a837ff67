//! Tenants: their weight, and what they may ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewheel_core::limits::TENANT_WEIGHT_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_store::{DocumentKey, Error, IfVersion, StaleDocument};

use super::Directory;

pub(super) const KIND: &str = "tenant";
const NAME: &str = "settings";

/// What is set for a tenant. What is `None` is the server's default, or without a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSettings {
    /// Its share beside other tenants.
    pub weight: u32,
    /// Jobs it may submit per second, over time.
    pub submit_per_s: Option<u32>,
    /// Jobs it may submit at once after a pause; those of one second unless set.
    pub submit_burst: Option<u32>,
    /// Jobs that may wait.
    pub waiting_count_max: Option<u64>,
    /// Attempts under way at a time.
    pub running_count_max: Option<u32>,
    /// Attempts under way at a time in one queue, or at one host.
    pub queue_running_count_max: Option<u32>,
    /// Attempts started per second.
    pub starts_per_s: Option<u32>,
    /// Schedules.
    pub schedules_count_max: Option<u64>,
    /// Time between two fires of a schedule, at least.
    pub interval_ms_min: Option<i64>,
    /// Payload of one job.
    pub payload_bytes_max: Option<u32>,
    /// How long finished jobs are seen; as long as the server keeps them unless set.
    pub retention_ms: Option<i64>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            weight: TENANT_WEIGHT_DEFAULT,
            submit_per_s: None,
            submit_burst: None,
            waiting_count_max: None,
            running_count_max: None,
            queue_running_count_max: None,
            starts_per_s: None,
            schedules_count_max: None,
            interval_ms_min: None,
            payload_bytes_max: None,
            retention_ms: None,
        }
    }
}

impl TenantSettings {
    /// Jobs it may submit at once, if there is a bound.
    pub(crate) fn burst(&self) -> Option<u32> {
        self.submit_burst.or(self.submit_per_s)
    }
}

/// What is set for a tenant, and in which version.
#[derive(Debug, Clone)]
pub(crate) struct TenantShown {
    pub(crate) settings: Arc<TenantSettings>,
    /// 0 while nothing was ever set.
    pub(crate) version: u64,
}

impl Directory {
    /// What is set for a tenant, or what holds for one for whom nothing is.
    pub(crate) fn tenant(&self, tenant: &Tenant) -> TenantShown {
        let found = self.snapshot().tenants.get(tenant).cloned();
        found.unwrap_or_else(|| TenantShown { settings: Arc::clone(&self.unset), version: 0 })
    }

    /// Tenants for whom something is set, or who have a key, and `default`; by name.
    pub(crate) fn tenants(&self) -> BTreeSet<Tenant> {
        let snapshot = self.snapshot();
        let mut known: BTreeSet<Tenant> = snapshot.keys.tenants().collect();
        known.extend(snapshot.tenants.keys().cloned());
        known.insert(Tenant::default());
        known
    }

    /// Replaces what is set for a tenant.
    pub(crate) async fn put_tenant(
        &self,
        tenant: &Tenant,
        settings: &TenantSettings,
        if_version: IfVersion,
    ) -> Result<Result<TenantShown, StaleDocument>, Error> {
        let key = DocumentKey { kind: KIND, tenant: tenant.clone(), name: Arc::from(NAME) };
        if self.put(key, Some(settings), if_version).await? {
            return Ok(Ok(self.tenant(tenant)));
        }
        let there = self.tenant(tenant).version;
        Ok(Err(StaleDocument { version: (there > 0).then_some(there) }))
    }
}
