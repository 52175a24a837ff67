//! Batches that change something: orders for jobs, orders for schedules, keys. Each is one transaction:
//! read, decide in memory, write. Nothing is locked for deciding but schedules; a batch that lost a race finds at the
//! write that the next number of a job is taken, is undone, and begins again with what is there now.

use std::collections::BTreeSet;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::job::Command;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::evaluate;
use tidewheel_store::{
    Applied, Edited, Error, IdempotencyClaim, KeyClaimed, Order, Refusal, ScheduleOrder, ScheduleRefusal,
};

use crate::agenda::Places;
use crate::batch::{Batch, Written};
use crate::connections::Lane;
use crate::desk::{Desk, JobKey};
use crate::fault::Trouble;
use crate::leases::{Fences, assertion, claimed_in};
use crate::load::{load_jobs, load_missing, shard_of};
use crate::recall::outcome_of;
use crate::sql;
use crate::store::{Database, OWNERSHIP};
use crate::unreadable::Told;

/// How often a batch begins again. Every round somebody gets through, so this bounds a crowd, not a wait.
pub(crate) const ROUNDS_COUNT_MAX: usize = 200;
/// How often more is read before orders can be evaluated: jobs, their schedules, those schedules' jobs, and so on.
pub(crate) const READS_COUNT_MAX: usize = 64;

type Answers = Vec<Result<Applied, Refusal>>;
type Edits = Vec<Result<Edited, ScheduleRefusal>>;

/// Too many were faster.
pub(crate) fn crowded() -> Trouble {
    Trouble::Own(Error::Unavailable("too many change the same at once".to_owned()))
}

/// Runs a round until it is not overtaken.
macro_rules! rounds {
    (|$number:ident| $round:expr) => {{
        for round in 0..ROUNDS_COUNT_MAX {
            let $number = round;
            match $round.await {
                Err(Trouble::Raced) => {}
                answered => return answered,
            }
        }
        Err(crowded())
    }};
}

impl Database {
    pub(crate) async fn apply_batch(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
    ) -> Result<Answers, Trouble> {
        rounds!(|round| self.apply_round(round, now, epoch, orders))
    }

    async fn apply_round(
        &self,
        round: usize,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
    ) -> Result<Answers, Trouble> {
        if round == 0
            && epoch.is_none()
            && let Some(answered) = self.apply_unseen(now, orders).await
        {
            return answered;
        }
        let transaction = self.connections.begin(lane_of(epoch, orders)).await?;
        let mut desk = Desk::of_round(round);
        let outcome = self.apply_in(transaction.client()?, &mut desk, now, epoch, orders).await;
        let ended = transaction.end(outcome).await;
        self.note(&desk, now, ended.is_ok());
        ended
    }

    /// Orders that can be judged without a look at the database: for jobs that are recalled, and
    /// none of them left as it is. They are written in one round trip. Claims are taken to be under
    /// the leases they carry, which the database makes sure of before it takes anything in.
    async fn apply_unseen(&self, now: Timestamp, orders: &[Order]) -> Option<Result<Answers, Trouble>> {
        let claimed = claimed_in(self.shards, orders)?;
        let mut desk = Desk::of_round(0);
        for key in orders.iter().map(|order| (order.tenant.clone(), order.id)) {
            let stored = self.recall.find(now, &key)?;
            desk.add_recalled(key, stored);
        }
        desk.begin();
        let answers = orders.iter().map(|order| obey(&mut desk, now, order));
        let answers: Answers = answers.collect::<Result<_, _>>().ok()?;
        if !desk.missing.is_empty() || !desk.doubtful().is_empty() {
            return None;
        }
        let mut batches: Vec<Batch> = assertion(&claimed).into_iter().collect();
        batches.extend(self.batches(now, Places::Any, &desk));
        if batches.iter().any(|batch| batch.expected.is_some()) {
            return None;
        }
        let written = match self.connections.write_at_once(lane_of(None, orders), &batches).await {
            Ok(Written::Done) => Ok(answers),
            // A lease is another's. Which orders that concerns, a look tells.
            Ok(Written::Refuted) => Err(Trouble::Raced),
            Err(trouble) => Err(trouble),
        };
        self.note(&desk, now, written.is_ok());
        Some(written)
    }

    /// Keeps what a batch left behind; of one that came to nothing, what it went by is forgotten.
    pub(crate) fn note(&self, desk: &Desk, now: Timestamp, is_committed: bool) {
        if is_committed {
            let outcome = outcome_of(desk, now, |job| shard_of(job, self.shards));
            self.recall.note_written(now, outcome);
        } else {
            self.recall.forget(desk.jobs.keys().cloned());
        }
    }

    async fn apply_in(
        &self,
        client: &ClientWrapper,
        desk: &mut Desk,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
    ) -> Result<Answers, Trouble> {
        if let Some(epoch) = epoch {
            fence(client, epoch).await?;
        }
        let fences = Fences::read(client, self.shards, orders).await?;
        let mut unseen: BTreeSet<JobKey> = BTreeSet::new();
        for key in orders.iter().map(|order| (order.tenant.clone(), order.id)) {
            match self.recall.find(now, &key) {
                Some(stored) => desk.add_recalled(key, stored),
                None => drop(unseen.insert(key)),
            }
        }
        load_jobs(client, desk, unseen).await?;
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answers: Vec<_> = orders
                .iter()
                .map(
                    |order| {
                        if fences.forbid(order) { Ok(Err(Refusal::Fenced)) } else { obey(desk, now, order) }
                    },
                )
                .collect();
            let doubtful = desk.doubtful();
            if !desk.missing.is_empty() {
                load_missing(client, &self.rules, desk).await?;
            } else if !doubtful.is_empty() {
                load_jobs(client, desk, doubtful).await?;
            } else {
                let answers = refuse_unreadable(orders, answers)?;
                self.write(client, now, desk).await?;
                return Ok(answers);
            }
        }
        Err(crowded())
    }

    pub(crate) async fn edit_batch(
        &self,
        now: Timestamp,
        orders: &[ScheduleOrder],
    ) -> Result<Edits, Trouble> {
        rounds!(|round| self.edit_round(round, now, orders))
    }

    async fn edit_round(
        &self,
        round: usize,
        now: Timestamp,
        orders: &[ScheduleOrder],
    ) -> Result<Edits, Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let mut desk = Desk::of_round(round);
        let outcome = self.edit_in(transaction.client()?, &mut desk, now, orders).await;
        // What an order is refused for was read after its key, and may be what the same call has done in between.
        let outcome = match outcome {
            Ok(answers) if round == 0 && is_any_refused_under_key(orders, &answers) => Err(Trouble::Raced),
            outcome => outcome,
        };
        let ended = transaction.end(outcome).await;
        self.note(&desk, now, ended.is_ok());
        ended
    }

    async fn edit_in(
        &self,
        client: &ClientWrapper,
        desk: &mut Desk,
        now: Timestamp,
        orders: &[ScheduleOrder],
    ) -> Result<Edits, Trouble> {
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answers: Vec<_> = orders.iter().map(|order| edit(desk, now, order)).collect();
            if desk.missing.is_empty() {
                let answers = refuse_unreadable_edits(orders, answers)?;
                self.write(client, now, desk).await?;
                return Ok(answers);
            }
            load_missing(client, &self.rules, desk).await?;
        }
        Err(crowded())
    }

    pub(crate) async fn claim_one_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Trouble> {
        rounds!(|round| self.key_round(round, now, tenant, claim))
    }

    async fn key_round(
        &self,
        round: usize,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let outcome = self.key_in(transaction.client()?, Desk::of_round(round), now, tenant, claim).await;
        transaction.end(outcome).await
    }

    async fn key_in(
        &self,
        client: &ClientWrapper,
        mut desk: Desk,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Trouble> {
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answer = evaluate::claim_key(&mut desk, now, tenant, claim.clone());
            if desk.missing.is_empty() {
                let (answer, changes) = answer?;
                desk.carry_out(tenant, changes)?;
                self.write(client, now, &desk).await?;
                return Ok(answer);
            }
            load_missing(client, &self.rules, &mut desk).await?;
        }
        Err(crowded())
    }
}

fn is_any_refused_under_key(orders: &[ScheduleOrder], answers: &Edits) -> bool {
    orders.iter().zip(answers).any(|(order, answer)| order.key.is_some() && answer.is_err())
}

/// Whose connections a batch goes by.
fn lane_of(epoch: Option<u64>, orders: &[Order]) -> Lane {
    // Only the scheduler claims; in a cluster it does so without an epoch for all.
    let is_claimed = orders.iter().any(|order| matches!(order.command, Command::Claim { .. }));
    if epoch.is_some() || is_claimed {
        Lane::Scheduler
    } else if orders.iter().all(|order| order.command.token().is_some()) {
        // Submissions must not keep reports waiting: an attempt whose lease runs out meanwhile is made again.
        Lane::Reports
    } else {
        Lane::Caller
    }
}

/// Refuses a batch of an owner that is no longer, and holds the ownership until the batch is committed.
async fn fence(client: &ClientWrapper, epoch: u64) -> Result<(), Trouble> {
    let statement = client.prepare_cached(sql::FENCE).await?;
    let row = client.query_opt(&statement, &[&OWNERSHIP]).await?;
    let newest: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
    if newest == i64::try_from(epoch).ok() { Ok(()) } else { Err(Error::Fenced.into()) }
}

fn obey(desk: &mut Desk, now: Timestamp, order: &Order) -> Result<Result<Applied, Refusal>, Error> {
    let (answer, changes) = match &order.key {
        Some(claim) => evaluate::obey_once(desk, now, order, claim)?,
        None => match desk.job(&order.tenant, order.id)? {
            Some(job) => evaluate::obey(desk, now, &job, &order.command)?,
            None => return Ok(Err(Refusal::NotFound)),
        },
    };
    desk.carry_out(&order.tenant, changes)?;
    Ok(answer)
}

fn edit(
    desk: &mut Desk,
    now: Timestamp,
    order: &ScheduleOrder,
) -> Result<Result<Edited, ScheduleRefusal>, Error> {
    let (answer, changes) = evaluate::edit(desk, now, order.clone())?;
    desk.carry_out(&order.tenant, changes)?;
    Ok(answer)
}

/// Refuses the orders that meet something unreadable, and those alone: all that an order goes by is read before it changes
/// anything. The log is told why, the refusal cannot say it.
fn refuse_unreadable(
    orders: &[Order],
    answers: Vec<Result<Result<Applied, Refusal>, Error>>,
) -> Result<Answers, Error> {
    let mut told = Told::of_orders();
    let each = orders.iter().zip(answers).map(|(order, answer)| match answer {
        Err(Error::Corrupt(reason)) => {
            told.tell(order.tenant.as_str(), order.id, &reason);
            Ok(Err(Refusal::Unreadable))
        }
        answer => answer,
    });
    each.collect()
}

/// The same for orders for schedules, which go by jobs of theirs.
fn refuse_unreadable_edits(
    orders: &[ScheduleOrder],
    answers: Vec<Result<Result<Edited, ScheduleRefusal>, Error>>,
) -> Result<Edits, Error> {
    let mut told = Told::of_orders();
    let each = orders.iter().zip(answers).map(|(order, answer)| match answer {
        Err(Error::Corrupt(reason)) => {
            told.tell_of_schedule(order.tenant.as_str(), order.id, &reason);
            Ok(Err(ScheduleRefusal::Unreadable(reason)))
        }
        answer => answer,
    });
    each.collect()
}
