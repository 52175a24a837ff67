//! The audit trail. Acts are linked into their chains at once: whoever adds holds the rows of the chains' heads until
//! the end of the transaction. Changes of jobs are put aside with the change itself (`audit_pending`) and linked a
//! moment later, by one node at a time, so that no change of a job waits for another's; reading links them first.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use deadpool_postgres::ClientWrapper;
use tidewheel_core::audit::{Chain, ChainEnds, Digest, Kind, Link, Record, chain_of};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Audit, AuditOrder, AuditQuery, Error, NewAct};
use tokio_postgres::Row;

use crate::apply::{ROUNDS_COUNT_MAX, crowded};
use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::record::Unreadable;
use crate::sql;
use crate::store::{Database, PostgresStore, plain};

/// Held by whoever links changes of jobs: in one schema one node at a time.
const LINK_LOCK: &str = "1953064050, hashtext(current_schema())";
/// Rows linked, and dropped, in one transaction.
const ROWS_COUNT: i64 = 1_000;

/// A record to be.
struct New {
    chain: Chain,
    at: Timestamp,
    kind: Kind,
    content: Bytes,
}

fn column(chain: Chain) -> i16 {
    i16::try_from(chain).unwrap_or(i16::MAX)
}

fn chain(column: i16) -> Result<Chain, Trouble> {
    Chain::try_from(column).map_err(|_| nonsense())
}

fn nonsense() -> Trouble {
    Unreadable::Nonsense("the audit trail").into()
}

fn digest(bytes: &[u8]) -> Result<Digest, Trouble> {
    Digest::from_slice(bytes).ok_or_else(nonsense)
}

fn link(row: &Row, [seq, at, hash]: [&str; 3]) -> Result<Link, Trouble> {
    Ok(Link {
        seq: u64::try_from(row.try_get::<_, i64>(seq)?).map_err(|_| nonsense())?,
        at: Timestamp::from_ms(row.try_get(at)?),
        hash: digest(row.try_get(hash)?)?,
    })
}

const HEAD: [&str; 3] = ["seq", "at", "hash"];
const ANCHOR: [&str; 3] = ["anchor_seq", "anchor_at", "anchor_hash"];

fn record(row: &Row) -> Result<Record, Trouble> {
    let Link { seq, at, hash } = link(row, HEAD)?;
    let kind = u8::try_from(row.try_get::<_, i16>("kind")?).ok().and_then(Kind::from_number);
    Ok(Record {
        chain: chain(row.try_get("chain")?)?,
        seq,
        at,
        kind: kind.ok_or_else(nonsense)?,
        content: Bytes::copy_from_slice(row.try_get("content")?),
        previous: digest(row.try_get("previous")?)?,
        hash,
    })
}

/// The columns of links, by chain.
fn columns(links: &BTreeMap<Chain, Link>) -> (Vec<i16>, Vec<i64>, Vec<i64>, Vec<Vec<u8>>) {
    let chains = links.keys().map(|chain| column(*chain)).collect();
    let seqs = links.values().map(|link| i64::try_from(link.seq).unwrap_or(i64::MAX)).collect();
    let times = links.values().map(|link| link.at.as_ms()).collect();
    (chains, seqs, times, links.values().map(|link| link.hash.0.to_vec()).collect())
}

/// Links records into their chains, within a transaction, which from here on holds these chains.
async fn append(client: &ClientWrapper, new: Vec<New>) -> Result<(), Trouble> {
    let mut heads: BTreeMap<Chain, Link> = new.iter().map(|new| (new.chain, Link::START)).collect();
    let chains: Vec<i16> = heads.keys().map(|chain| column(*chain)).collect();
    let zero = Digest::ZERO.0.as_slice();
    let statement = client.prepare_cached(sql::BEGIN_AUDIT_CHAINS).await?;
    client.execute(&statement, &[&chains, &zero]).await?;
    let statement = client.prepare_cached(sql::LOCK_AUDIT_CHAINS).await?;
    for row in client.query(&statement, &[&chains]).await? {
        heads.insert(chain(row.try_get("chain")?)?, link(&row, HEAD)?);
    }
    let records: Vec<Record> = new
        .into_iter()
        .filter_map(|New { chain, at, kind, content }| {
            Some(heads.get_mut(&chain)?.append(chain, at, kind, content))
        })
        .collect();
    let chains: Vec<i16> = records.iter().map(|record| column(record.chain)).collect();
    let seqs: Vec<i64> = records.iter().map(|record| i64::try_from(record.seq).unwrap_or(i64::MAX)).collect();
    let times: Vec<i64> = records.iter().map(|record| record.at.as_ms()).collect();
    let kinds: Vec<i16> = records.iter().map(|record| i16::from(record.kind.number())).collect();
    let previous: Vec<&[u8]> = records.iter().map(|record| record.previous.0.as_slice()).collect();
    let hashes: Vec<&[u8]> = records.iter().map(|record| record.hash.0.as_slice()).collect();
    let contents: Vec<&[u8]> = records.iter().map(|record| &*record.content).collect();
    let statement = client.prepare_cached(sql::INSERT_AUDIT).await?;
    client.execute(&statement, &[&chains, &seqs, &times, &kinds, &previous, &hashes, &contents]).await?;
    let (chains, seqs, times, hashes) = columns(&heads);
    let statement = client.prepare_cached(sql::MOVE_AUDIT_CHAINS).await?;
    client.execute(&statement, &[&chains, &seqs, &times, &hashes]).await?;
    Ok(())
}

/// Whether to wait for another node that links.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfBusy {
    Wait,
    LeaveIt,
}

/// Links some of the changes put aside; says whether there may be more.
async fn link_some(client: &ClientWrapper, if_busy: IfBusy) -> Result<bool, Trouble> {
    match if_busy {
        IfBusy::Wait => {
            client.execute(&format!("SELECT pg_advisory_xact_lock({LINK_LOCK})"), &[]).await?;
        }
        IfBusy::LeaveIt => {
            let row =
                client.query_one(&format!("SELECT pg_try_advisory_xact_lock({LINK_LOCK})"), &[]).await?;
            if !row.try_get(0)? {
                return Ok(false);
            }
        }
    }
    // Asked first: whatever has a number below it is seen by the look that follows.
    let settled: i64 = client.query_one("SELECT settled FROM marks", &[]).await?.try_get(0)?;
    let statement = client.prepare_cached(sql::TAKE_AUDIT_PENDING).await?;
    let rows = client.query(&statement, &[&ROWS_COUNT]).await?;
    let mut taken = BTreeMap::new();
    for row in &rows {
        let new = New {
            chain: chain(row.try_get("chain")?)?,
            at: Timestamp::from_ms(row.try_get("at")?),
            kind: Kind::Changes,
            content: Bytes::copy_from_slice(row.try_get("content")?),
        };
        taken.insert(row.try_get::<_, i64>("number")?, new);
    }
    let is_full = i64::try_from(taken.len()).is_ok_and(|count| count >= ROWS_COUNT);
    if !taken.is_empty() {
        append(client, taken.into_values().collect()).await?;
    }
    if !is_full {
        client.execute("UPDATE audit_mark SET linked = $1 WHERE linked < $1", &[&settled]).await?;
    }
    Ok(is_full)
}

async fn link_all(connections: &Connections, if_busy: IfBusy) -> Result<(), Trouble> {
    let lane = if if_busy == IfBusy::Wait { Lane::Caller } else { Lane::Scheduler };
    loop {
        let transaction = connections.begin(lane).await?;
        let outcome = link_some(transaction.client()?, if_busy).await;
        if !transaction.end(outcome).await? {
            return Ok(());
        }
    }
}

/// Links what was put aside, unless another node does.
pub(crate) async fn link_pending(connections: &Connections) -> Result<(), Trouble> {
    link_all(connections, IfBusy::LeaveIt).await
}

impl Database {
    async fn append_round(&self, now: Timestamp, acts: &[NewAct]) -> Result<(), Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let new = acts.iter().map(|NewAct { tenant, content }| New {
            chain: chain_of(tenant, self.shards),
            at: now,
            kind: Kind::Act,
            content: content.clone(),
        });
        let outcome = append(transaction.client()?, new.collect()).await;
        transaction.end(outcome).await
    }

    /// Another that adds to the same chain makes this one begin again.
    async fn append_acts_now(&self, now: Timestamp, acts: &[NewAct]) -> Result<(), Trouble> {
        for _ in 0..ROUNDS_COUNT_MAX {
            match self.append_round(now, acts).await {
                Err(Trouble::Raced) => {}
                answered => return answered,
            }
        }
        Err(crowded())
    }

    async fn audit_records_now(&self, query: &AuditQuery) -> Result<Vec<Record>, Trouble> {
        if query.after.is_none() {
            link_all(&self.connections, IfBusy::Wait).await?;
        }
        let text = match (query.kind, query.order) {
            (None, AuditOrder::OldestFirst) => sql::AUDIT_UP,
            (None, AuditOrder::NewestFirst) => sql::AUDIT_DOWN,
            (Some(Kind::Act), AuditOrder::OldestFirst) => sql::ACTS_UP,
            (Some(Kind::Act), AuditOrder::NewestFirst) => sql::ACTS_DOWN,
            (Some(Kind::Changes), AuditOrder::OldestFirst) => sql::CHANGES_UP,
            (Some(Kind::Changes), AuditOrder::NewestFirst) => sql::CHANGES_DOWN,
        };
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(text).await?;
        let at = query.after.map(|place| place.at.as_ms());
        let chain = query.after.map(|place| column(place.chain));
        let seq = query.after.map(|place| i64::try_from(place.seq).unwrap_or(i64::MAX));
        let (from, until) = (query.from.as_ms(), query.until.as_ms());
        let count_max = i64::try_from(query.count_max).unwrap_or(i64::MAX);
        let rows = client.query(&statement, &[&from, &until, &at, &chain, &seq, &count_max]).await?;
        rows.iter().map(record).collect()
    }

    async fn audit_chains_now(&self) -> Result<Vec<ChainEnds>, Trouble> {
        link_all(&self.connections, IfBusy::Wait).await?;
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::AUDIT_CHAINS).await?;
        let rows = client.query(&statement, &[]).await?;
        let ends = rows.iter().map(|row| {
            let chain = chain(row.try_get("chain")?)?;
            Ok(ChainEnds { chain, anchor: link(row, ANCHOR)?, head: link(row, HEAD)? })
        });
        ends.collect()
    }

    async fn drop_audit_now(&self, before: Timestamp) -> Result<(), Trouble> {
        link_all(&self.connections, IfBusy::Wait).await?;
        let before = before.as_ms().div_euclid(DAY_MS) * DAY_MS;
        loop {
            let transaction = self.connections.begin(Lane::Scheduler).await?;
            let outcome = drop_some(transaction.client()?, before).await;
            if transaction.end(outcome).await? == 0 {
                return Ok(());
            }
        }
    }
}

async fn drop_some(client: &ClientWrapper, before_ms: i64) -> Result<usize, Trouble> {
    let statement = client.prepare_cached(sql::DROP_AUDIT).await?;
    let rows = client.query(&statement, &[&before_ms, &ROWS_COUNT]).await?;
    let mut anchors: BTreeMap<Chain, Link> = BTreeMap::new();
    for row in &rows {
        let dropped = link(row, HEAD)?;
        let anchor = anchors.entry(chain(row.try_get("chain")?)?).or_insert(dropped);
        if anchor.seq < dropped.seq {
            *anchor = dropped;
        }
    }
    let (chains, seqs, times, hashes) = columns(&anchors);
    let statement = client.prepare_cached(sql::MOVE_AUDIT_ANCHORS).await?;
    client.execute(&statement, &[&chains, &seqs, &times, &hashes]).await?;
    Ok(rows.len())
}

#[async_trait]
impl Audit for PostgresStore {
    async fn append_acts(&self, now: Timestamp, acts: Vec<NewAct>) -> Result<(), Error> {
        self.database.connections.bounded(self.database.append_acts_now(now, &acts)).await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Vec<Record>, Error> {
        let read = self.database.audit_records_now(&query);
        self.database.connections.bounded(read).await
    }

    async fn audit_chains(&self) -> Result<Vec<ChainEnds>, Error> {
        let read = self.database.audit_chains_now();
        self.database.connections.bounded(read).await
    }

    async fn drop_audit(&self, before: Timestamp) -> Result<(), Error> {
        self.database.drop_audit_now(before).await.map_err(plain)
    }
}
