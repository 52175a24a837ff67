//! Schedules in a group: what its requests have read of them and done to them so far.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Definition, Entry, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::LedgerCursor;

use super::known::Known;
use crate::kv::{Batch, Day, Keyspace};
use crate::place::{ScheduleKey, ScheduleTag};
use crate::schedule_counts::ScheduleDeltas;
use crate::schedule_record::Stored;
use crate::sheet::{LINE_BYTES, NotPlain, Sheet};
use crate::{keys, ledger, rules, versioned};

/// A name of a tenant's choice.
type Name = (Tenant, Arc<str>);

#[derive(Default)]
pub(super) struct Plans {
    slots: Vec<Slot>,
    index: FxHashMap<ScheduleTag, usize>,
    names: FxHashMap<Name, Option<ScheduleId>>,
    /// Names in the order they were given or taken away, to be written.
    names_set: Vec<Name>,
    /// Those that were changed; the last change of one counts.
    calendars: Vec<(Name, Option<Arc<Dates>>)>,
    /// What is written to ledgers.
    entries: Vec<(Day, Vec<u8>, Vec<u8>)>,
    /// Whether entries were given numbers.
    has_numbered: bool,
    /// Those whose jobs ask for something else now, or that are gone.
    redefined: FxHashSet<ScheduleTag>,
}

/// One schedule in the group.
struct Slot {
    key: ScheduleKey,
    /// It was there before the group.
    was_there: bool,
    /// An occurrence of it waited then for the end of another.
    held_before: bool,
    /// As it is now; `None` when there is no such schedule.
    stored: Option<Stored>,
    changed: bool,
    /// What is asked of it is not what is on disk.
    redefined: bool,
}

impl Plans {
    /// Forgets everything but the room it took.
    pub(super) fn clear(&mut self) {
        let (mut slots, mut index) = (std::mem::take(&mut self.slots), std::mem::take(&mut self.index));
        slots.clear();
        index.clear();
        *self = Self { slots, index, ..Self::default() };
    }

    pub(super) fn is_known(&self, tag: ScheduleTag) -> bool {
        self.index.contains_key(&tag)
    }

    /// The place of a schedule the group knows.
    pub(super) fn find(&self, tag: ScheduleTag) -> Option<usize> {
        self.index.get(&tag).copied()
    }

    /// The schedule of that place, as it is now.
    pub(super) fn at(&self, at: usize) -> Option<&Stored> {
        self.slots.get(at).and_then(|slot| slot.stored.as_ref())
    }

    /// Whether the group knows that there is no such schedule.
    pub(super) fn is_gone(&self, tag: ScheduleTag) -> bool {
        self.is_known(tag) && self.get(tag).is_none()
    }

    /// Notes a schedule as it was before the group; says at which place.
    pub(super) fn add(&mut self, key: ScheduleKey, stored: Option<Stored>) -> usize {
        let at = self.slots.len();
        self.index.insert(key.tag(), at);
        let (was_there, held_before) = (stored.is_some(), holds(stored.as_ref()));
        self.slots.push(Slot { key, was_there, held_before, stored, changed: false, redefined: false });
        at
    }

    pub(super) fn get(&self, tag: ScheduleTag) -> Option<&Stored> {
        self.find(tag).and_then(|at| self.at(at))
    }

    /// Whether the jobs of a schedule that is there ask for something else when it becomes `new`, or is removed.
    pub(super) fn redefines(&self, at: usize, new: Option<&Schedule>) -> bool {
        let Some(old) = self.at(at).map(|old| &old.schedule.definition) else { return false };
        let is_same = |new: &Arc<Definition>| {
            Arc::ptr_eq(old, new)
                || (old.template == new.template && old.idempotency_key == new.idempotency_key)
        };
        new.is_none_or(|new| !is_same(&new.definition))
    }

    pub(super) fn note_redefined(&mut self, tag: ScheduleTag) {
        self.redefined.insert(tag);
    }

    pub(super) fn has_redefined(&self) -> bool {
        !self.redefined.is_empty()
    }

    /// Whether what the jobs of a schedule ask for has changed in this group, or the schedule was removed.
    pub(super) fn is_redefined(&self, tag: ScheduleTag) -> bool {
        self.redefined.contains(&tag)
    }

    /// Makes the schedule of that place what it is now; a new one's ledger begins with the entry `next_entry`. Answers
    /// about how much is to be written.
    pub(super) fn put(&mut self, at: usize, schedule: Arc<Schedule>, next_entry: u64) -> usize {
        let Some(slot) = self.slots.get_mut(at) else { return 0 };
        slot.changed = true;
        let before = match &mut slot.stored {
            Some(stored) => Some(std::mem::replace(&mut stored.schedule, Arc::clone(&schedule))),
            None => {
                let sheet = Sheet::default();
                slot.stored =
                    Some(Stored { schedule: Arc::clone(&schedule), first_entry: next_entry, sheet });
                None
            }
        };
        let is_defined =
            before.as_ref().is_some_and(|before| Arc::ptr_eq(&before.definition, &schedule.definition));
        slot.redefined |= !is_defined;
        let bytes = 128 + if is_defined { 0 } else { slot.stored.as_ref().map_or(0, Stored::size_bytes) };
        self.rename(at, before.as_ref().and_then(|before| before.name.as_ref()), schedule.name.as_ref());
        bytes
    }

    pub(super) fn remove(&mut self, at: usize) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.changed = true;
        if let Some(removed) = slot.stored.take() {
            self.rename(at, removed.schedule.name.as_ref(), None);
        }
    }

    /// The schedule of that place has another name than it had.
    fn rename(&mut self, at: usize, old: Option<&Arc<str>>, new: Option<&Arc<str>>) {
        let Some(Slot { key, .. }) = self.slots.get(at).filter(|_| old != new) else { return };
        for (name, holder) in [(old, None), (new, Some(key.id))] {
            let Some(name) = name else { continue };
            let name = (key.tenant.clone(), Arc::clone(name));
            self.names_set.push(name.clone());
            self.names.insert(name, holder);
        }
    }

    /// Who has a name; `None` if the group does not know yet.
    pub(super) fn holder(&self, name: &Name) -> Option<Option<ScheduleId>> {
        self.names.get(name).copied()
    }

    /// Notes who had a name before the group.
    pub(super) fn add_name(&mut self, name: Name, holder: Option<ScheduleId>) {
        self.names.insert(name, holder);
    }

    /// The calendar of that name, if the group has changed it.
    pub(super) fn calendar(&self, tenant: &Tenant, name: &str) -> Option<Option<Arc<Dates>>> {
        let mut changed = self.calendars.iter().rev();
        let found = changed.find(|((owner, known), _)| owner == tenant && **known == *name);
        found.map(|(_, dates)| dates.clone())
    }

    pub(super) fn put_calendar(&mut self, name: Name, dates: Option<Arc<Dates>>) {
        self.calendars.push((name, dates));
    }

    /// Adds an entry to the ledger of the schedule of that place, whose sheet takes none from before `kept_from`. Answers
    /// about how much is to be written.
    pub(super) fn note(&mut self, at: usize, entry: &Entry, number: u64, kept_from: Day) -> usize {
        self.has_numbered = true;
        let Some(Slot { key: ScheduleKey { tenant, id }, stored, .. }) = self.slots.get_mut(at) else {
            return 0;
        };
        let day = Day::of(entry.decided_at);
        let sheet = stored.as_mut().map(|stored| &mut stored.sheet).filter(|_| day >= kept_from);
        let (key, value) = match sheet.map(|sheet| sheet.add(*id, entry, number)) {
            Some(Ok(None)) => return LINE_BYTES,
            Some(Ok(Some(full))) => (keys::ledger_sheet(tenant, *id, full.first), full.record),
            Some(Err(NotPlain)) | None => {
                let cursor = LedgerCursor { from: entry.from, number };
                (keys::ledger_entry(tenant, *id, cursor), ledger::encode(entry))
            }
        };
        let bytes = key.len() + value.len();
        self.entries.push((day, key, value));
        bytes
    }

    /// The schedules that are written.
    pub(super) fn changed(&self) -> Vec<ScheduleTag> {
        self.slots.iter().filter(|slot| slot.changed).map(|slot| slot.key.tag()).collect()
    }

    /// The days whose ledgers are written to.
    pub(super) fn days(&self) -> Vec<Day> {
        let mut days: Vec<_> = self.entries.iter().map(|(day, ..)| *day).collect();
        days.dedup();
        days
    }

    /// Writes all of it, and takes note of what is kept in memory. Afterwards it only tells which schedules it knew.
    pub(super) fn write(
        &mut self,
        batch: &mut Batch,
        (known, holding, scratch): (&mut Known, &mut FxHashSet<ScheduleTag>, &mut Vec<u8>),
        now: Timestamp,
        next_entry: u64,
    ) -> ScheduleDeltas {
        let mut deltas = ScheduleDeltas::new();
        for slot in self.slots.drain(..) {
            slot.write(batch, holding, scratch);
            match (slot.was_there, slot.stored.is_some()) {
                (false, true) => *deltas.entry(slot.key.tenant.clone()).or_default() += 1,
                (true, false) => *deltas.entry(slot.key.tenant.clone()).or_default() -= 1,
                (true, true) | (false, false) => {}
            }
            match slot.stored {
                Some(stored) => known.note(slot.key.tag(), stored, now, slot.changed),
                None => known.remove(slot.key.tag()),
            }
        }
        for name in last_of_each(std::mem::take(&mut self.names_set)) {
            let key = keys::named(&name.0, &name.1);
            match self.names.get(&name).copied().flatten() {
                Some(id) => batch.put(Keyspace::Names, key, id.as_bytes().to_vec()),
                None => batch.delete(Keyspace::Names, key),
            }
        }
        let mut calendars = std::mem::take(&mut self.calendars);
        calendars.reverse();
        calendars.sort_by(|(a, _), (b, _)| a.cmp(b));
        calendars.dedup_by(|(later, _), (first, _)| later == first);
        for ((tenant, name), dates) in calendars {
            let key = keys::named(&tenant, &name);
            match dates {
                Some(dates) => {
                    let record = versioned::encode(&rules::date_numbers(&dates));
                    batch.put(Keyspace::Calendars, key, record);
                }
                None => batch.delete(Keyspace::Calendars, key),
            }
        }
        if self.has_numbered {
            batch.put(Keyspace::Meta, keys::meta::NEXT_ENTRY.to_vec(), next_entry.to_be_bytes().to_vec());
        }
        for (day, key, value) in std::mem::take(&mut self.entries) {
            batch.put(Keyspace::Ledger(day), key, value);
        }
        deltas
    }
}

impl Slot {
    /// Writes what is not on disk as it is now.
    fn write(&self, batch: &mut Batch, holding: &mut FxHashSet<ScheduleTag>, scratch: &mut Vec<u8>) {
        if !self.changed {
            return;
        }
        match (self.held_before, holds(self.stored.as_ref())) {
            (false, true) => {
                holding.insert(self.key.tag());
                let key = keys::schedule(&self.key.tenant, self.key.id);
                batch.put(Keyspace::Meta, keys::meta::holding(&key), Vec::new());
            }
            (true, false) => {
                holding.remove(&self.key.tag());
                let key = keys::schedule(&self.key.tenant, self.key.id);
                batch.delete(Keyspace::Meta, keys::meta::holding(&key));
            }
            (true, true) | (false, false) => {}
        }
        let on_disk = keys::schedule_slice(&self.key.tenant, self.key.id, scratch);
        match &self.stored {
            Some(stored) => {
                batch.put(Keyspace::Standings, on_disk.clone(), stored.encode_standing(scratch));
                if self.redefined {
                    batch.put(Keyspace::Schedules, on_disk, stored.encode_definition());
                }
            }
            None if self.was_there => {
                batch.delete(Keyspace::Standings, on_disk.clone());
                batch.delete(Keyspace::Schedules, on_disk);
            }
            None => {}
        }
    }
}

fn holds(stored: Option<&Stored>) -> bool {
    stored.is_some_and(|stored| stored.schedule.held.is_some())
}

fn last_of_each(mut names: Vec<Name>) -> Vec<Name> {
    names.sort();
    names.dedup();
    names
}
