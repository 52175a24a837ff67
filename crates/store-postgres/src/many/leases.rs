//! What the contract asks for leases: of one database, and of all together. News go where they concern somebody: those of a
//! tenant by its database, those of nodes by every one, so that they arrive while one of them does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, Held, Leases, News, Node, NodeCard, ShardLease};
use tokio::time::timeout;

use super::part::Part;
use super::{Spread, merge};

/// How long one database may keep news for others waiting.
const TELL_MAX: Duration = Duration::from_secs(1);

#[async_trait]
impl Leases for Part {
    async fn announce(&self, now: Timestamp, card: &NodeCard, ttl_ms: i64) -> Result<(), Error> {
        self.ask(|store| store.announce(now, card, ttl_ms)).await
    }

    async fn leave(&self, now: Timestamp, node: &str) -> Result<(), Error> {
        self.ask(|store| store.leave(now, node)).await
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<Node>, Error> {
        self.ask(|store| store.nodes(now)).await
    }

    async fn hold(
        &self,
        now: Timestamp,
        node: &str,
        shards: Vec<Shard>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.ask(|store| store.hold(now, node, shards, ttl_ms)).await
    }

    async fn renew(
        &self,
        now: Timestamp,
        node: &str,
        held: Vec<Held>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.ask(|store| store.renew(now, node, held, ttl_ms)).await
    }

    async fn release(&self, now: Timestamp, node: &str, held: Vec<Held>) -> Result<(), Error> {
        self.ask(|store| store.release(now, node, held)).await
    }

    async fn shard_leases(&self, now: Timestamp) -> Result<Vec<ShardLease>, Error> {
        self.ask(|store| store.shard_leases(now)).await
    }

    async fn time(&self) -> Result<Option<Timestamp>, Error> {
        self.ask(|store| store.time()).await
    }

    async fn hold_named(
        &self,
        now: Timestamp,
        node: &str,
        name: &str,
        ttl_ms: i64,
    ) -> Result<Option<u64>, Error> {
        self.ask(|store| store.hold_named(now, node, name, ttl_ms)).await
    }

    async fn tell(&self, news: Vec<News>) -> Result<(), Error> {
        let told = timeout(TELL_MAX, self.ask(|store| store.tell(news))).await;
        told.unwrap_or_else(|_| Err(Error::Unavailable("news were not taken in time".to_owned())))
    }

    async fn hear(&self) -> Vec<News> {
        while let Some(store) = self.until_reachable().await {
            let news = store.hear().await;
            // That some are missed while it is away goes without saying.
            if !news.is_empty() || self.is_reachable() {
                return news;
            }
        }
        std::future::pending().await
    }
}

impl Spread {
    /// What each database is told.
    fn dealt(&self, news: Vec<News>) -> BTreeMap<usize, Vec<News>> {
        let mut dealt: BTreeMap<usize, Vec<News>> = BTreeMap::new();
        for news in news {
            match news {
                News::Due { ref tenant, .. }
                | News::Changed { ref tenant, .. }
                | News::Ended { ref tenant, .. } => {
                    dealt.entry(self.home(tenant)).or_default().push(news);
                }
                News::Handed { from, to, number, start_by_ms, jobs } => {
                    let mut by_home: BTreeMap<usize, Vec<_>> = BTreeMap::new();
                    for job in jobs {
                        by_home.entry(self.home_of_job(&job.0, job.1)).or_default().push(job);
                    }
                    for (home, jobs) in by_home {
                        let (from, to) = (Arc::clone(&from), Arc::clone(&to));
                        dealt.entry(home).or_default().push(News::Handed {
                            from,
                            to,
                            number,
                            start_by_ms,
                            jobs,
                        });
                    }
                }
                News::Wants { .. } | News::Demands { .. } => {
                    let reachable = self.all().filter(|part| part.is_reachable());
                    for part in reachable {
                        dealt.entry(usize::from(part.index)).or_default().push(news.clone());
                    }
                }
            }
        }
        dealt
    }
}

#[async_trait]
impl Leases for Spread {
    async fn announce(&self, now: Timestamp, card: &NodeCard, ttl_ms: i64) -> Result<(), Error> {
        self.ask_those_there(|part| part.announce(now, card, ttl_ms)).await.map(drop)
    }

    async fn leave(&self, now: Timestamp, node: &str) -> Result<(), Error> {
        self.ask_those_there(|part| part.leave(now, node)).await.map(drop)
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<Node>, Error> {
        Ok(merge::nodes(self.ask_those_there(|part| part.nodes(now)).await?))
    }

    async fn hold(
        &self,
        now: Timestamp,
        node: &str,
        shards: Vec<Shard>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        let home = |shard: &Shard| self.home_of_shard(*shard);
        let all = self.split(shards, home, |part, shards| part.hold(now, node, shards, ttl_ms)).await?;
        together(all.into_iter().map(|(_, held)| held))
    }

    async fn renew(
        &self,
        now: Timestamp,
        node: &str,
        held: Vec<Held>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        let home = |held: &Held| self.home_of_shard(held.shard);
        let all = self.split(held, home, |part, held| part.renew(now, node, held, ttl_ms)).await?;
        together(all.into_iter().map(|(_, held)| held))
    }

    async fn release(&self, now: Timestamp, node: &str, held: Vec<Held>) -> Result<(), Error> {
        let home = |held: &Held| self.home_of_shard(held.shard);
        let released = self.split(held, home, |part, held| async move {
            part.release(now, node, held).await.map(|()| Vec::<Held>::new())
        });
        let all = released.await?;
        together(all.into_iter().map(|(_, held)| held)).map(drop)
    }

    async fn shard_leases(&self, now: Timestamp) -> Result<Vec<ShardLease>, Error> {
        let all = self.ask_those_there(|part| part.shard_leases(now)).await?;
        let mut leases: Vec<ShardLease> = all.into_iter().flatten().collect();
        leases.sort_by_key(|lease| lease.held);
        Ok(leases)
    }

    async fn hold_named(
        &self,
        now: Timestamp,
        node: &str,
        name: &str,
        ttl_ms: i64,
    ) -> Result<Option<u64>, Error> {
        self.first()?.hold_named(now, node, name, ttl_ms).await
    }

    /// That of the first one that is there.
    async fn time(&self) -> Result<Option<Timestamp>, Error> {
        match self.all().find(|part| part.is_reachable()) {
            Some(part) => part.time().await,
            None => Ok(None),
        }
    }

    async fn tell(&self, news: Vec<News>) -> Result<(), Error> {
        let dealt = self.dealt(news);
        let told = dealt.into_iter().filter_map(|(home, news)| Some(self.parts.get(home)?.tell(news)));
        join_all(told).await.into_iter().collect()
    }

    async fn hear(&self) -> Vec<News> {
        select_all(self.all().map(|part| part.hear())).await.0
    }
}

/// What is held in all of them, in order; one that fails fails it all.
fn together(all: impl Iterator<Item = Result<Vec<Held>, Error>>) -> Result<Vec<Held>, Error> {
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let mut held: Vec<Held> = all.into_iter().flatten().collect();
    held.sort();
    Ok(held)
}
