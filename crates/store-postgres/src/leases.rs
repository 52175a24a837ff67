//! Leases: which node has which shard, by the database's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::ClientWrapper;
use tidewheel_core::job::Command;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, Held, Leases, News, Node, NodeCard, Order, ShardLease};
use tokio_postgres::Row;

use crate::batch::{Batch, Column};
use crate::connections::Lane;
use crate::fault::Trouble;
use crate::load::shard_column;
use crate::news;
use crate::record::Unreadable;
use crate::sql;
use crate::store::{Database, PostgresStore};

/// Named leases share a table with the ownership of all shards; this keeps their names apart.
fn named(name: &str) -> String {
    format!("named:{name}")
}

fn read_held(row: &Row) -> Result<Held, Trouble> {
    let nonsense = Unreadable::Nonsense("a lease");
    let shard = u16::try_from(row.try_get::<_, i16>("shard")?).map_err(|_| nonsense.clone())?;
    let epoch = u64::try_from(row.try_get::<_, i64>("epoch")?).map_err(|_| nonsense)?;
    Ok(Held { shard: Shard(shard), epoch })
}

fn columns(held: &[Held]) -> (Vec<i16>, Vec<i64>) {
    held.iter().map(|held| (shard_column(held.shard), i64::try_from(held.epoch).unwrap_or(i64::MAX))).unzip()
}

/// The shards that a batch claims in, with the epochs that its claims carry; none if one is claimed
/// in under two, which cannot both hold.
pub(crate) fn claimed_in(shards: u16, orders: &[Order]) -> Option<Vec<Held>> {
    let mut claimed = BTreeMap::new();
    for order in orders {
        let Command::Claim { epoch, .. } = order.command else { continue };
        let shard = Shard::of_job(&order.tenant, order.id, shards);
        if claimed.insert(shard, epoch).is_some_and(|other| other != epoch) {
            return None;
        }
    }
    Some(claimed.into_iter().map(|(shard, epoch)| Held { shard, epoch }).collect())
}

/// Holds these leases to be as they are said to be, and has them stay so until the batch is
/// committed.
pub(crate) fn assertion(held: &[Held]) -> Option<Batch> {
    let (shards, epochs) = columns(held);
    let columns: Vec<Column> = vec![Box::new(shards), Box::new(epochs)];
    (!held.is_empty()).then_some(Batch { sql: sql::HOLDS_SHARDS, columns, expected: None })
}

/// The leases of the shards that a batch claims in; they stay as they are until it is committed.
pub(crate) struct Fences {
    shards: u16,
    leases: BTreeMap<Shard, Option<u64>>,
}

impl Fences {
    pub(crate) async fn read(client: &ClientWrapper, shards: u16, orders: &[Order]) -> Result<Self, Trouble> {
        let claims = orders.iter().filter(|order| matches!(order.command, Command::Claim { .. }));
        let claimed: BTreeSet<Shard> =
            claims.map(|order| Shard::of_job(&order.tenant, order.id, shards)).collect();
        let mut leases = BTreeMap::new();
        if !claimed.is_empty() {
            let claimed: Vec<i16> = claimed.into_iter().map(shard_column).collect();
            let statement = client.prepare_cached(sql::SHARD_FENCE).await?;
            for row in &client.query(&statement, &[&claimed]).await? {
                let Held { shard, epoch } = read_held(row)?;
                leases.insert(shard, row.try_get::<_, bool>("holds")?.then_some(epoch));
            }
        }
        Ok(Self { shards, leases })
    }

    /// Whether an order is a claim that does not carry the epoch of its shard's lease.
    pub(crate) fn forbid(&self, order: &Order) -> bool {
        let Command::Claim { epoch, .. } = order.command else { return false };
        let lease = self.leases.get(&Shard::of_job(&order.tenant, order.id, self.shards));
        lease.is_some_and(|lease| *lease != Some(epoch))
    }
}

impl Database {
    async fn hold_now(&self, node: &str, shards: &[Shard], ttl_ms: i64) -> Result<Vec<Held>, Trouble> {
        let sorted: BTreeSet<i16> = shards.iter().copied().map(shard_column).collect();
        let sorted: Vec<i16> = sorted.into_iter().collect();
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::HOLD_SHARDS).await?;
        let rows = client.query(&statement, &[&sorted, &node, &ttl_ms]).await?;
        let mut held = rows.iter().map(read_held).collect::<Result<Vec<_>, _>>()?;
        held.sort();
        Ok(held)
    }

    async fn renew_now(&self, node: &str, held: &[Held], ttl_ms: i64) -> Result<Vec<Held>, Trouble> {
        let (shards, epochs) = columns(held);
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::RENEW_SHARDS).await?;
        let rows = client.query(&statement, &[&shards, &epochs, &node, &ttl_ms]).await?;
        let mut held = rows.iter().map(read_held).collect::<Result<Vec<_>, _>>()?;
        held.sort();
        Ok(held)
    }

    async fn release_now(&self, node: &str, held: &[Held]) -> Result<(), Trouble> {
        let (shards, epochs) = columns(held);
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::RELEASE_SHARDS).await?;
        client.execute(&statement, &[&shards, &epochs, &node]).await?;
        Ok(())
    }

    async fn announce_now(&self, card: &NodeCard, ttl_ms: i64) -> Result<(), Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::ANNOUNCE).await?;
        client.execute(&statement, &[&&*card.id, &&*card.address, &&*card.version, &ttl_ms]).await?;
        Ok(())
    }

    /// Not rounded up: nobody is to be ahead of it.
    async fn time_now(&self) -> Result<Timestamp, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let ask = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let statement = client.prepare_cached(ask).await?;
        Ok(Timestamp::from_ms(client.query_one(&statement, &[]).await?.try_get(0)?))
    }

    async fn leave_now(&self, node: &str) -> Result<(), Trouble> {
        let transaction = self.connections.begin(Lane::Scheduler).await?;
        let outcome = async {
            let client = transaction.client()?;
            let over = "node = NULL, until = '-infinity' WHERE node = $1";
            client.execute(&format!("UPDATE shard_leases SET {over}"), &[&node]).await?;
            client.execute(&format!("UPDATE leases SET {over}"), &[&node]).await?;
            client.execute("DELETE FROM nodes WHERE id = $1", &[&node]).await?;
            Ok(())
        }
        .await;
        transaction.end(outcome).await
    }

    async fn nodes_now(&self) -> Result<Vec<Node>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        client.execute(sql::FORGET_NODES, &[]).await?;
        let statement = client.prepare_cached(sql::NODES).await?;
        let node = |row: &Row| {
            let text = |name: &str| row.try_get::<_, &str>(name).map(Arc::from);
            Ok(Node {
                card: NodeCard { id: text("id")?, address: text("address")?, version: text("version")? },
                started_at: Timestamp::from_ms(row.try_get("started_at")?),
                is_alive: row.try_get("is_alive")?,
            })
        };
        client.query(&statement, &[]).await?.iter().map(node).collect()
    }

    async fn shard_leases_now(&self) -> Result<Vec<ShardLease>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::SHARD_LEASES).await?;
        let lease = |row: &Row| {
            Ok(ShardLease {
                held: read_held(row)?,
                node: row.try_get::<_, Option<&str>>("node")?.map(Arc::from),
                is_over: row.try_get("is_over")?,
            })
        };
        client.query(&statement, &[]).await?.iter().map(lease).collect()
    }

    async fn hold_named_now(&self, node: &str, name: &str, ttl_ms: i64) -> Result<Option<u64>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::HOLD_NAMED).await?;
        let row = client.query_opt(&statement, &[&named(name), &node, &ttl_ms]).await?;
        let epoch: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
        Ok(epoch.and_then(|epoch| u64::try_from(epoch).ok()))
    }
}

#[async_trait]
impl Leases for PostgresStore {
    async fn announce(&self, _: Timestamp, card: &NodeCard, ttl_ms: i64) -> Result<(), Error> {
        self.database.connections.bounded_lease(self.database.announce_now(card, ttl_ms)).await
    }

    async fn leave(&self, _: Timestamp, node: &str) -> Result<(), Error> {
        self.database.connections.bounded_lease(self.database.leave_now(node)).await
    }

    async fn nodes(&self, _: Timestamp) -> Result<Vec<Node>, Error> {
        self.database.connections.bounded_lease(self.database.nodes_now()).await
    }

    async fn hold(
        &self,
        _: Timestamp,
        node: &str,
        shards: Vec<Shard>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.database.connections.bounded_lease(self.database.hold_now(node, &shards, ttl_ms)).await
    }

    async fn renew(
        &self,
        _: Timestamp,
        node: &str,
        held: Vec<Held>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.database.connections.bounded_lease(self.database.renew_now(node, &held, ttl_ms)).await
    }

    async fn release(&self, _: Timestamp, node: &str, held: Vec<Held>) -> Result<(), Error> {
        self.database.connections.bounded_lease(self.database.release_now(node, &held)).await
    }

    async fn shard_leases(&self, _: Timestamp) -> Result<Vec<ShardLease>, Error> {
        self.database.connections.bounded_lease(self.database.shard_leases_now()).await
    }

    async fn hold_named(
        &self,
        _: Timestamp,
        node: &str,
        name: &str,
        ttl_ms: i64,
    ) -> Result<Option<u64>, Error> {
        let hold = self.database.hold_named_now(node, name, ttl_ms);
        self.database.connections.bounded_lease(hold).await
    }

    async fn time(&self) -> Result<Option<Timestamp>, Error> {
        self.database.connections.bounded_lease(self.database.time_now()).await.map(Some)
    }

    async fn tell(&self, news: Vec<News>) -> Result<(), Error> {
        let tell = news::tell(&self.database.connections, &self.database.schema, &news);
        self.database.connections.bounded(tell).await
    }

    async fn hear(&self) -> Vec<News> {
        match self.database.news.lock().await.recv().await {
            Some(news) => news,
            // The store is closed, and nobody says anything any more.
            None => std::future::pending().await,
        }
    }
}
