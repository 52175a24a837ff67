//! News between nodes: what was stored or changed here and belongs to a shard that another node serves, and the other way
//! round. It makes things quick; that they happen at all rests on the store alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::time::Timestamp;
use tidewheel_store::News;
use tokio::sync::mpsc;

use super::handed::{self, Handed};
use super::peers::PeerMessage;
use super::scan::{Look, TenantShard};
use super::scheduler::Message;
use super::{Shared, recheck};

/// News that wait to be passed on; what is more is left to the sweeps.
pub(super) const QUEUE_COUNT_MAX: usize = 10_000;
/// News passed on in one go.
const BATCH_COUNT_MAX: usize = 1_000;
/// How often attempts that could not be handed on are handed on again; what is more would come too late.
const AGAIN_COUNT_MAX: usize = 5;
/// Wait before that.
const AGAIN_WAIT_MS: u64 = 100;

impl Shared {
    /// Tells the other nodes; says whether there is room for it. If not, it is found by a sweep.
    pub(super) fn pass_on(&self, news: News) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.try_send(news).is_ok())
    }

    /// Tells the other nodes that this one's workers want nothing any more.
    pub(super) async fn want_nothing(&self) {
        let (Some(card), Some(leases)) = (&self.node, self.store.leases()) else { return };
        let (node, said_ms) = (Arc::clone(&card.id), self.clock.monotonic_ms());
        let news = News::Wants { node, said_ms, heard: Vec::new(), wants: Vec::new() };
        if let Err(error) = leases.tell(vec![news]).await {
            tracing::debug!(%error, "other nodes could not be told that workers want nothing any more");
        }
    }

    /// Tells whoever serves the shards of jobs that others serve when these are due.
    pub(super) fn pass_on_due(&self, jobs: impl Iterator<Item = (TenantShard, Timestamp)>) {
        let mut first: BTreeMap<TenantShard, Timestamp> = BTreeMap::new();
        for (of, at) in jobs {
            first.entry(of).and_modify(|first| *first = at.min(*first)).or_insert(at);
        }
        for (TenantShard { tenant, shard }, at) in first {
            self.pass_on(News::Due { tenant, shard, at });
        }
    }
}

/// Passes news on until the engine stops.
pub(super) async fn send(shared: Arc<Shared>, mut queue: mpsc::Receiver<News>) {
    let mut batch = Vec::new();
    let mut stopping = shared.stopping.subscribe();
    loop {
        let count = tokio::select! {
            biased;
            count = queue.recv_many(&mut batch, BATCH_COUNT_MAX) => count,
            _ = stopping.wait_for(|stopping| *stopping), if !queue.is_closed() => {
                // What was taken in is still said; whoever comes later is told that it will not be.
                queue.close();
                continue;
            }
        };
        let Some(leases) = shared.store.leases().filter(|_| count > 0) else { return };
        let is_handed = |news: &&News| matches!(news, News::Handed { .. });
        let handed: Vec<News> = batch.iter().filter(is_handed).cloned().collect();
        if let Err(error) = leases.tell(std::mem::take(&mut batch)).await {
            tracing::debug!(%error, count, "news could not be passed on");
            if !handed.is_empty() {
                tokio::spawn(say_again(Arc::clone(&shared), handed));
            }
        }
    }
}

/// Says again what seemed to fail. It may have been heard all the same: whether attempts start is their new node's to say, and
/// one that hears of them twice starts them once.
async fn say_again(shared: Arc<Shared>, news: Vec<News>) {
    for _ in 0..AGAIN_COUNT_MAX {
        shared.clock.sleep(Duration::from_millis(AGAIN_WAIT_MS)).await;
        let Some(leases) = shared.store.leases() else { return };
        if leases.tell(news.clone()).await.is_ok() {
            return;
        }
    }
}

/// Hears news until the engine stops.
pub(super) async fn receive(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let (handed, queue) = mpsc::channel(handed::QUEUE_COUNT_MAX);
    tokio::spawn(handed::run(Arc::clone(&shared), queue));
    loop {
        let Some(leases) = shared.store.leases() else { return };
        let news = tokio::select! {
            news = leases.hear() => news,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        if news.is_empty() {
            shared.hint_lost.store(true, Ordering::SeqCst);
        }
        sort_out(&shared, news, &handed);
    }
}

/// Gives each piece of news to whom it concerns.
fn sort_out(shared: &Arc<Shared>, news: Vec<News>, handed: &mpsc::Sender<Handed>) {
    let (mut due, mut changed, mut elsewhere, mut ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let opened = Timestamp::from_ms(shared.opened_ms.load(Ordering::SeqCst));
    let own = shared.node.as_ref().map(|card| &card.id);
    for news in news {
        match news {
            News::Due { tenant, shard, at } if shared.territory.holds(shard) && at < opened => {
                due.push((TenantShard { tenant, shard }, at));
            }
            News::Due { .. } => {}
            News::Changed { tenant, id }
                if shared.territory.holds(shared.territory.shard_of(&tenant, id)) =>
            {
                changed.push((tenant, id));
            }
            News::Ended { tenant, id, token }
                if shared.territory.holds(shared.territory.shard_of(&tenant, id)) =>
            {
                ended.push((tenant, id, token));
            }
            News::Changed { tenant, id } | News::Ended { tenant, id, .. } => elsewhere.push((tenant, id)),
            News::Wants { node, said_ms, heard, wants } => {
                shared.tell(Message::Peer(PeerMessage::Wanted { node, said_ms, heard, wants }));
            }
            News::Handed { from, to, number, start_by_ms, jobs } if Some(&to) == own => {
                if handed.try_send(Handed { from, number, start_by_ms, jobs }).is_err() {
                    tracing::debug!("attempts were handed on faster than they can be read");
                }
            }
            News::Handed { .. } => {}
            News::Demands { node, demands } => shared.hear_demands(&node, demands),
        }
    }
    if !due.is_empty() {
        shared.tell(Message::Listed(Look::First, due));
    }
    if !elsewhere.is_empty() {
        shared.tell(Message::Peer(PeerMessage::Changed(elsewhere)));
    }
    if !ended.is_empty() {
        shared.tell(Message::Peer(PeerMessage::Ended(ended)));
    }
    if !changed.is_empty() {
        tokio::spawn(recheck::run(Arc::clone(shared), changed));
    }
}
