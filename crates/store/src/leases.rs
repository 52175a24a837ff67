//! The part of the contract by which several nodes share one store. Read [`Leases`] first.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Priority, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;

use crate::Error;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCard {
    /// Its id, drawn anew at every start: a node that comes back is another node.
    pub id: Arc<str>,
    /// Where its peers reach it.
    pub address: Arc<str>,
    /// Its program.
    pub version: Arc<str>,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it says of itself.
    pub card: NodeCard,
    /// When it first said so, by the store's clock.
    pub started_at: Timestamp,
    /// Whether it was heard of lately enough to be counted on.
    pub is_alive: bool,
}

/// A shard in a node's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Which.
    pub shard: Shard,
    /// Since which epoch: what its claims carry.
    pub epoch: u64,
}

/// Who has a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLease {
    /// The shard, and the epoch it was last taken under.
    pub held: Held,
    /// The node's id; none after it was handed back, or while one process has all shards to itself.
    pub node: Option<Arc<str>>,
    /// Whether the lease has run out.
    pub is_over: bool,
}

/// What the workers of one node have room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Jobs of which queue.
    pub queue: Arc<str>,
    /// Of which tenants, in order; none means of all.
    pub tenants: Option<Vec<Tenant>>,
    /// Of which types, in order; none means of every type.
    pub kinds: Vec<Arc<str>>,
    /// The least urgent priority.
    pub priority_min: Priority,
    /// How long a job is safe from others.
    pub lease_ms: i64,
    /// How many jobs, all workers together.
    pub room: usize,
    /// Some of them ask once: what reaches them first is their answer, however much room they had.
    pub asks_once: bool,
}

/// What a node has taken in of what another handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which other node.
    pub node: Arc<str>,
    /// The highest number.
    pub number: u64,
    /// Numbers before it that did not come.
    pub missed: Vec<u64>,
}

/// What one node tells the others, for whoever has the shard.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A tenant has a job that is due then, which was just stored.
    Due {
        /// Whose.
        tenant: Tenant,
        /// In which shard.
        shard: Shard,
        /// When.
        at: Timestamp,
    },
    /// A job was changed.
    Changed {
        /// Whose.
        tenant: Tenant,
        /// Which.
        id: JobId,
    },
    /// A job has ended, as its runner reported of its last attempt to a node that does not have the job's shard.
    Ended {
        /// Whose.
        tenant: Tenant,
        /// Which job.
        id: JobId,
        /// Which attempt.
        token: Token,
    },
    /// What a node's own workers have room for now. What it does not name is as it was said before; no room ends a want,
    /// and so does silence. Without any want it ends all of them.
    Wants {
        /// Which node says so.
        node: Arc<str>,
        /// What its monotonic clock shows.
        said_ms: i64,
        /// What it has taken in of [`News::Handed`], by node.
        heard: Vec<Receipt>,
        /// For what there is room.
        wants: Vec<Want>,
    },
    /// Attempts that were started for the workers of another node.
    Handed {
        /// By which node.
        from: Arc<str>,
        /// For which node.
        to: Arc<str>,
        /// Which in turn, among those of `from` for `to`.
        number: u64,
        /// By the monotonic clock of `to`: none of them may start then, or later.
        start_by_ms: i64,
        /// The attempts.
        jobs: Vec<(Tenant, JobId, Token)>,
    },
    /// What is asked of a node of limits that all nodes share. It holds until it is said anew, or for a while.
    Demands {
        /// Of which node.
        node: Arc<str>,
        /// By tenant, jobs asked for per second; nought when it is over.
        demands: Vec<(Tenant, f64)>,
    },
}

/// How several nodes share one store: each has some of the shards, for a while, again and again.
///
/// # Contract
/// * A lease is for `ttl_ms` from the call on, by the store's clock; a store without one uses `now`.
/// * While a shard is leased, a [`Claim`](tidewheel_core::job::Command::Claim) in it is granted only if it carries the
///   epoch of the lease and the lease is not over; it is refused with [`Refusal::Fenced`](crate::Refusal::Fenced)
///   otherwise. Looked at in the batch of the claim, so that no claim under an old epoch comes after a new one was
///   given out. Outcomes are not asked for an epoch: their token says enough.
/// * Every epoch is higher than all given out before, by [`Self::hold`] or [`crate::Store::open_epoch`]. Opening an
///   epoch takes all shards away from whoever has them; taking a shard ends what `open_epoch` gave for it.
/// * A holder trusts its lease for less time than the store does: it counts from before the call.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Says that a node is there, for `ttl_ms`.
    async fn announce(&self, now: Timestamp, card: &NodeCard, ttl_ms: i64) -> Result<(), Error>;

    /// Hands back all that a node has, and forgets it.
    async fn leave(&self, now: Timestamp, node: &str) -> Result<(), Error>;

    /// All nodes that were heard of and have not left, by id. Those long silent may be forgotten.
    async fn nodes(&self, now: Timestamp) -> Result<Vec<Node>, Error>;

    /// Takes those of `shards` that are free, or extends them; answers with those the node has now, in order. One that
    /// is taken anew gets a new epoch, one that is extended in time keeps its own.
    async fn hold(
        &self,
        now: Timestamp,
        node: &str,
        shards: Vec<Shard>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error>;

    /// Extends what a node has, if it still has it under that epoch and it is not over; answers with what it was.
    async fn renew(
        &self,
        now: Timestamp,
        node: &str,
        held: Vec<Held>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error>;

    /// Hands shards back, so that others need not wait for their leases to run out.
    async fn release(&self, now: Timestamp, node: &str, held: Vec<Held>) -> Result<(), Error>;

    /// All shards that were ever leased, in order.
    async fn shard_leases(&self, now: Timestamp) -> Result<Vec<ShardLease>, Error>;

    /// Takes or extends the lease of that name, for work that one node does for all. Answers with its epoch, or `None`
    /// while another node has it.
    async fn hold_named(
        &self,
        now: Timestamp,
        node: &str,
        name: &str,
        ttl_ms: i64,
    ) -> Result<Option<u64>, Error>;

    /// What the store's own clock shows; none if it has none. By it nodes agree on what is due, whatever their own show.
    async fn time(&self) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    /// Passes news on to the other nodes. Nothing rests on it: it may be lost, heard more than once, cut into several of the
    /// same kind, and comes back to the node itself, too.
    async fn tell(&self, news: Vec<News>) -> Result<(), Error> {
        drop(news);
        Ok(())
    }

    /// Waits for news that was passed on; empty when some may have been missed. One caller at a time.
    async fn hear(&self) -> Vec<News> {
        std::future::pending().await
    }
}
