//! News between nodes: what was stored or changed here and belongs to a shard that another node serves, and the other way
//! round. It makes things quick; that they happen at all rests on the store alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::News;
use tokio::sync::mpsc;

use super::scheduler::Message;
use super::{Shared, recheck};

/// News that wait to be passed on; what is more is left to the sweeps.
pub(super) const QUEUE_COUNT_MAX: usize = 10_000;
/// News passed on in one go.
const BATCH_COUNT_MAX: usize = 1_000;

impl Shared {
    /// Tells whoever serves the tenant.
    pub(super) fn pass_on(&self, news: News) {
        if let Some(relay) = &self.relay {
            // Full, or nobody there any more: found by a sweep.
            drop(relay.try_send(news));
        }
    }

    /// Tells whoever serves the tenants of jobs that others serve when these are due.
    pub(super) fn pass_on_due(&self, jobs: impl Iterator<Item = (Tenant, Timestamp)>) {
        let mut first: BTreeMap<Tenant, Timestamp> = BTreeMap::new();
        for (tenant, at) in jobs {
            first.entry(tenant).and_modify(|first| *first = at.min(*first)).or_insert(at);
        }
        first.into_iter().for_each(|(tenant, at)| self.pass_on(News::Due { tenant, at }));
    }
}

/// Passes news on until the engine stops.
pub(super) async fn send(shared: Arc<Shared>, mut queue: mpsc::Receiver<News>) {
    let mut batch = Vec::new();
    let mut stopping = shared.stopping.subscribe();
    loop {
        let count = tokio::select! {
            count = queue.recv_many(&mut batch, BATCH_COUNT_MAX) => count,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Some(leases) = shared.store.leases().filter(|_| count > 0) else { return };
        if let Err(error) = leases.tell(std::mem::take(&mut batch)).await {
            tracing::debug!(%error, count, "news could not be passed on");
        }
    }
}

/// Hears news until the engine stops.
pub(super) async fn receive(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    loop {
        let Some(leases) = shared.store.leases() else { return };
        let news = tokio::select! {
            news = leases.hear() => news,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        if news.is_empty() {
            shared.hint_lost.store(true, Ordering::SeqCst);
        }
        let (mut due, mut changed): (Vec<(Tenant, Timestamp)>, Vec<(Tenant, JobId)>) = Default::default();
        let opened = Timestamp::from_ms(shared.opened_ms.load(Ordering::SeqCst));
        for news in news {
            match news {
                News::Due { tenant, at } if shared.territory.holds(&tenant) && at < opened => {
                    due.push((tenant, at));
                }
                News::Changed { tenant, id } if shared.territory.holds(&tenant) => changed.push((tenant, id)),
                News::Due { .. } | News::Changed { .. } => {}
            }
        }
        if !due.is_empty() {
            shared.tell(Message::Listed(due));
        }
        if !changed.is_empty() {
            tokio::spawn(recheck::run(Arc::clone(&shared), changed));
        }
    }
}
