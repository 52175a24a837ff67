//! Which tenants were ever spread over several shards, and which sub-shards they had jobs in. Lists go by it: they look
//! nowhere else, and a tenant that never was is looked for at home alone. Only grows; a few bytes for each such tenant.

use std::sync::{PoisonError, RwLock};

use rustc_hash::FxHashMap;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Shard, SubShard};

use crate::keys;
use crate::kv::{Batch, Keyspace};
use crate::record::Unreadable;

/// By tenant, a bit for each sub-shard other than home.
#[derive(Debug, Default)]
pub(crate) struct Spread(RwLock<FxHashMap<Tenant, u16>>);

fn bit(sub_shard: SubShard) -> u16 {
    1 << sub_shard.number()
}

impl Spread {
    /// Reads a record back.
    pub(crate) fn load(&self, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
        let nonsense = Unreadable::Nonsense("the sub-shards of a tenant");
        let name = key.split_first().and_then(|(_, name)| std::str::from_utf8(name).ok());
        let tenant = name.and_then(|name| Tenant::new(name).ok()).ok_or(nonsense)?;
        let bits =
            <[u8; 2]>::try_from(value).map_err(|_| Unreadable::Nonsense("the sub-shards of a tenant"))?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tenant, u16::from_be_bytes(bits));
        Ok(())
    }

    /// A job goes to a sub-shard: notes it with the job, if it is the first there. Known before the job is stored, so whoever
    /// was told of the job finds it.
    pub(crate) fn note(&self, tenant: &Tenant, sub_shard: SubShard, batch: &mut Batch) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(tenant).copied().unwrap_or(0);
        let bits = known | bit(sub_shard);
        if bits == known {
            return;
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone(), bits);
        let key = keys::meta::sub_shards(tenant);
        batch.0.retain(|write| write.keyspace != Keyspace::Meta || *write.key != *key);
        batch.put(Keyspace::Meta, key, bits.to_be_bytes().to_vec());
    }

    /// The shards that jobs of a tenant can be in, of so many.
    pub(crate) fn shards_of(&self, tenant: &Tenant, shards: u16) -> Vec<Shard> {
        let bits = self.0.read().unwrap_or_else(PoisonError::into_inner).get(tenant).copied().unwrap_or(0);
        let is_used = |sub: &SubShard| *sub == SubShard::HOME || bits & bit(*sub) != 0;
        let mut all: Vec<_> =
            SubShard::all().filter(is_used).map(|sub| Shard::of_sub_shard(tenant, sub, shards)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
