//! Walks through all schedules, at the start and every so often after it, and mends what does not go on by
//! itself: a schedule whose waiting occurrence is lost, and, at the start, one whose zone got other rules
//! with the program. The walk keeps to a pace and holds one page at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, State as ScheduleState, Timing, Zone, retime};
use tidewheel_store::{Error, ScheduleCommand, ScheduleOrder, ScheduleQuery};

use super::{Engine, Shared};

/// From the end of one walk to the next.
const WALK_WAIT_MS: u64 = 10 * 60 * 1_000;
/// Until a walk that failed is begun again.
const RETRY_WAIT_MS: u64 = 5_000;
/// Schedules on one page.
const PAGE_COUNT: usize = 500;
/// Between two pages.
const PAGE_WAIT_MS: u64 = 20;
/// Tenants listed at once.
const TENANTS_COUNT: usize = 100;

/// Runs as long as somebody else holds the engine.
pub(super) async fn run(shared: Weak<Shared>) {
    let mut is_first = true;
    loop {
        let Some(engine) = shared.upgrade().map(|shared| Engine { shared }) else { return };
        if engine.is_draining() {
            return;
        }
        let wait_ms = match walk(&engine, is_first).await {
            Ok(mended) => {
                is_first = false;
                if mended > 0 {
                    tracing::warn!(count = mended, "schedules did not go on by themselves and were mended");
                }
                WALK_WAIT_MS
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "schedules could not be looked through; trying again");
                RETRY_WAIT_MS
            }
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::error!(%error, "schedules could not be looked through");
                WALK_WAIT_MS
            }
        };
        let sleep = engine.clock().sleep(Duration::from_millis(wait_ms));
        // Not held over the wait: the store is let go when everybody else is done with it.
        drop(engine);
        sleep.await;
    }
}

/// Goes through all schedules once; says how many had to be mended.
async fn walk(engine: &Engine, retimes: bool) -> Result<usize, Error> {
    let store = engine.store();
    let (mut mended, mut after) = (0, None);
    loop {
        let tenants = store.schedule_tenants(after.take(), TENANTS_COUNT).await?;
        let is_last = tenants.len() < TENANTS_COUNT;
        after = tenants.last().cloned();
        for tenant in tenants {
            mended += walk_tenant(engine, &tenant, retimes).await?;
        }
        if is_last || engine.is_draining() {
            return Ok(mended);
        }
    }
}

async fn walk_tenant(engine: &Engine, tenant: &Tenant, retimes: bool) -> Result<usize, Error> {
    let (mut mended, mut after) = (0, None);
    loop {
        let query = ScheduleQuery {
            tenant: tenant.clone(),
            states: vec![ScheduleState::Active],
            kind: None,
            calendar: None,
            after,
            count_max: PAGE_COUNT,
        };
        let page = engine.store().list_schedules(query).await?;
        let mut orders = lost(engine, tenant, &page.schedules).await?;
        if retimes {
            orders.extend(retimed(engine, tenant, &page.schedules).await?);
        }
        if !orders.is_empty() {
            let results = engine.edit_schedules(orders).await?;
            mended += results.iter().flatten().filter(|edited| edited.changed).count();
        }
        after = page.next;
        if after.is_none() || engine.is_draining() {
            return Ok(mended);
        }
        engine.clock().sleep(Duration::from_millis(PAGE_WAIT_MS)).await;
    }
}

fn order(schedule: &Schedule, command: ScheduleCommand) -> ScheduleOrder {
    ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version: None, command }
}

/// Orders for the schedules that wait for nothing, or for a job that is not there or has ended.
async fn lost(engine: &Engine, tenant: &Tenant, schedules: &[Schedule]) -> Result<Vec<ScheduleOrder>, Error> {
    let ids = schedules.iter().filter_map(|schedule| schedule.next.map(|next| next.job_id)).collect();
    let mut jobs = engine.store().get(tenant, ids).await?.into_iter();
    let mut orders = Vec::new();
    for schedule in schedules {
        let job = schedule.next.and_then(|_| jobs.next()).flatten();
        if is_lost(job.as_ref()) {
            orders.push(order(schedule, ScheduleCommand::Rearm));
        }
    }
    Ok(orders)
}

/// Whether nothing will come of the job a schedule waits for.
fn is_lost(job: Option<&Job>) -> bool {
    job.is_none_or(|job| job.status.state.is_finished())
}

/// Orders for the schedules whose next instant is another by the rules their zone has now. What is due is left
/// alone: it is about to be decided.
async fn retimed(
    engine: &Engine,
    tenant: &Tenant,
    schedules: &[Schedule],
) -> Result<Vec<ScheduleOrder>, Error> {
    let now = engine.clock().now();
    let mut calendars: BTreeMap<Arc<str>, Option<Dates>> = BTreeMap::new();
    let mut orders = Vec::new();
    for schedule in schedules {
        let rule = &schedule.definition.rule;
        let is_waiting = schedule.next.is_some_and(|next| next.fire_at > now && !next.catch_up);
        if !is_waiting || !matches!(rule.timing, Timing::Cron(_)) || rule.zone.name() == "UTC" {
            continue;
        }
        let Ok(zone) = Zone::named(engine.zones(), rule.zone.name()) else { continue };
        if let Some(name) = &rule.exclude.calendar
            && !calendars.contains_key(name)
        {
            calendars.insert(Arc::clone(name), engine.store().calendar(tenant, name).await?);
        }
        let calendar = rule.exclude.calendar.as_ref().and_then(|name| calendars.get(name)?.as_ref());
        let edit = retime(schedule, zone.clone(), calendar, now);
        if !edit.is_none(schedule) {
            orders.push(order(schedule, ScheduleCommand::Retime(zone)));
        }
    }
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidewheel_core::job::{Destination, Priority, Spec, State};
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_job_that_is_gone_or_over_is_lost_and_one_that_waits_or_runs_is_not() {
        let spec = Spec {
            kind: "t".into(),
            payload: Bytes::new(),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            created_at: Timestamp::MIN,
        };
        let mut job = Job::new(Tenant::default(), spec, Timestamp::MIN, 7);
        assert!(is_lost(None));
        let alive = [State::Scheduled, State::Running, State::Retrying];
        for state in State::ALL {
            job.status.state = state;
            assert_eq!(is_lost(Some(&job)), !alive.contains(&state), "{state:?}");
        }
    }
}
