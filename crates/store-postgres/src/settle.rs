//! Moving the marks up that spare reads what is over: where the agenda of a tenant begins, which changes of counts are
//! folded, from where on attempts under way are looked for.
//!
//! A mark may only pass what nobody can still be writing. So it is moved in two steps, without keeping anybody out.
//! First it is said where it will be (`agenda.pending`, `marks.candidate`), and whoever writes from then on sees that: a
//! job that comes in below has a timer of its own. Then those that are writing at that moment are noted, by the lock that
//! all of them hold; once they have ended, what they wrote is looked at, and the mark is moved. An old
//! transaction of somebody else, with whatever it has done, holds nothing up.
//!
//! A round takes on so much and no more ([`crate::pace`]): what is left is for the next, which goes on from there.

use deadpool_postgres::ClientWrapper;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Status;
use tidewheel_core::limits::{HOUR_MS, SECOND_MS};
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::load::bucket_column;
use crate::pace::PASSED_COUNT_MAX;
use crate::record::status;
use crate::sql;
use crate::store::{PostgresStore, plain};
use crate::uid::Uid;

/// The agenda is gone through up to so long ago: a job that is submitted for now, and takes so long to be committed or
/// comes from a clock that is so much behind, is late, which costs it a timer.
const LATE_MS: i64 = 10 * SECOND_MS;

/// Jobs that still wait so long after their bucket was over get timers, so many in a round.
const STRAGGLER_MS: i64 = HOUR_MS;
const STRAGGLERS_COUNT: i64 = 500;
/// They are looked for among so many from where the agenda of a tenant begins.
const STRAGGLERS_LOOKED_COUNT: i64 = 2_000;
/// And among no more than this part of what the round takes on.
const STRAGGLERS_LOOKED_PART: i64 = 100;

/// For going through jobs and their first events side by side, which are in the same order: that is three times as fast as to
/// look for the event of each.
const SIDE_BY_SIDE: &str =
    "SET LOCAL enable_mergejoin = on; SET LOCAL enable_nestloop = off; SET LOCAL enable_sort = off";
/// As all other statements have it.
const AS_USUAL: &str =
    "SET LOCAL enable_mergejoin = off; SET LOCAL enable_nestloop = on; SET LOCAL enable_sort = on";

/// What is fixed, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settling {
    pub(crate) shards: u16,
    /// Another node need not do again what was done so long ago.
    pub(crate) pause_ms: i64,
    /// Up to when the agenda is gone through; by the database's clock if not given.
    pub(crate) until: Option<Timestamp>,
    /// How many jobs are passed at most.
    pub(crate) count_max: i64,
}

/// What a round leaves to do.
struct Left {
    /// Those who write are to be noted.
    writers: bool,
    /// Whether there was more than it could take on; none if it had nothing to take on yet.
    more: Option<bool>,
}

impl Left {
    const NOTHING: Self = Self { writers: false, more: None };
}

struct Marks {
    settled: i64,
    candidate: Option<i64>,
    attempts_from: i64,
    waits: bool,
    now: Timestamp,
}

/// One round: what was said becomes so, if nobody is left who may not have heard of it; and the next is said. Returns whether
/// there is more to pass than it could take on; none where others are at it, or are still waited for.
pub(crate) async fn settle(connections: &Connections, settling: Settling) -> Result<Option<bool>, Trouble> {
    let transaction = connections.begin(Lane::Scheduler).await?;
    let outcome = round(transaction.client()?, settling).await;
    let left = transaction.end(outcome).await?;
    if left.writers {
        // Only what is committed is seen by those who are not noted here.
        let transaction = connections.begin(Lane::Scheduler).await?;
        let outcome = note_writers(transaction.client()?).await;
        transaction.end(outcome).await?;
    }
    Ok(left.more)
}

async fn note_writers(client: &ClientWrapper) -> Result<(), Trouble> {
    // Locked first: an update that had to wait for another node would go by those who wrote before it waited.
    let row = client.query_opt("SELECT FROM marks WHERE writers IS NULL FOR UPDATE", &[]).await?;
    if row.is_some() {
        let statement = client.prepare_cached(sql::NOTE_WRITERS).await?;
        client.execute(&statement, &[]).await?;
    }
    Ok(())
}

async fn round(client: &ClientWrapper, settling: Settling) -> Result<Left, Trouble> {
    let Some(marks) = take_marks(client, settling.pause_ms).await? else { return Ok(Left::NOTHING) };
    let (mut settled, mut attempts_from, mut more) = (marks.settled, marks.attempts_from, false);
    if let Some(candidate) = marks.candidate {
        if !marks.waits {
            return Ok(Left { writers: true, more: None });
        }
        let statement = client.prepare_cached(sql::WRITERS_LEFT).await?;
        if client.query_one(&statement, &[]).await?.try_get(0)? {
            return Ok(Left::NOTHING);
        }
        settled = go_on(client, sql::FOLD_TALLIES, (marks.settled, candidate), settling.count_max).await?;
        run(client, sql::FORGET_ATTEMPTS, None).await?;
        // Only what began before the last round: most attempts are over by then.
        let range = (marks.attempts_from, marks.settled);
        attempts_from = go_on(client, sql::NOTE_ATTEMPTS, range, settling.count_max).await?;
        more = settled < candidate || attempts_from < marks.settled;
        if confirm(client, settling.count_max).await? {
            // What is left of it still stands, and so do those who have ended: the next round need not begin anew.
            run(client, sql::KEEP_MARKS, Some((settled, attempts_from))).await?;
            return Ok(Left { writers: false, more: Some(true) });
        }
    }
    let until = settling.until.unwrap_or_else(|| marks.now.plus_ms(-LATE_MS));
    move_stragglers(client, settling, until, marks.now).await?;
    more |= propose(client, settling, until).await?;
    run(client, sql::SET_MARKS, Some((settled, attempts_from))).await?;
    Ok(Left { writers: true, more: Some(more) })
}

/// Returns whether some of it is left.
async fn confirm(client: &ClientWrapper, count_max: i64) -> Result<bool, Trouble> {
    client.batch_execute(SIDE_BY_SIDE).await?;
    let statement = client.prepare_cached(sql::CONFIRM_AGENDA).await?;
    let row = client.query_one(&statement, &[&count_max]).await?;
    client.batch_execute(AS_USUAL).await?;
    Ok(row.try_get(0)?)
}

/// Returns whether more could have been said.
async fn propose(client: &ClientWrapper, settling: Settling, until: Timestamp) -> Result<bool, Trouble> {
    let (shards, bucket) = (i32::from(settling.shards), bucket_column(Bucket::of(until)));
    let until = Uid::from(JobId::new(until, 0));
    client.batch_execute(SIDE_BY_SIDE).await?;
    let statement = client.prepare_cached(sql::PROPOSE_AGENDA).await?;
    let row = client.query_one(&statement, &[&shards, &bucket, &until, &settling.count_max]).await?;
    client.batch_execute(AS_USUAL).await?;
    Ok(row.try_get(0)?)
}

async fn move_stragglers(
    client: &ClientWrapper,
    settling: Settling,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), Trouble> {
    let bucket = bucket_column(Bucket::of(until.plus_ms(-STRAGGLER_MS)));
    // How a job stands that waits for its first time, which is the same for all: instants count from that.
    let base = Timestamp::from_ms(0);
    let standing = status::encode(&Status::scheduled(base), base);
    let statement = client.prepare_cached(sql::MOVE_STRAGGLERS).await?;
    let (shards, now) = (i32::from(settling.shards), now.as_ms());
    // A round that takes on less looks at less of each place.
    let looked = STRAGGLERS_LOOKED_COUNT.min(settling.count_max / STRAGGLERS_LOOKED_PART).max(2);
    client.execute(&statement, &[&shards, &bucket, &STRAGGLERS_COUNT, &now, &standing, &looked]).await?;
    Ok(())
}

async fn take_marks(client: &ClientWrapper, pause_ms: i64) -> Result<Option<Marks>, Trouble> {
    let statement = client.prepare_cached(sql::TAKE_MARKS).await?;
    let Some(row) = client.query_opt(&statement, &[&pause_ms]).await? else { return Ok(None) };
    Ok(Some(Marks {
        settled: row.try_get("settled")?,
        candidate: row.try_get("candidate")?,
        attempts_from: row.try_get("attempts_from")?,
        waits: row.try_get("waits")?,
        now: Timestamp::from_ms(row.try_get("now")?),
    }))
}

/// Goes through a range of numbers as far as it may; returns how far.
async fn go_on(
    client: &ClientWrapper,
    sql: &str,
    (from, upto): (i64, i64),
    count_max: i64,
) -> Result<i64, Trouble> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_one(&statement, &[&from, &upto, &count_max]).await?.try_get(0)?)
}

async fn run(client: &ClientWrapper, sql: &str, range: Option<(i64, i64)>) -> Result<(), Trouble> {
    let statement = client.prepare_cached(sql).await?;
    match range {
        Some((first, second)) => client.execute(&statement, &[&first, &second]).await?,
        None => client.execute(&statement, &[]).await?,
    };
    Ok(())
}

impl PostgresStore {
    /// Moves the marks up that spare reads what is over, going through what was due before `until`. Done by itself every
    /// few seconds, for what was due some seconds ago.
    ///
    /// # Errors
    /// When the database does not allow it now; reads then cost more, and find the same.
    pub async fn settle(&self, until: Timestamp) -> Result<(), Error> {
        self.settle_at_most(until, PASSED_COUNT_MAX).await.map(drop)
    }

    /// The same, passing so many jobs at most, or about twice that; says whether there is more.
    ///
    /// # Errors
    /// As above.
    pub async fn settle_at_most(&self, until: Timestamp, count_max: i64) -> Result<bool, Error> {
        let settling = Settling { shards: self.database.shards, pause_ms: 0, until: Some(until), count_max };
        let more = settle(&self.database.connections, settling).await.map_err(plain)?;
        Ok(more.unwrap_or(false))
    }
}
