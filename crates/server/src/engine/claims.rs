//! Writes claims: the durable, fenced mark that an attempt is starting. Nothing is delivered before it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::glance;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, Rejection, State, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::trace::TraceId;
use tidewheel_store::{Applied, Error, Order, Refusal};

use super::ready::Taker;
use super::scheduler::{Message, push_lease_ms};
use super::schedules::Beside;
use super::{Shared, outcomes};

/// A job that is to be claimed: what is asked of it until then. The job itself is let go of, so that a store that has just read
/// it has it alone, and can make of it what it becomes.
pub(super) struct Pick {
    pub(super) tenant: Tenant,
    pub(super) id: JobId,
    /// Its last attempt.
    attempt: u32,
    /// How long a push of it may take.
    push_lease_ms: i64,
    schedule_id: Option<ScheduleId>,
    /// It was found to make up for a missed time before.
    pub(super) is_catch_up: bool,
    pub(super) trace_id: Option<TraceId>,
}

impl Pick {
    fn of(job: &Job) -> Self {
        let occurrence = job.spec.occurrence.as_ref();
        Self {
            tenant: job.tenant.clone(),
            id: job.id,
            attempt: job.status.attempt,
            push_lease_ms: push_lease_ms(job),
            schedule_id: occurrence.map(|occurrence| occurrence.schedule_id),
            is_catch_up: occurrence.is_some_and(|occurrence| occurrence.catch_up),
            trace_id: job.spec.trace.as_ref().map(|trace| trace.trace_id),
        }
    }

    /// The token of the attempt that a claim makes.
    fn token(&self, epoch: u64) -> Token {
        Token::new(epoch, self.attempt + 1)
    }
}

/// Jobs to be claimed together, for the pusher or for takers.
pub(super) struct Claim {
    pub(super) picks: Vec<Pick>,
    /// Each has so many of the picks, in their order. None: all are for the pusher.
    pub(super) takers: Vec<(Taker, usize)>,
    /// Their time is over: what is granted all the same, to a clock that was set back, is for nobody.
    pub(super) is_over: bool,
}

impl Claim {
    /// A claim of these jobs.
    pub(super) fn new(picks: Vec<Arc<Job>>, takers: Vec<(Taker, usize)>, is_over: bool) -> Self {
        Self { picks: glance::each(picks, glance::job).map(|job| Pick::of(&job)).collect(), takers, is_over }
    }

    /// For each pick, who takes it.
    fn runners(&self) -> impl Iterator<Item = Option<&Taker>> {
        let takers = self.takers.iter().flat_map(|(taker, count)| std::iter::repeat_n(Some(taker), *count));
        takers.chain(std::iter::repeat(None))
    }
}

/// What became of one claim.
pub(super) enum Granted {
    /// The attempt may start.
    Running(Arc<Job>),
    /// The job ended instead: its time was over.
    Ended(Arc<Job>),
    /// Not granted.
    Refused(Refusal),
}

impl Granted {
    /// A look at the job.
    pub(super) fn glance(&self) -> bool {
        match self {
            Self::Running(job) | Self::Ended(job) => glance::job(job),
            Self::Refused(_) => false,
        }
    }
}

/// The name push deliveries run under.
const PUSH_WORKER: &str = "push";
/// Wait before a claim whose outcome is unknown is looked into.
const RETRY_WAIT_MS: u64 = 100;

fn orders(epochs: &[u64], claim: &Claim) -> Vec<Order> {
    let pusher: Arc<str> = Arc::from(PUSH_WORKER);
    let order = |((pick, epoch), taker): ((&Pick, &u64), Option<&Taker>)| Order {
        tenant: pick.tenant.clone(),
        id: pick.id,
        command: Command::Claim {
            epoch: *epoch,
            worker: Arc::clone(taker.map_or(&pusher, |taker| &taker.worker)),
            lease_ms: taker.map_or(pick.push_lease_ms, |taker| taker.lease_ms),
            detached: taker.is_some(),
        },
        key: None,
    };
    claim.picks.iter().zip(epochs).zip(claim.runners()).map(order).collect()
}

pub(super) async fn write(shared: Arc<Shared>, claim: Claim) {
    let (mut repeated, mut beside) = (false, Beside::default());
    // The same for every try, so that a try that took effect is known again. One whose shard was lost is refused.
    let territory = &shared.territory;
    let epoch_of = |pick: &Pick| territory.epoch_of(territory.shard_of(&pick.tenant, pick.id)).unwrap_or(0);
    let epochs: Vec<u64> = claim.picks.iter().map(epoch_of).collect();
    let fence = epochs.first().copied().filter(|_| !shared.territory.is_shared());
    let granted = loop {
        let orders = orders(&epochs, &claim);
        match shared.store.apply(shared.clock.now(), fence, orders).await {
            Ok(results) => match settle(&shared, &epochs, &claim, results, (repeated, &mut beside)).await {
                // The same again: what is claimed by now will be found to be ours.
                Err(error) if error.is_retryable() => {
                    repeated = true;
                    shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
                }
                granted => break granted,
            },
            // Others may have these shards by now. The jobs are read again by whoever takes them up.
            Err(error) if error.is_retryable() && !is_any_held(&shared, &epochs, &claim) => {
                tracing::warn!(%error, "claims could not be written; their shards are not served here any more");
                break Ok(claim.picks.iter().map(|_| Granted::Refused(Refusal::Away)).collect());
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "claims could not be written; trying again");
                repeated = true;
                shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
            }
            Err(error) => break Err(error),
        }
    };
    if repeated && claim.picks.iter().any(|pick| pick.schedule_id.is_some()) {
        // What an earlier try stored beside the claims is not announced by anybody.
        shared.hint_lost.store(true, Ordering::SeqCst);
    }
    let undone = granted.as_ref().map(|granted| undoing(&epochs, &claim, granted)).unwrap_or_default();
    shared.tell(Message::Claimed { claim, granted });
    shared.tell_beside(beside);
    if !undone.is_empty() {
        outcomes::write(&shared, undone).await;
    }
}

fn is_any_held(shared: &Shared, epochs: &[u64], claim: &Claim) -> bool {
    let territory = &shared.territory;
    let mut pairs = claim.picks.iter().zip(epochs);
    pairs.any(|(pick, epoch)| territory.epoch_of(territory.shard_of(&pick.tenant, pick.id)) == Some(*epoch))
}

/// Hands attempts back that nobody will make: those whose claims may have been written, unheard, in a database that is away.
fn undoing(epochs: &[u64], claim: &Claim, granted: &[Granted]) -> Vec<Order> {
    let each = claim.picks.iter().zip(epochs).zip(granted);
    let unheard = each
        .filter(|((_, epoch), granted)| **epoch > 0 && matches!(granted, Granted::Refused(Refusal::Away)));
    unheard
        .map(|((pick, epoch), _)| Order {
            tenant: pick.tenant.clone(),
            id: pick.id,
            command: Command::Release { token: pick.token(*epoch) },
            key: None,
        })
        .collect()
}

async fn settle(
    shared: &Shared,
    epochs: &[u64],
    claim: &Claim,
    results: Vec<Result<Applied, Refusal>>,
    (repeated, beside): (bool, &mut Beside),
) -> Result<Vec<Granted>, Error> {
    let mut granted = Vec::with_capacity(results.len());
    for ((pick, epoch), mut result) in claim.picks.iter().zip(epochs).zip(results) {
        if let Ok(applied) = &mut result {
            beside.add(applied);
        }
        granted.push(match result {
            Ok(applied) if applied.job.status.state == State::Running => Granted::Running(applied.job),
            Ok(applied) => Granted::Ended(applied.job),
            // An earlier try may have taken effect although its answer was lost.
            Err(Refusal::Rejected(Rejection::Running)) if repeated => {
                let found = shared.store.get(&pick.tenant, vec![pick.id]).await?.pop().flatten();
                let ours = pick.token(*epoch);
                match found.filter(|found| found.status.state == State::Running && found.status.token == ours)
                {
                    Some(found) => Granted::Running(Arc::new(found)),
                    None => Granted::Refused(Refusal::Rejected(Rejection::Running)),
                }
            }
            Err(refusal) => {
                if refusal == Refusal::Rejected(Rejection::NotDue) {
                    match next_of_held(shared, pick).await {
                        Ok(next) => next.into_iter().for_each(|next| beside.add_job(next)),
                        // One that cannot be read will be no more readable in a sweep.
                        Err(Error::Corrupt(_)) => {}
                        Err(_) => shared.hint_lost.store(true, Ordering::SeqCst),
                    }
                }
                Granted::Refused(refusal)
            }
        });
    }
    Ok(granted)
}

/// An occurrence that has to wait for an earlier run is refused as not due, but its schedule goes on: the
/// occurrence after it is in the store, and a refusal cannot say so.
async fn next_of_held(shared: &Shared, pick: &Pick) -> Result<Option<Job>, Error> {
    let Some(schedule_id) = pick.schedule_id else { return Ok(None) };
    let schedule = shared.store.schedules(&pick.tenant, vec![schedule_id]).await?.pop().flatten();
    match schedule.and_then(|schedule| schedule.next) {
        Some(next) => Ok(shared.store.get(&pick.tenant, vec![next.job_id]).await?.pop().flatten()),
        None => Ok(None),
    }
}
