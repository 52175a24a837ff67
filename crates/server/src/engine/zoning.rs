//! Brings what waits in the store in line with the time zone database in use. A store notes by which database its
//! pending occurrences are computed; where that is another, all of them are computed anew before the scheduler
//! starts and before anybody is served, so that none fires at a time that is wrong by now.
//!
//! It ends in the same state however often it is interrupted: the note is taken away first and made last, and
//! computing an occurrence twice is as computing it once.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, Zone, retime};
use tidewheel_store::{Error, ScheduleCommand, ScheduleOrder, ScheduleQuery};

use super::Shared;

/// Schedules on one page, and so the most that change in one write.
const PAGE_COUNT: usize = 500;
/// Tenants listed at once.
const TENANTS_COUNT: usize = 100;

/// Recomputes pending occurrences if they are by another database than the one in use.
pub(super) async fn bring_in_line(shared: &Shared) -> Result<(), Error> {
    let identity = shared.zones.identity();
    let noted = shared.store.noted_zones().await?;
    if noted.as_deref() == Some(&*identity) {
        return Ok(());
    }
    shared.store.note_zones(None).await?;
    let moved = recompute(shared).await?;
    shared.store.note_zones(Some(identity.into())).await?;
    if moved > 0 {
        tracing::info!(
            version = shared.zones.version(),
            moved,
            "the tz database is another than before; occurrences were moved to where it has them"
        );
    }
    Ok(())
}

/// Goes through all schedules once; says how many occurrences were moved.
async fn recompute(shared: &Shared) -> Result<usize, Error> {
    let (mut moved, mut after) = (0, None);
    loop {
        let tenants = shared.store.schedule_tenants(after.take(), TENANTS_COUNT).await?;
        let is_last = tenants.len() < TENANTS_COUNT;
        after = tenants.last().cloned();
        for tenant in tenants {
            moved += recompute_tenant(shared, &tenant).await?;
        }
        if is_last {
            return Ok(moved);
        }
    }
}

async fn recompute_tenant(shared: &Shared, tenant: &Tenant) -> Result<usize, Error> {
    let (mut moved, mut after) = (0, None);
    let mut calendars = BTreeMap::new();
    loop {
        let query = ScheduleQuery {
            tenant: tenant.clone(),
            states: Vec::new(),
            kind: None,
            calendar: None,
            after,
            count_max: PAGE_COUNT,
        };
        let page = shared.store.list_schedules(query).await?;
        let mut orders = Vec::new();
        for schedule in &page.schedules {
            orders.extend(order(shared, schedule, &mut calendars).await?);
        }
        if !orders.is_empty() {
            let results = shared.store.edit_schedules(shared.clock.now(), orders).await?;
            moved += results.iter().flatten().filter(|edited| !edited.jobs.is_empty()).count();
        }
        after = page.next;
        if after.is_none() {
            return Ok(moved);
        }
    }
}

/// The order for a schedule to which the rules of now make a difference.
async fn order(
    shared: &Shared,
    schedule: &Schedule,
    calendars: &mut BTreeMap<Arc<str>, Option<Dates>>,
) -> Result<Option<ScheduleOrder>, Error> {
    let rule = &schedule.definition.rule;
    if rule.zone == Zone::utc() {
        return Ok(None);
    }
    // A zone that is gone: the schedule waits for a database that has it.
    let Ok(zone) = shared.zones.zone(rule.zone.name()) else { return Ok(None) };
    if let Some(name) = &rule.exclude.calendar
        && !calendars.contains_key(name)
    {
        calendars.insert(Arc::clone(name), shared.store.calendar(&schedule.tenant, name).await?);
    }
    let calendar = rule.exclude.calendar.as_ref().and_then(|name| calendars.get(name)?.as_ref());
    let edit = retime(schedule, zone.clone(), calendar, shared.clock.now());
    Ok((!edit.is_none(schedule)).then(|| ScheduleOrder {
        tenant: schedule.tenant.clone(),
        id: schedule.id,
        if_version: None,
        command: ScheduleCommand::Retime(zone),
        key: None,
    }))
}
