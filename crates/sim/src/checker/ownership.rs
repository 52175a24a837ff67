//! What the checker knows of a cluster's shards: who has which, since which epoch, and whether what was written was written by
//! whoever had it. It goes by what was done in the store, in the order in which it was done.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Held;
use tidewheel_store_testkit::memory::Written;

use super::Promise;

/// A promise broken, for which job if for one, and how.
type Fault = (Promise, Option<JobId>, String);

#[derive(Debug)]
struct Lease {
    node: Arc<str>,
    epoch: u64,
    until: Timestamp,
    is_released: bool,
}

impl Lease {
    fn holds(&self, now: Timestamp) -> bool {
        !self.is_released && now < self.until
    }
}

/// The newest attempt of a job.
#[derive(Debug)]
struct Newest {
    token: Token,
    is_ended: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ownership {
    leases: BTreeMap<Shard, Lease>,
    jobs: BTreeMap<JobId, Newest>,
    /// When each attempt was claimed: the place of that in the record.
    claims: BTreeMap<(JobId, Token), usize>,
    /// Nothing is to move any more.
    is_settled: bool,
}

impl Ownership {
    pub(super) fn settled(&mut self) {
        self.is_settled = true;
    }

    /// The place in the record at which an attempt was claimed, if that was seen.
    pub(super) fn claimed_at(&self, id: JobId, token: Token) -> Option<usize> {
        self.claims.get(&(id, token)).copied()
    }

    pub(super) fn hear(&mut self, index: usize, now: Timestamp, deed: &Written) -> Option<Fault> {
        match deed {
            Written::Leased { node, held, until } => self.leased(now, node, *held, *until),
            Written::Released { shard } => {
                if let Some(lease) = self.leases.get_mut(shard) {
                    lease.is_released = true;
                }
                None
            }
            Written::Claimed { id, held, token } => {
                self.claims.insert((*id, *token), index);
                self.claimed(now, *id, *held, *token)
            }
            Written::Ended { id, token } => self.ended(*id, *token),
        }
    }

    fn leased(&mut self, now: Timestamp, node: &Arc<str>, held: Held, until: Timestamp) -> Option<Fault> {
        let new = Lease { node: Arc::clone(node), epoch: held.epoch, until, is_released: false };
        let before = self.leases.insert(held.shard, new)?;
        let is_same = before.node == *node && before.epoch == held.epoch && before.holds(now);
        let text = format!("{held:?} is {node}'s, which {before:?} was before");
        if !is_same && before.epoch >= held.epoch {
            return Some((Promise::StaleEpochRefused, None, text));
        }
        if !is_same && before.holds(now) {
            return Some((Promise::OneOwnerPerShard, None, text));
        }
        (!is_same && self.is_settled).then_some((Promise::ShardsStay, None, text))
    }

    fn claimed(&mut self, now: Timestamp, id: JobId, held: Held, token: Token) -> Option<Fault> {
        let before = self.jobs.insert(id, Newest { token, is_ended: false });
        if before.is_some_and(|before| before.token >= token) {
            return Some((Promise::TokensRise, Some(id), format!("claimed under token {}", token.as_u64())));
        }
        let lease = self.leases.get(&held.shard);
        if lease.is_some_and(|lease| lease.epoch == held.epoch && lease.holds(now)) {
            return None;
        }
        Some((
            Promise::StaleEpochRefused,
            Some(id),
            format!("claimed under {held:?}, the lease is {lease:?}"),
        ))
    }

    fn ended(&mut self, id: JobId, token: Token) -> Option<Fault> {
        let newest = self.jobs.get_mut(&id)?;
        let is_first = !std::mem::replace(&mut newest.is_ended, true);
        let text = format!("token {} was ended, the newest is {}", token.as_u64(), newest.token.as_u64());
        if newest.token != token {
            return Some((Promise::StaleTokenRefused, Some(id), text));
        }
        (!is_first).then_some((Promise::OneOutcomePerToken, Some(id), format!("{text}, again")))
    }
}
