//! Submissions. Those of many callers share transactions: while one commits, the next gather, so the busier the store
//! the more of them share one sync of the database's log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, HeldKey, KeyUse, OnConflict, Submission, Submitted};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::agenda::Places;
use crate::apply::{READS_COUNT_MAX, ROUNDS_COUNT_MAX, crowded};
use crate::batch::Written;
use crate::connections::Lane;
use crate::desk::{Desk, JobKey, Named, StoredKey};
use crate::fault::Trouble;
use crate::load::{load_jobs, load_keys, load_missing};
use crate::store::Database;

/// Submissions that may wait; more wait at the door.
const QUEUE_COUNT_MAX: usize = 1_024;
/// A transaction takes in no further submission beyond so many jobs.
const GROUP_JOBS_COUNT_MAX: usize = 2_000;
/// Transactions under way at a time: while one waits for the disk, another is written.
const WRITERS_COUNT: usize = 3;

/// What one caller submits.
pub(crate) struct Submitting {
    pub(crate) now: Timestamp,
    pub(crate) jobs: Vec<Submission>,
    pub(crate) on_conflict: OnConflict,
}

type Answer = Result<Vec<Submitted>, Error>;
type Queued = (Submitting, oneshot::Sender<Answer>);

/// Where submissions wait for a transaction. The writers end when it is dropped.
pub(crate) struct Submissions(mpsc::Sender<Queued>);

impl Submissions {
    pub(crate) fn start(database: &Arc<Database>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_COUNT_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..WRITERS_COUNT {
            tokio::spawn(write_groups(Arc::clone(database), Arc::clone(&receiver)));
        }
        Self(sender)
    }

    pub(crate) async fn submit(&self, submitting: Submitting) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.0.send((submitting, reply)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Unavailable("a writer has stopped".to_owned()))?
    }
}

async fn write_groups(database: Arc<Database>, receiver: Arc<Mutex<mpsc::Receiver<Queued>>>) {
    while let Some(group) = next_group(&receiver).await {
        let (group, replies): (Vec<Submitting>, Vec<_>) = group.into_iter().unzip();
        let answers = match database.connections.bounded(database.submit_group(&group)).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // What is wrong may be wrong with one of them only.
            Err(Error::Corrupt(_)) if group.len() > 1 => one_by_one(&database, group).await,
            Err(error) => vec![Err(error); group.len()],
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // Nobody may be listening any more; what was written stays written.
            drop(reply.send(answer));
        }
    }
}

async fn one_by_one(database: &Database, group: Vec<Submitting>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(group.len());
    for submitting in group {
        let alone = database.connections.bounded(database.submit_group(std::slice::from_ref(&submitting)));
        answers.push(alone.await.map(|mut answers| answers.pop().unwrap_or_default()));
    }
    answers
}

/// All that wait, up to the bound; waits for the first.
async fn next_group(receiver: &Mutex<mpsc::Receiver<Queued>>) -> Option<Vec<Queued>> {
    let mut receiver = receiver.lock().await;
    let first = receiver.recv().await?;
    let mut count = first.0.jobs.len();
    let mut group = vec![first];
    while count < GROUP_JOBS_COUNT_MAX {
        let Ok(next) = receiver.try_recv() else { break };
        count += next.0.jobs.len();
        group.push(next);
    }
    Some(group)
}

impl Database {
    async fn submit_group(&self, group: &[Submitting]) -> Result<Vec<Vec<Submitted>>, Trouble> {
        let first_looking = match self.submit_unseen(group).await {
            // It was begun, and came to nothing: all is looked at.
            Some(Err(Trouble::Raced)) => 1,
            Some(answered) => return answered,
            None => 0,
        };
        for round in first_looking..ROUNDS_COUNT_MAX {
            let transaction = self.connections.begin(Lane::Caller).await?;
            let mut desk = Desk::of_round(round);
            let outcome = self.submit_in(transaction.client()?, &mut desk, round, group).await;
            let ended = transaction.end(outcome).await;
            self.note(&desk, newest(group), ended.is_ok());
            match ended {
                Err(Trouble::Raced) => {}
                answered => return answered,
            }
        }
        Err(crowded())
    }

    /// A group that can be judged without a look at the database: ids that nobody else has, and
    /// keys that are taken to be free. It is written in one round trip; a key that is not free is
    /// refused by its constraint, and so is the whole group.
    async fn submit_unseen(&self, group: &[Submitting]) -> Option<Result<Vec<Vec<Submitted>>, Trouble>> {
        let mut desk = Desk::of_round(0);
        for Submission { job, key, fresh } in group.iter().flat_map(|submitting| &submitting.jobs) {
            if !fresh || (key.is_some() && self.keys_repeat.load(Ordering::Relaxed)) {
                return None;
            }
            desk.add_job((job.tenant.clone(), job.id), None);
            if let Some(claim) = key {
                desk.add_key((job.tenant.clone(), Arc::clone(&claim.key)), None);
            }
        }
        desk.begin();
        let answers: Result<Vec<_>, _> =
            group.iter().map(|submitting| take_all_in(&mut desk, submitting)).collect();
        let answers = answers.ok().filter(|_| desk.missing.is_empty())?;
        let now = newest(group);
        // The second writes what the first took to be there.
        for places in [Places::Known, Places::Any] {
            let batches = self.batches(now, places, &desk);
            if batches.is_empty() || batches.iter().any(|batch| batch.expected.is_some()) {
                return None;
            }
            let written = self.connections.write_at_once(Lane::Caller, &batches).await;
            if matches!(written, Ok(Written::Refuted)) {
                continue;
            }
            self.note(&desk, now, written.is_ok());
            return Some(written.map(|_| answers));
        }
        None
    }

    async fn submit_in(
        &self,
        client: &ClientWrapper,
        desk: &mut Desk,
        round: usize,
        group: &[Submitting],
    ) -> Result<Vec<Vec<Submitted>>, Trouble> {
        let mut known = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for Submission { job, key, fresh } in group.iter().flat_map(|submitting| &submitting.jobs) {
            // Nobody else has a fresh id; but if the batch failed for whatever reason, that is looked at, too.
            if *fresh && round == 0 {
                desk.add_job((job.tenant.clone(), job.id), None);
            } else {
                known.insert((job.tenant.clone(), job.id));
            }
            keys.extend(key.as_ref().map(|claim| (job.tenant.clone(), Arc::clone(&claim.key))));
        }
        load_jobs(client, desk, known).await?;
        let has_keys = !keys.is_empty();
        load_keys(client, desk, keys).await?;
        if has_keys {
            self.keys_repeat.store(desk.keys.values().any(|slot| slot.stored.is_some()), Ordering::Relaxed);
        }
        for _ in 0..READS_COUNT_MAX {
            desk.begin();
            let answers: Vec<_> = group.iter().map(|submitting| take_all_in(desk, submitting)).collect();
            if desk.missing.is_empty() {
                let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
                self.write(client, newest(group), desk).await?;
                return Ok(answers);
            }
            load_missing(client, &self.rules, desk).await?;
        }
        Err(crowded())
    }
}

/// The latest of the clocks of a group.
fn newest(group: &[Submitting]) -> Timestamp {
    group.iter().map(|submitting| submitting.now).max().unwrap_or_default()
}

/// How to take a submission back.
struct Undo {
    job: JobKey,
    key: Option<(Named, Option<StoredKey>)>,
}

fn take_all_in(desk: &mut Desk, submitting: &Submitting) -> Result<Vec<Submitted>, Error> {
    let Submitting { now, jobs, on_conflict } = submitting;
    let mut undos = Vec::new();
    // All are looked at, whatever is missing for one, so that all that is missing is read at once.
    let answers: Vec<_> = jobs.iter().map(|submission| take_in(desk, *now, submission, &mut undos)).collect();
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let conflicted = answers.iter().any(|answer| matches!(answer, Submitted::Conflict(_)));
    if conflicted && *on_conflict == OnConflict::KeepNone {
        for Undo { job, key } in undos.into_iter().rev() {
            if let Some(slot) = desk.jobs.get_mut(&job) {
                slot.now = None;
                slot.changed = false;
            }
            if let Some((name, before)) = key {
                desk.set_key(name, before);
            }
        }
    }
    Ok(answers)
}

fn take_in(
    desk: &mut Desk,
    now: Timestamp,
    submission: &Submission,
    undos: &mut Vec<Undo>,
) -> Result<Submitted, Error> {
    let Submission { job, key, .. } = submission;
    if desk.job(&job.tenant, job.id)?.is_some() {
        return Ok(Submitted::New);
    }
    let mut undo = Undo { job: (job.tenant.clone(), job.id), key: None };
    if let Some(claim) = key {
        let name = (job.tenant.clone(), Arc::clone(&claim.key));
        match desk.held(now, &name)? {
            Some(HeldKey { used_for: KeyUse::Job(id), fingerprint }) if fingerprint == claim.fingerprint => {
                return Ok(Submitted::Duplicate(id));
            }
            Some(held) => return Ok(Submitted::Conflict(held.used_for)),
            None => {}
        }
        let before = desk.take_key(&job.tenant, KeyUse::Job(job.id), claim.clone());
        undo.key = Some((name, before));
    }
    desk.set_job(undo.job.clone(), Some(Arc::new(job.clone())));
    undos.push(undo);
    Ok(Submitted::New)
}
