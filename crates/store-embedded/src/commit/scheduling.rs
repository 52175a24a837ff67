//! Judging what has to do with schedules: orders for the jobs they make, orders for themselves, calendars.

use std::sync::Arc;

use smallvec::SmallVec;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::evaluate::{self, Books, Changes, JobChange, ScheduleChange};
use tidewheel_store::{
    Applied, Edited, Error, HeldKey, IdempotencyClaim, KeyClaimed, KeyUse, Order, Refusal, ScheduleCommand,
    ScheduleOrder, ScheduleRefusal,
};

use super::Committer;
use super::group::{Group, Slot};
use crate::kv::Keyspace;
use crate::place::{JobTag, ScheduleKey, ScheduleTag};
use crate::record::Unreadable;
use crate::schedule_record::{self, Stored};
use crate::shared::{read_error, unreadable};
use crate::{keys, lean, rules, versioned};

pub(crate) type Edits = Vec<Result<Edited, ScheduleRefusal>>;

/// Calendars kept in memory; when there are more, all are forgotten.
const CALENDARS_KNOWN_COUNT_MAX: usize = 256;

impl Committer {
    /// Obeys an order for a job that a schedule made.
    pub(super) fn obey_occurrence(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        order: &Order,
        job: &Arc<Job>,
    ) -> Result<Result<Applied, Refusal>, Error> {
        let mut desk = Desk { committer: self, group };
        let (answer, changes) = evaluate::obey(&mut desk, now, job, &order.command)?;
        desk.carry_out(&order.tenant, changes)?;
        Ok(answer)
    }

    /// Whether an order for a job that a schedule made may have to do with the schedule. One that goes on with what was
    /// started has not, unless an occurrence waits for its end.
    pub(super) fn concerns_schedule(&mut self, group: &mut Group, job: &Job, command: &Command) -> bool {
        let Some(occurrence) = &job.spec.occurrence else { return false };
        matches!(command, Command::Claim { .. })
            || job.status.attempt == 0
            || (Desk { committer: self, group }).may_hold(&job.tenant, occurrence.schedule_id)
    }

    /// Obeys an order that comes under a key.
    pub(super) fn obey_once(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        order: &Order,
        claim: &IdempotencyClaim,
    ) -> Result<Result<Applied, Refusal>, Error> {
        let mut desk = Desk { committer: self, group };
        let (answer, changes) = evaluate::obey_once(&mut desk, now, order, claim)?;
        desk.carry_out(&order.tenant, changes)?;
        Ok(answer)
    }

    pub(super) fn claim_key(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        let mut desk = Desk { committer: self, group };
        let (answer, changes) = evaluate::claim_key(&mut desk, now, tenant, claim)?;
        desk.carry_out(tenant, changes)?;
        Ok(answer)
    }

    /// Makes sure the group knows what a key was used for, and whether that is still there.
    pub(super) fn load_key(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        tenant: &Tenant,
        key: &Arc<str>,
    ) -> Result<(), Error> {
        self.load_pointer(group, now, tenant, key)?;
        let name = (tenant.clone(), Arc::clone(key));
        if let Some(HeldKey { used_for: KeyUse::NewSchedule(id), .. }) = group.held(now, &name) {
            match (Desk { committer: self, group }).read_schedule(tenant, id) {
                // One that cannot be read is there.
                Ok(_) | Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Applies orders for schedules, each as a whole or not at all.
    pub(super) fn edit_schedules(
        &mut self,
        group: &mut Group,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Edits, Error> {
        if orders.iter().any(takes_room) {
            self.check_room()?;
        }
        let mut desk = Desk { committer: self, group };
        let mut answers = Vec::with_capacity(orders.len());
        for order in orders {
            let (tenant, id) = (order.tenant.clone(), order.id);
            answers.push(match desk.edit(now, order) {
                // All that an order needs is read before it changes anything.
                Err(Error::Corrupt(reason)) => {
                    let text = "an order is refused: what it goes by cannot be read";
                    tracing::error!(%tenant, schedule = %id, %reason, "{text}");
                    Err(ScheduleRefusal::Unreadable(reason))
                }
                answer => answer?,
            });
        }
        Ok(answers)
    }

    pub(super) fn put_calendar(group: &mut Group, tenant: Tenant, name: Arc<str>, dates: Option<Dates>) {
        group.bytes += dates.as_ref().map_or(0, |dates| dates.as_slice().len() * 4) + 64;
        group.plans.put_calendar((tenant, name), dates.map(Arc::new));
    }

    /// Forgets the calendars a group has changed.
    pub(super) fn forget_calendar(&mut self, name: &(Tenant, Arc<str>)) {
        self.calendars.remove(name);
    }

    fn stored(&mut self, key: &ScheduleKey) -> Result<Option<Stored>, Error> {
        let tag = key.tag();
        // What the group being written made of a schedule is known already, unless it fires late.
        if let Some(stored) = self.known.get(tag) {
            return Ok(Some(stored.clone()));
        }
        self.settle_if(|writing| writing.plans.is_known(tag));
        if let Some(stored) = self.disk.shared.ahead.take(tag) {
            return Ok(Some(stored));
        }
        let get = |keyspace, on_disk: &[u8]| self.disk.kv.get(keyspace, on_disk);
        let read = schedule_record::read(get, &self.disk.shared.rules, &key.tenant, key.id);
        if let Err(Error::Corrupt(reason)) = &read {
            tracing::error!(tenant = %key.tenant, schedule = %key.id, %reason, "a schedule cannot be read");
        }
        read
    }
}

fn takes_room(order: &ScheduleOrder) -> bool {
    match order.command {
        ScheduleCommand::Create { .. }
        | ScheduleCommand::Update { .. }
        | ScheduleCommand::Trigger
        | ScheduleCommand::Backfill(_) => true,
        ScheduleCommand::Pause
        | ScheduleCommand::Resume
        | ScheduleCommand::Delete
        | ScheduleCommand::Retime(_)
        | ScheduleCommand::Redate { .. }
        | ScheduleCommand::Rearm { .. } => false,
    }
}

/// What is stored, as the group has changed it so far.
struct Desk<'a> {
    committer: &'a mut Committer,
    group: &'a mut Group,
}

impl Desk<'_> {
    /// Applies an order for a schedule.
    fn edit(
        &mut self,
        now: Timestamp,
        order: ScheduleOrder,
    ) -> Result<Result<Edited, ScheduleRefusal>, Error> {
        let tenant = order.tenant.clone();
        let (answer, changes) = evaluate::edit(self, now, order)?;
        self.carry_out(&tenant, changes)?;
        Ok(answer)
    }

    /// Takes one order's changes into the group.
    fn carry_out(&mut self, tenant: &Tenant, changes: Changes) -> Result<(), Error> {
        let mut slots: SmallVec<[usize; 1]> = SmallVec::new();
        for change in &changes.jobs {
            let id = change.id();
            slots.push(match change {
                JobChange::New(_) => self.group.find_or_add(JobTag::new(tenant, id), Slot::empty),
                JobChange::Put(_) | JobChange::Removed(_) => {
                    self.committer.load_one(self.group, tenant, id)?
                }
            });
        }
        let place = changes.schedule.as_ref().and_then(|change| self.place_of(tenant, change));
        if let (Some(at), Some(change)) = (place, &changes.schedule) {
            self.load_described(tenant, at, change)?;
        }
        // Nothing fails from here on.
        let put = match &changes.schedule {
            Some(ScheduleChange::Put(schedule)) => Some(schedule),
            Some(ScheduleChange::Removed(_)) | None => None,
        };
        for (change, slot) in changes.jobs.into_iter().zip(slots) {
            match change {
                JobChange::Put(job) | JobChange::New(job) => {
                    let of = put.filter(|put| put.next.is_some_and(|next| next.job_id == job.id));
                    let lean = of.and_then(|schedule| lean::encode(&schedule.definition, &job));
                    self.group.put_as(slot, job, lean);
                }
                JobChange::Removed(_) => self.group.remove(slot),
            }
        }
        if let Some(next) = changes.next {
            self.group.put_upcoming(next);
        }
        match (place, changes.schedule) {
            (None, _) | (_, None) => {}
            (Some(at), Some(ScheduleChange::Removed(_))) => self.group.plans.remove(at),
            (Some(at), Some(ScheduleChange::Put(schedule))) => {
                self.group.bytes += self.group.plans.put(at, schedule, self.committer.next_entry);
                let kept_from = self.committer.disk.shared.days().ledger_from;
                for entry in &changes.entries {
                    let number = self.committer.next_entry;
                    self.group.bytes += self.group.plans.note(at, entry, number, kept_from);
                    self.committer.next_entry += 1;
                }
            }
        }
        if let Some((used_for, claim)) = changes.key {
            self.group.take_key(tenant.clone(), claim, used_for);
        }
        Ok(())
    }
}

fn schedule_id(change: &ScheduleChange) -> ScheduleId {
    match change {
        ScheduleChange::Put(schedule) => schedule.id,
        ScheduleChange::Removed(id) => *id,
    }
}

impl Desk<'_> {
    /// The place of a schedule that is changed, which was read before.
    fn place_of(&self, tenant: &Tenant, change: &ScheduleChange) -> Option<usize> {
        self.group.plans.find(ScheduleTag::new(tenant, schedule_id(change)))
    }

    /// Takes in the jobs that leave it to a schedule what they ask for, if that is about to change: they are to be
    /// written in full.
    fn load_described(&mut self, tenant: &Tenant, at: usize, change: &ScheduleChange) -> Result<(), Error> {
        let new = match change {
            ScheduleChange::Put(schedule) => Some(&**schedule),
            ScheduleChange::Removed(_) => None,
        };
        if !self.group.plans.redefines(at, new) {
            return Ok(());
        }
        if let Some(next) = self.group.plans.at(at).and_then(|old| old.schedule.next) {
            self.committer.load_one(self.group, tenant, next.job_id)?;
        }
        let tag = ScheduleTag::new(tenant, schedule_id(change));
        self.committer.settle();
        let attempts = self.group.first_attempts(&self.committer.disk.shared.view, tag);
        self.committer.load(self.group, attempts.iter().map(|id| (tenant, *id)))?;
        self.group.plans.note_redefined(tag);
        Ok(())
    }
}

impl Books for Desk<'_> {
    fn read_job(&mut self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        let slot = self.committer.load_one(self.group, tenant, id)?;
        Ok(self.group.slots.get(slot).and_then(|slot| slot.job.clone()))
    }

    fn read_schedule(&mut self, tenant: &Tenant, id: ScheduleId) -> Result<Option<Arc<Schedule>>, Error> {
        let at = match self.group.plans.find(ScheduleTag::new(tenant, id)) {
            Some(at) => at,
            None => {
                let key = ScheduleKey { tenant: tenant.clone(), id };
                let stored = self.committer.stored(&key)?;
                self.group.plans.add(key, stored)
            }
        };
        Ok(self.group.plans.at(at).map(|stored| Arc::clone(&stored.schedule)))
    }

    fn may_hold(&mut self, tenant: &Tenant, id: ScheduleId) -> bool {
        let tag = ScheduleTag::new(tenant, id);
        match self.group.plans.find(tag) {
            Some(at) => self.group.plans.at(at).is_some_and(|stored| stored.schedule.held.is_some()),
            None => !self.committer.holding.is_empty() && self.committer.holding.contains(&tag),
        }
    }

    fn add_schedule(&mut self, tenant: &Tenant, id: ScheduleId) {
        if !self.group.plans.is_known(ScheduleTag::new(tenant, id)) {
            self.group.plans.add(ScheduleKey { tenant: tenant.clone(), id }, None);
        }
    }

    fn read_calendar(&mut self, tenant: &Tenant, name: &str) -> Result<Option<Arc<Dates>>, Error> {
        if let Some(changed) = self.group.plans.calendar(tenant, name) {
            return Ok(changed);
        }
        let known = (tenant.clone(), Arc::from(name));
        if let Some(dates) = self.committer.calendars.get(&known) {
            return Ok(Some(Arc::clone(dates)));
        }
        self.committer.settle();
        let bytes = self
            .committer
            .disk
            .kv
            .get(Keyspace::Calendars, &keys::named(tenant, name))
            .map_err(read_error)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let dates = Arc::new(decode_calendar(&bytes).map_err(unreadable)?);
        if self.committer.calendars.len() >= CALENDARS_KNOWN_COUNT_MAX {
            self.committer.calendars.clear();
        }
        self.committer.calendars.insert(known, Arc::clone(&dates));
        Ok(Some(dates))
    }

    fn read_name(&mut self, tenant: &Tenant, name: &Arc<str>) -> Result<Option<ScheduleId>, Error> {
        let key = (tenant.clone(), Arc::clone(name));
        if let Some(holder) = self.group.plans.holder(&key) {
            return Ok(holder);
        }
        self.committer.settle();
        let bytes =
            self.committer.disk.kv.get(Keyspace::Names, &keys::named(tenant, name)).map_err(read_error)?;
        let holder = bytes.as_deref().map(decode_holder).transpose().map_err(unreadable)?;
        self.group.plans.add_name(key, holder);
        Ok(holder)
    }

    fn read_key(
        &mut self,
        now: Timestamp,
        tenant: &Tenant,
        key: &Arc<str>,
    ) -> Result<Option<HeldKey>, Error> {
        self.committer.load_key(self.group, now, tenant, key)?;
        Ok(self.group.held(now, &(tenant.clone(), Arc::clone(key))))
    }
}

pub(crate) fn decode_calendar(bytes: &[u8]) -> Result<Dates, Unreadable> {
    let numbers: Vec<i32> = versioned::decode(bytes, Unreadable::Nonsense("a calendar"))?;
    rules::read_dates(&numbers)
}

pub(crate) fn decode_holder(bytes: &[u8]) -> Result<ScheduleId, Unreadable> {
    let id = <[u8; 16]>::try_from(bytes).map_err(|_| Unreadable::Nonsense("who has a name"))?;
    Ok(ScheduleId::from_bytes(id))
}
