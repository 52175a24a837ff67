//! Batches that change something: orders for jobs, orders for schedules, keys. Each is one transaction:
//! read, decide in memory, write. Nothing is locked for deciding but schedules; a batch that lost a race finds at the
//! write that a row it goes by is gone, is undone, and begins again with what is there now.

use deadpool_postgres::ClientWrapper;
use tidewheel_core::job::Command;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::evaluate;
use tidewheel_store::{
    Applied, Edited, Error, IdempotencyClaim, KeyClaimed, Order, Refusal, ScheduleOrder, ScheduleRefusal,
};

use crate::connections::Lane;
use crate::desk::{Desk, JobKey};
use crate::fault::Trouble;
use crate::leases::Fences;
use crate::load::{Guess, load_guessed, load_missing};
use crate::sql;
use crate::store::{Database, OWNERSHIP};

/// How often a batch begins again. Every round somebody gets through, so this bounds a crowd, not a wait.
pub(crate) const ROUNDS_COUNT_MAX: usize = 200;
/// How often more is read before orders can be evaluated: jobs, their schedules, those schedules' jobs, and so on.
pub(crate) const READS_COUNT_MAX: usize = 64;

type Answers = Vec<Result<Applied, Refusal>>;
type Edits = Vec<Result<Edited, ScheduleRefusal>>;

/// Too many were faster.
pub(crate) fn crowded() -> Error {
    Error::Unavailable("too many change the same at once".to_owned())
}

/// Runs a round until it is not overtaken.
macro_rules! rounds {
    ($round:expr) => {{
        for _ in 0..ROUNDS_COUNT_MAX {
            match $round.await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Failed(error)) => return Err(error),
                Err(Trouble::Raced) => {}
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
    ) -> Result<Answers, Error> {
        rounds!(self.apply_round(now, epoch, orders))
    }

    async fn apply_round(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
    ) -> Result<Answers, Trouble> {
        // Only the scheduler claims; in a cluster it does so without an epoch for all.
        let is_claimed = orders.iter().any(|order| matches!(order.command, Command::Claim { .. }));
        let lane = if epoch.is_some() || is_claimed { Lane::Scheduler } else { Lane::Caller };
        let transaction = self.connections.begin(lane).await?;
        let outcome = self.apply_in(transaction.client()?, now, epoch, orders).await;
        transaction.end(outcome).await
    }

    async fn apply_in(
        &self,
        client: &ClientWrapper,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
    ) -> Result<Answers, Trouble> {
        if let Some(epoch) = epoch {
            fence(client, epoch).await?;
        }
        let fences = Fences::read(client, self.shards, orders).await?;
        let mut desk = Desk::default();
        let guesses: Vec<(JobKey, Guess)> =
            orders.iter().map(|order| ((order.tenant.clone(), order.id), guess_of(&order.command))).collect();
        load_guessed(client, self.shards, &mut desk, &guesses).await?;
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answers: Vec<_> = orders
                .iter()
                .map(|order| {
                    if fences.forbid(order) { Ok(Err(Refusal::Fenced)) } else { obey(&mut desk, now, order) }
                })
                .collect();
            if desk.missing.is_empty() {
                let answers = answers.into_iter().collect::<Result<Answers, Error>>()?;
                self.write(client, now, &desk).await?;
                return Ok(answers);
            }
            load_missing(client, self.shards, &self.rules, &mut desk).await?;
        }
        Err(crowded().into())
    }

    pub(crate) async fn edit_batch(&self, now: Timestamp, orders: &[ScheduleOrder]) -> Result<Edits, Error> {
        rounds!(self.edit_round(now, orders))
    }

    async fn edit_round(&self, now: Timestamp, orders: &[ScheduleOrder]) -> Result<Edits, Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let outcome = self.edit_in(transaction.client()?, now, orders).await;
        transaction.end(outcome).await
    }

    async fn edit_in(
        &self,
        client: &ClientWrapper,
        now: Timestamp,
        orders: &[ScheduleOrder],
    ) -> Result<Edits, Trouble> {
        let mut desk = Desk::default();
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answers: Vec<_> = orders.iter().map(|order| edit(&mut desk, now, order)).collect();
            if desk.missing.is_empty() {
                let answers = answers.into_iter().collect::<Result<Edits, Error>>()?;
                self.write(client, now, &desk).await?;
                return Ok(answers);
            }
            load_missing(client, self.shards, &self.rules, &mut desk).await?;
        }
        Err(crowded().into())
    }

    pub(crate) async fn claim_one_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        rounds!(self.key_round(now, tenant, claim))
    }

    async fn key_round(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let outcome = self.key_in(transaction.client()?, now, tenant, claim).await;
        transaction.end(outcome).await
    }

    async fn key_in(
        &self,
        client: &ClientWrapper,
        now: Timestamp,
        tenant: &Tenant,
        claim: &IdempotencyClaim,
    ) -> Result<KeyClaimed, Trouble> {
        let mut desk = Desk::default();
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answer = evaluate::claim_key(&mut desk, now, tenant, claim.clone());
            if desk.missing.is_empty() {
                let (answer, changes) = answer?;
                desk.carry_out(tenant, changes);
                self.write(client, now, &desk).await?;
                return Ok(answer);
            }
            load_missing(client, self.shards, &self.rules, &mut desk).await?;
        }
        Err(crowded().into())
    }
}

/// Refuses a batch of an owner that is no longer, and holds the ownership until the batch is committed.
async fn fence(client: &ClientWrapper, epoch: u64) -> Result<(), Trouble> {
    let statement = client.prepare_cached(sql::FENCE).await?;
    let row = client.query_opt(&statement, &[&OWNERSHIP]).await?;
    let newest: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
    if newest == i64::try_from(epoch).ok() { Ok(()) } else { Err(Error::Fenced.into()) }
}

/// What the job of an order is probably doing.
const fn guess_of(command: &Command) -> Guess {
    match command {
        Command::Claim { .. } => Guess::Waiting,
        Command::Heartbeat { .. }
        | Command::Detach { .. }
        | Command::Succeed { .. }
        | Command::Fail { .. }
        | Command::Snooze { .. }
        | Command::Release { .. }
        | Command::Abandon { .. }
        | Command::LeaseOver { .. }
        | Command::Lost { .. }
        | Command::WorkerGone { .. } => Guess::Running,
        Command::Cancel
        | Command::RunNow
        | Command::Amend { .. }
        | Command::Rerun { .. }
        | Command::Replay { .. }
        | Command::Discard => Guess::Unknown,
    }
}

fn obey(desk: &mut Desk, now: Timestamp, order: &Order) -> Result<Result<Applied, Refusal>, Error> {
    let (answer, changes) = match &order.key {
        Some(claim) => evaluate::obey_once(desk, now, order, claim)?,
        None => match desk.job(&order.tenant, order.id)? {
            Some(job) => evaluate::obey(desk, now, &job, &order.command)?,
            None => return Ok(Err(Refusal::NotFound)),
        },
    };
    desk.carry_out(&order.tenant, changes);
    Ok(answer)
}

fn edit(
    desk: &mut Desk,
    now: Timestamp,
    order: &ScheduleOrder,
) -> Result<Result<Edited, ScheduleRefusal>, Error> {
    let (answer, changes) = evaluate::edit(desk, now, order.clone())?;
    desk.carry_out(&order.tenant, changes);
    Ok(answer)
}
