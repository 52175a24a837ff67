//! Judging requests: everything a submission needs is read first, which may fail and then leaves no trace; what
//! follows cannot fail, so it is in the group as a whole or not at all. So it is with each single order, too.

use std::sync::Arc;

use tidewheel_core::glance::{self, HANDFUL};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Change, Command, Job, transition};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Applied, Checkpoint, Error, HeldKey, KeyUse, OnConflict, Order, Refusal, Submitted};

use super::group::{Group, PointerSlot, Slot};
use super::{Answer, Arrival, Committer, Judgements, Request};
use crate::kv::Keyspace;
use crate::place::{JobKey, JobTag, Place};
use crate::shared::{lacking_room, locate, read_error};
use crate::unreadable::unreadable_job;
use crate::view::{Known, UnderWay};
use crate::{checkpoints, keys, pointers};

/// No slot has this number; it stands for that of a job that cannot be read.
const UNKNOWN: usize = usize::MAX;

impl Committer {
    /// Judges one request into the group; one that fails is answered at once.
    pub(super) fn judge(&mut self, group: &mut Group, request: Request) {
        let poisoned = self.disk.shared.poisoned();
        let refused = |error: &Option<Error>| error.clone().map_or(Ok(()), Err);
        group.now = request.now().map_or(group.now, |now| group.now.max(now));
        match request {
            Request::Submit { now, arrivals, on_conflict, reply } => {
                let outcome =
                    refused(&poisoned).and_then(|()| self.submit(group, now, arrivals, on_conflict));
                group.answer(reply, outcome, Answer::Submitted);
            }
            Request::Apply { now, epoch, orders, reply } => {
                let outcome = refused(&poisoned).and_then(|()| self.apply(group, now, epoch, orders));
                group.answer(reply, outcome, Answer::Applied);
            }
            Request::OpenEpoch { reply } => match poisoned {
                Some(error) => drop(reply.send(Err(error))),
                None => {
                    self.epoch += 1;
                    group.meta.push((keys::meta::EPOCH.to_vec(), self.epoch.to_be_bytes().to_vec()));
                    group.answers.push(Answer::Epoch(reply, self.epoch));
                }
            },
            Request::SaveCheckpoints { checkpoints, reply } => match poisoned {
                Some(error) => drop(reply.send(Err(error))),
                None => {
                    group.meta.extend(checkpoints.iter().map(encode_checkpoint));
                    group.answers.push(Answer::Done(reply));
                }
            },
            Request::EditSchedules { now, orders, reply } => {
                let outcome = refused(&poisoned).and_then(|()| self.edit_schedules(group, now, orders));
                group.answer(reply, outcome, Answer::Edited);
            }
            Request::PutCalendar { tenant, name, dates, reply } => match poisoned {
                Some(error) => drop(reply.send(Err(error))),
                None => {
                    self.forget_calendar(&(tenant.clone(), Arc::clone(&name)));
                    Self::put_calendar(group, tenant, name, dates);
                    group.answers.push(Answer::Done(reply));
                }
            },
            Request::ClaimKey { now, tenant, claim, reply } => {
                let outcome = refused(&poisoned).and_then(|()| self.claim_key(group, now, &tenant, claim));
                group.answer(reply, outcome, Answer::KeyClaimed);
            }
            Request::PutDocument { key, bytes, if_version, reply } => {
                let outcome =
                    refused(&poisoned).and_then(|()| self.put_document(group, &key, bytes, if_version));
                group.answer(reply, outcome, Answer::Put);
            }
            Request::NoteZones { identity, reply } => match poisoned {
                Some(error) => drop(reply.send(Err(error))),
                None => {
                    let identity = identity.as_deref().unwrap_or_default();
                    group.meta.push((keys::meta::ZONES.to_vec(), identity.as_bytes().to_vec()));
                    group.answers.push(Answer::Done(reply));
                }
            },
            Request::AppendActs { acts, reply, .. } => match poisoned {
                Some(error) => drop(reply.send(Err(error))),
                None => {
                    group.bytes += acts.iter().map(|act| act.content.len() + 128).sum::<usize>();
                    group.acts.extend(acts);
                    group.answers.push(Answer::Done(reply));
                }
            },
            Request::DropHistory { .. } | Request::DropAudit { .. } | Request::Close { .. } => {}
        }
    }

    fn submit(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        arrivals: Vec<Arrival>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        self.check_room()?;
        group.reserve(arrivals.len());
        for arrival in arrivals.iter().filter(|arrival| arrival.fresh) {
            group.find_or_add(arrival.key.tag(), || Slot::absent(arrival.key.clone()));
        }
        let slots = self.load(group, arrivals.iter().map(|arrival| (&arrival.key.tenant, arrival.key.id)))?;
        for arrival in &arrivals {
            if let Some(claim) = &arrival.claim {
                self.load_key(group, now, &arrival.key.tenant, &claim.key)?;
            }
        }
        let mut undo = Vec::new();
        let answers: Vec<_> = arrivals
            .into_iter()
            .zip(slots)
            .map(|(arrival, slot)| take_in(group, now, arrival, slot, &mut undo))
            .collect();
        let conflicted = answers.iter().any(|answer| matches!(answer, Submitted::Conflict(_)));
        if conflicted && on_conflict == OnConflict::KeepNone {
            for undo in undo.into_iter().rev() {
                take_back(group, undo);
            }
        }
        Ok(answers)
    }

    fn apply(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Judgements, Error> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Err(Error::Fenced);
        }
        group.reserve(orders.len());
        let jobs = orders.iter().map(|order| (&order.tenant, order.id));
        let slots = self.load_or(group, jobs, |key, reason| {
            tell_of_unreadable(&key.tenant, key.id, &reason);
            Ok(())
        })?;
        let mut answers = Vec::with_capacity(orders.len());
        for (orders, slots) in orders.chunks(HANDFUL).zip(slots.chunks(HANDFUL)) {
            let jobs = slots.iter().filter_map(|slot| group.slots.get(*slot)?.job.as_ref());
            glance::over(jobs.clone().map(glance::job));
            if let Some(Order { command: Command::Claim { .. }, .. }) = orders.first() {
                self.disk.shared.ahead.glance(jobs);
            } else {
                // Most of them end their jobs, whose records are then written.
                glance::over(jobs.map(glance::payload));
            }
            for (order, slot) in orders.iter().zip(slots) {
                answers.push(match self.apply_one(group, now, order, *slot) {
                    // All that an order needs is read before it changes anything.
                    Err(Error::Corrupt(reason)) => {
                        tell_of_unreadable(&order.tenant, order.id, &reason);
                        Err(Refusal::Unreadable)
                    }
                    answer => answer?,
                });
            }
        }
        Ok(answers)
    }

    fn apply_one(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        order: &Order,
        slot: usize,
    ) -> Result<Result<Applied, Refusal>, Error> {
        if slot == UNKNOWN {
            return Ok(Err(Refusal::Unreadable));
        }
        if let Some(claim) = &order.key {
            return self.obey_once(group, now, order, claim);
        }
        let job = group.slots.get(slot).and_then(|slot| slot.job.as_ref());
        match job.filter(|job| job.spec.occurrence.is_some()).cloned() {
            Some(job) if self.concerns_schedule(group, &job, &order.command) => {
                self.obey_occurrence(group, now, order, &job)
            }
            Some(_) | None => Ok(obey(group, now, order, slot)),
        }
    }

    /// Makes sure the group knows these jobs as they are; says which slot is whose.
    pub(super) fn load<'k>(
        &mut self,
        group: &mut Group,
        jobs: impl Iterator<Item = (&'k Tenant, JobId)> + Clone,
    ) -> Result<Vec<usize>, Error> {
        self.load_or(group, jobs, |key, reason| Err(unreadable_job(&key.tenant, key.id, reason)))
    }

    /// The same; of each job that cannot be read `unreadable` is told, and unless that fails, [`UNKNOWN`] stands for its slot.
    fn load_or<'k>(
        &mut self,
        group: &mut Group,
        jobs: impl Iterator<Item = (&'k Tenant, JobId)> + Clone,
        mut unreadable: impl FnMut(&JobKey, String) -> Result<(), Error>,
    ) -> Result<Vec<usize>, Error> {
        self.settle_if(|writing| jobs.clone().any(|(tenant, id)| writing.knows(JobTag::new(tenant, id))));
        let mut on_disk = Vec::new();
        let mut slots = vec![UNKNOWN; jobs.clone().count()];
        let wanted = jobs.zip(&mut slots);
        let wanted =
            wanted.map(|((tenant, id), slot)| (JobTag::new(tenant, id), (tenant, id, slot))).collect();
        self.disk.shared.view.look_up(wanted, |tag, (tenant, id, slot), known| {
            let (job, under_way) = match known {
                Known::UnderWay(under_way) => (under_way.whole().map(Arc::clone), Some(under_way)),
                Known::Waiting(job) => (Some(job), None),
                Known::Nothing => (None, None),
            };
            *slot = match job {
                Some(job) => group.find_or_add(tag, || Slot::stored(job, under_way)),
                None => match group.find(tag) {
                    Some(known) => known,
                    None => {
                        let key = JobKey { id, tenant: tenant.clone() };
                        return on_disk.push((key, under_way.cloned(), slot));
                    }
                },
            };
        });
        let days = self.disk.shared.days();
        for (key, under_way, slot) in on_disk {
            if let Some(known) = group.find(key.tag()) {
                *slot = known;
                continue;
            }
            let get = |keyspace: Keyspace, key: &[u8]| self.disk.kv.get(keyspace, key);
            let stored = locate(get, self.disk.shared.shards, &days, &key);
            let job = match stored.and_then(|stored| as_it_is(key.id, stored, under_way.as_ref())) {
                Ok(job) => job,
                Err(Error::Corrupt(reason)) => {
                    unreadable(&key, reason)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            *slot = group.find_or_add(key.tag(), || match job {
                Some(job) => Slot::stored(job, under_way.as_ref()),
                None => Slot::absent(key),
            });
        }
        Ok(slots)
    }

    /// Makes sure the group knows this job as it is; says which slot is its own.
    pub(super) fn load_one(&mut self, group: &mut Group, tenant: &Tenant, id: JobId) -> Result<usize, Error> {
        match group.find(JobTag::new(tenant, id)) {
            Some(slot) => Ok(slot),
            None => Ok(self.load(group, std::iter::once((tenant, id)))?.first().copied().unwrap_or(UNKNOWN)),
        }
    }

    pub(super) fn load_pointer(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        tenant: &Tenant,
        key: &Arc<str>,
    ) -> Result<(), Error> {
        let name = (tenant.clone(), Arc::clone(key));
        if group.pointers.contains_key(&name) {
            return Ok(());
        }
        self.settle_if(|writing| writing.pointers.contains_key(&name));
        let days = self.disk.shared.days();
        let get = |keyspace: Keyspace, key: &[u8]| self.disk.kv.get(keyspace, key).map_err(read_error);
        let pointer = pointers::find(get, &days, now, tenant, key)?;
        group.pointers.insert(name, PointerSlot { pointer, is_set: false });
        Ok(())
    }

    /// Refuses new jobs while the device is nearly full; what is under way can still be finished.
    pub(super) fn check_room(&self) -> Result<(), Error> {
        lacking_room(&*self.disk.kv).map_or(Ok(()), |reason| Err(Error::Full(reason)))
    }
}

/// The job by its record on disk and its attempt under way, which may have left it to the record what the payload is.
fn as_it_is(id: JobId, stored: Option<Job>, under_way: Option<&UnderWay>) -> Result<Option<Arc<Job>>, Error> {
    let Some(under_way) = under_way else { return Ok(stored.map(Arc::new)) };
    let whole = stored.and_then(|stored| under_way.completed(&stored));
    whole.map(Some).ok_or_else(|| Error::Corrupt(format!("{id} runs, and its record is another one's")))
}

/// Says in the log why an order is refused: the refusal itself cannot.
fn tell_of_unreadable(tenant: &Tenant, id: JobId, reason: &str) {
    tracing::error!(%tenant, job_id = %id, %reason, "an order is refused: what it goes by cannot be read");
}

/// How to take a submission back.
struct Undo {
    slot: usize,
    pointer: Option<((Tenant, Arc<str>), PointerSlot)>,
}

fn take_in(
    group: &mut Group,
    now: Timestamp,
    arrival: Arrival,
    at: usize,
    undo: &mut Vec<Undo>,
) -> Submitted {
    let Arrival { key, job, record, claim, .. } = arrival;
    if group.slots.get(at).is_none_or(|slot| slot.job.is_some()) {
        return Submitted::New;
    }
    let mut pointer_before = None;
    if let Some(claim) = claim {
        let name = (key.tenant, claim.key.clone());
        match group.held(now, &name) {
            Some(HeldKey { used_for: KeyUse::Job(id), fingerprint }) if fingerprint == claim.fingerprint => {
                return Submitted::Duplicate(id);
            }
            Some(there) => return Submitted::Conflict(there.used_for),
            None => {}
        }
        pointer_before = Some(group.take_key(name.0, claim, KeyUse::Job(job.id)));
    }
    group.bytes += record.len() + 64;
    if let Some(slot) = group.slots.get_mut(at) {
        slot.rest = Some(Some((Place::of(&job), record)));
        slot.job = Some(Arc::new(job));
    }
    undo.push(Undo { slot: at, pointer: pointer_before });
    Submitted::New
}

fn take_back(group: &mut Group, undo: Undo) {
    if let Some(slot) = group.slots.get_mut(undo.slot) {
        slot.job = None;
        // A job that was there before the group went in it: it stays gone.
        slot.rest = slot.start.map(|_| None);
    }
    if let Some((name, before)) = undo.pointer {
        group.pointers.insert(name, before);
    }
}

fn obey(group: &mut Group, now: Timestamp, order: &Order, at: usize) -> Result<Applied, Refusal> {
    let slot = group.slots.get_mut(at).ok_or(Refusal::NotFound)?;
    let job = slot.job.as_ref().ok_or(Refusal::NotFound)?;
    match transition(job, &order.command, now)? {
        Change::To(next) => Ok(Applied::alone(group.put(at, next), true)),
        Change::Nothing => Ok(Applied::alone(Arc::clone(job), false)),
        Change::Gone => {
            let job = Arc::clone(job);
            group.remove(at);
            Ok(Applied::alone(job, true))
        }
    }
}

fn encode_checkpoint(checkpoint: &Checkpoint) -> (Vec<u8>, Vec<u8>) {
    (keys::meta::checkpoint(checkpoint.shard), checkpoints::encode(checkpoint))
}
