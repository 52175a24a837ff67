//! Turning a group into one batch, to be written beside what is judged next.

use tidewheel_core::audit::Packed;
use tidewheel_core::glance::{self, HANDFUL};
use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, SubShard};
use tidewheel_store::Error;

use super::audit::note_change;
use super::group::{Group, Slot};
use super::writer::{Work, Writes};
use super::{Committer, WRITING_COUNT_MAX, WRITTEN_HERE_JOBS_COUNT_MAX};
use crate::attempts::{CLAIMS_PER_RECORD_MAX, Claim, Lease};
use crate::counters::Moves;
use crate::kv::{Batch, Day, Keyspace};
use crate::place::{LentKey, Place, write_move};
use crate::view::UnderWay;
use crate::{keys, pointers, versioned};

/// What a group becomes.
#[derive(Default)]
struct Plan {
    writes: Writes,
    moves: Moves,
    /// Of the record in `claims` that is being put together, and how many they are.
    claims: Vec<u8>,
    claims_count: usize,
    /// The history that was last made ready, and what bucket for.
    history: Option<(Day, Bucket)>,
}

impl Committer {
    /// Has the group written, after the one before it. Its answers are given then.
    pub(super) fn write_group(&mut self, mut group: Group) {
        let answers = std::mem::take(&mut group.answers);
        let jobs = group.slots.len();
        match self.plan(&mut group) {
            Ok(plan) => {
                let work = Work { writes: plan.writes, answers, jobs };
                if self.writing.is_empty() && jobs <= WRITTEN_HERE_JOBS_COUNT_MAX {
                    self.disk.carry_out(work);
                    group.clear();
                    self.spare.push(group);
                    return;
                }
                self.settle_down_to(WRITING_COUNT_MAX - 1);
                self.writer.write(work);
                self.writing.push_back(group);
            }
            Err(error) => {
                for answer in answers {
                    answer.give(Err(error.clone()));
                }
            }
        }
    }

    fn plan(&mut self, group: &mut Group) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        group.spell_out();
        // A job that ends is two writes.
        plan.writes.batch.0.reserve(2 * group.slots.len());
        let mut changes = Packed::default();
        for slots in group.slots.chunks_mut(HANDFUL) {
            // Of what it asks for a claim tells when the job was made; its record has been put together before.
            glance::over(slots.iter().filter_map(|slot| slot.job.as_ref()).map(|job| {
                if job.status.state == State::Running { glance::job(job) } else { glance::status(job) }
            }));
            for slot in slots {
                if self.trail.changes {
                    note_change(&mut changes, self.disk.shared.shards, slot);
                }
                self.plan_job(&mut plan, slot)?;
            }
        }
        group.slots.clear();
        plan.writes.counts = std::mem::take(&mut plan.moves).sum();
        self.plan_audit(&mut plan.writes.batch, changes, group)?;
        self.end_claims(&mut plan);
        self.plan_pointers(&mut plan, group)?;
        // Within a batch no key may occur twice: the last one counts.
        let mut meta = std::mem::take(&mut group.meta);
        meta.reverse();
        meta.sort_by(|(a, _), (b, _)| a.cmp(b));
        meta.dedup_by(|(later, _), (first, _)| later == first);
        for (key, value) in meta {
            plan.writes.batch.put(Keyspace::Meta, key, value);
        }
        std::mem::take(&mut group.documents).write(&mut plan.writes.batch, self.document_change);
        for day in group.plans.days() {
            self.ready_ledger(day)?;
        }
        plan.writes.schedules_changed = group.plans.changed();
        let kept = (&mut self.known, &mut self.holding, &mut self.scratch);
        plan.writes.schedules = group.plans.write(&mut plan.writes.batch, kept, group.now, self.next_entry);
        plan.writes.batch.sort();
        Ok(plan)
    }

    fn plan_job(&mut self, plan: &mut Plan, slot: &mut Slot) -> Result<(), Error> {
        let shards = self.disk.shared.shards;
        let (rest, in_full) = (slot.rest.take(), slot.in_full.take());
        let Some(key) = slot.key() else { return Ok(()) };
        let end = slot.end();
        let with_day = |(state, place): (_, Place)| (state, place.day());
        plan.moves.note(key.tenant, slot.start.map(with_day), end.map(with_day));
        let mut is_changed = false;
        if let Some(rest) = rest {
            if let Some((Place::History(day), _)) = &rest {
                let place = Some((*day, Bucket::of(key.id.run_at())));
                if plan.history != place {
                    self.ready_history(*day, Bucket::of(key.id.run_at()))?;
                    plan.history = place;
                }
            }
            self.mark_retrying(plan, key, slot.job.as_deref(), rest.as_ref().map(|(place, _)| *place));
            if slot.start.is_none() && key.id.sub_shard() != SubShard::HOME {
                self.disk.shared.spread.note(key.tenant, key.id.sub_shard(), &mut plan.writes.batch);
            }
            let first = plan.writes.batch.0.len();
            let (batch, from) = (&mut plan.writes.batch, slot.start.map(|(_, place)| place));
            write_move(batch, &mut self.scratch, (shards, key), from, rest);
            let new = plan.writes.batch.0.iter().skip(first);
            let armed = new.filter(|write| write.keyspace == Keyspace::Waiting && write.value.is_some());
            plan.writes.armed.extend(armed.map(|write| write.key.clone()));
            is_changed = true;
        }
        if let Some(record) = in_full {
            plan.writes.batch.put(Keyspace::Waiting, key.natural(shards), *record);
        }
        let now = slot.job.as_ref().filter(|job| job.status.running.is_some());
        let ended = slot.attempt.filter(|(attempt, ..)| now.is_none_or(|job| job.status.attempt != *attempt));
        if let Some((_, claim, has_lease)) = ended {
            self.retire(&mut plan.writes.batch, claim);
            if has_lease && !slot.lease_changed {
                plan.writes.batch.delete(Keyspace::Leases, key.natural(shards));
            }
            if now.is_none() {
                plan.writes.published.ended.push(key.tag());
                is_changed = false;
            }
        }
        // Of a new one nobody has read anything.
        if is_changed && slot.start.is_some() {
            plan.writes.published.changed.push(key.tag());
        }
        let Some(job) = now else { return Ok(()) };
        if let Some(lease) = Lease::of(job).filter(|_| slot.lease_changed) {
            plan.writes.batch.put(Keyspace::Leases, key.natural(shards), versioned::encode(&lease));
        }
        let (claim, had_lease) = match slot.attempt.filter(|_| ended.is_none()) {
            Some((_, claim, has_lease)) => (claim, has_lease),
            None => {
                if plan.claims_count >= CLAIMS_PER_RECORD_MAX {
                    self.end_claims(plan);
                }
                if let Some(claim) = Claim::of(job) {
                    versioned::append_one(&claim, &mut plan.claims);
                    plan.claims_count += 1;
                }
                (self.next_claim, false)
            }
        };
        let (tag, has_lease) = (key.tag(), had_lease || slot.lease_changed);
        if let Some(job) = slot.job.take() {
            plan.writes.published.running.push((tag, UnderWay::new(job, claim, has_lease)));
        }
        Ok(())
    }

    /// Notes whether a job that moves to `place` is one that is tried again at the very instant in its id. One that is
    /// claimed in the same group may be noted for nothing.
    fn mark_retrying(&mut self, plan: &mut Plan, key: LentKey<'_>, job: Option<&Job>, place: Option<Place>) {
        let has_run = job.is_some_and(|job| matches!(job.status.state, State::Retrying | State::Running));
        let is_retrying = has_run && place == Some(Place::Home);
        let noted = || keys::meta::retrying(&key.natural(self.disk.shared.shards));
        if is_retrying {
            plan.writes.batch.put(Keyspace::Meta, noted(), Vec::new());
            self.retrying_at_home.insert(key.tag());
        } else if !self.retrying_at_home.is_empty() && self.retrying_at_home.contains(&key.tag()) {
            plan.writes.batch.delete(Keyspace::Meta, noted());
            self.retrying_at_home.remove(&key.tag());
        }
    }

    /// One attempt of a record in `claims` has ended; the record goes with the last.
    fn retire(&mut self, batch: &mut Batch, claim: u64) {
        match self.claims.get_mut(&claim) {
            Some(left) if *left > 1 => *left -= 1,
            Some(_) | None => {
                self.claims.remove(&claim);
                batch.delete(Keyspace::Claims, claim.to_be_bytes().to_vec());
            }
        }
    }

    /// Ends the record in `claims` that is being put together.
    fn end_claims(&mut self, plan: &mut Plan) {
        if plan.claims_count == 0 {
            return;
        }
        let key = self.next_claim.to_be_bytes().to_vec();
        let record = versioned::encode_many(plan.claims_count, &plan.claims);
        plan.writes.batch.put(Keyspace::Claims, key, record);
        self.claims.insert(self.next_claim, plan.claims_count);
        self.next_claim += 1;
        plan.claims.clear();
        plan.claims_count = 0;
    }

    fn plan_pointers(&mut self, plan: &mut Plan, group: &mut Group) -> Result<(), Error> {
        for name in std::mem::take(&mut group.pointers_set) {
            let Some(slot) = group.pointers.get_mut(&name).filter(|slot| slot.is_set) else { continue };
            slot.is_set = false;
            let Some(pointer) = slot.pointer else { continue };
            let day = Day::of(pointer.until());
            self.ready_keys(day)?;
            let (tenant, text): (Tenant, _) = name;
            plan.writes.batch.put(
                Keyspace::Keys(day),
                keys::idempotency(&tenant, &text),
                pointers::encode(&pointer),
            );
        }
        for (name, day) in group.take_moved_keys() {
            let now_on =
                group.pointers.get(&name).and_then(|slot| slot.pointer).map(|now| Day::of(now.until()));
            if now_on != Some(day) && self.disk.shared.days().keys.contains(&day) {
                plan.writes.batch.delete(Keyspace::Keys(day), keys::idempotency(&name.0, &name.1));
            }
        }
        Ok(())
    }

    /// Makes the keyspace before the first batch that needs it, so that whoever sees the batch finds it.
    fn ready_history(&self, day: Day, bucket: Bucket) -> Result<(), Error> {
        let days = self.disk.shared.days();
        if !days.history.contains_key(&day) {
            self.disk.kv.create(Keyspace::History(day)).map_err(|error| self.disk.poison(&error))?;
        }
        if !days.covers(day, bucket) {
            drop(days);
            self.disk.shared.change_days(|days| days.widen(day, bucket));
        }
        Ok(())
    }

    fn ready_keys(&self, day: Day) -> Result<(), Error> {
        if !self.disk.shared.days().keys.contains(&day) {
            self.disk.kv.create(Keyspace::Keys(day)).map_err(|error| self.disk.poison(&error))?;
            self.disk.shared.change_days(|days| {
                days.keys.insert(day);
            });
        }
        Ok(())
    }

    fn ready_ledger(&self, day: Day) -> Result<(), Error> {
        if !self.disk.shared.days().ledger.contains(&day) {
            self.disk.kv.create(Keyspace::Ledger(day)).map_err(|error| self.disk.poison(&error))?;
            self.disk.shared.change_days(|days| {
                days.ledger.insert(day);
            });
        }
        Ok(())
    }
}
