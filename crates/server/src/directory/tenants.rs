//! Tenants: their weight, and what they may ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewheel_core::limits::TENANT_WEIGHT_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_store::{DocumentKey, Error, IfVersion, StaleDocument};

use super::{Directory, TRIES_MAX};

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
    /// Shards its new jobs are spread over.
    pub sub_shards: u8,
    /// Shards it was spread over before, as long as jobs of that time may be left there.
    pub spread_before: u8,
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
            sub_shards: 1,
            spread_before: 1,
        }
    }
}

impl TenantSettings {
    /// Jobs it may submit at once, if there is a bound.
    pub(crate) fn burst(&self) -> Option<u32> {
        self.submit_burst.or(self.submit_per_s)
    }

    /// Shards that jobs of it may be in.
    pub(crate) fn spread(&self) -> u8 {
        self.sub_shards.max(self.spread_before)
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
        for _ in 0..TRIES_MAX {
            // What it was spread over before must not be forgotten, whatever the caller knows of it.
            let mut before = self.tenant(tenant);
            if if_version != IfVersion::Any && if_version != IfVersion::Is(before.version) {
                self.reload().await?;
                before = self.tenant(tenant);
            }
            let version = match (if_version, before.version) {
                (IfVersion::Any, 0) => IfVersion::Absent,
                (IfVersion::Any, version) => IfVersion::Is(version),
                (wanted @ (IfVersion::Absent | IfVersion::Is(_)), _) => wanted,
            };
            let spread_before = before.settings.spread();
            let settings = TenantSettings { spread_before, ..settings.clone() };
            if self.put(key.clone(), Some(&settings), version).await? {
                return Ok(Ok(self.tenant(tenant)));
            }
            if if_version != IfVersion::Any {
                break;
            }
        }
        let there = self.tenant(tenant).version;
        Ok(Err(StaleDocument { version: (there > 0).then_some(there) }))
    }

    /// Tenants that jobs of an earlier, wider spread may be left of.
    pub(super) fn narrowed(&self) -> Vec<(Tenant, TenantShown)> {
        let snapshot = self.snapshot();
        let is_narrowed = |shown: &TenantShown| shown.settings.spread_before > shown.settings.sub_shards;
        let narrowed = snapshot.tenants.iter().filter(|(_, shown)| is_narrowed(shown));
        narrowed.map(|(tenant, shown)| (tenant.clone(), shown.clone())).collect()
    }

    /// Nothing is left of an earlier spread; not if the settings have changed since.
    pub(super) async fn forget_spread(&self, tenant: &Tenant, shown: &TenantShown) -> Result<(), Error> {
        let key = DocumentKey { kind: KIND, tenant: tenant.clone(), name: Arc::from(NAME) };
        let settings = TenantSettings { spread_before: 1, ..TenantSettings::clone(&shown.settings) };
        self.put(key, Some(&settings), IfVersion::Is(shown.version)).await.map(drop)
    }
}
