//! Which shard a new job goes to: its tenant's home, or any of those the tenant is spread over. The id says which, and so it
//! stays there whatever is set later.

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::SubShard;
use tidewheel_core::time::Timestamp;

use crate::directory::TenantSettings;
use crate::engine::sub_shards;
use crate::http::app::App;

/// Bits of a tail that choose the shard; the id of a job outside its home shard has no room for them.
const CHOICE_MASK: u128 = 0xFFFF;

/// Where new jobs of a tenant go.
pub(crate) struct Placing {
    /// None: home.
    sub_shards: Vec<SubShard>,
}

impl Placing {
    pub(crate) fn of(app: &App, tenant: &Tenant, settings: &TenantSettings) -> Self {
        match settings.sub_shards {
            0 | 1 => Self { sub_shards: Vec::new() },
            count => Self { sub_shards: sub_shards(&**app.engine.store(), tenant, count) },
        }
    }

    /// A new id with that random tail.
    pub(crate) fn id(&self, run_at: Timestamp, tail: u128) -> JobId {
        let choice = usize::try_from(tail & CHOICE_MASK).unwrap_or(0).checked_rem(self.sub_shards.len());
        match choice.and_then(|choice| self.sub_shards.get(choice)) {
            Some(sub_shard) => JobId::in_sub_shard(run_at, tail, *sub_shard),
            None => JobId::new(run_at, tail),
        }
    }
}
