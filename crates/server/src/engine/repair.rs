//! Walks through all schedules, at the start, every so often after it and when the clock has been set back, and mends what
//! does not go on by itself: a schedule whose waiting occurrence is lost, or an interval that would wait until the clock
//! shows again what it has shown. The walk keeps to a pace and holds one page at a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Schedule, State as ScheduleState};
use tidewheel_store::{Error, ScheduleCommand, ScheduleOrder, ScheduleQuery};

use super::{Engine, Shared};

/// From the end of one walk to the next.
const WALK_WAIT_MS: u64 = 10 * 60 * 1_000;
/// How long one node does it for all: a little longer than until the next walk.
const APPOINTED_MS: i64 = 11 * 60 * 1_000;
/// Until a walk that failed is begun again.
const RETRY_WAIT_MS: u64 = 5_000;
/// Schedules on one page.
const PAGE_COUNT: usize = 500;
/// Between two pages, at least.
const PAGE_WAIT_MS: i64 = 100;
/// How many times as long as a page took it waits until the next: a page takes longer where the machine is busy, with a herd at
/// the top of the hour above all.
const PAGE_WAIT_FACTOR: i64 = 20;
/// At most.
const PAGE_WAIT_MS_MAX: i64 = 2_000;
/// Tenants listed at once.
const TENANTS_COUNT: usize = 100;

/// Runs as long as somebody else holds the engine.
pub(super) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(engine) = shared.upgrade().map(|shared| Engine { shared }) else { return };
        if engine.is_draining() {
            return;
        }
        let set_back_ms = engine.shared.set_back.take_ms();
        if !engine.shared.is_appointed("repair", APPOINTED_MS).await {
            wait(engine, WALK_WAIT_MS).await;
            continue;
        }
        let wait_ms = match walk(&engine, set_back_ms).await {
            Ok(mended) => {
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
        wait(engine, wait_ms).await;
    }
}

/// Waits, no longer than until the clock is set back.
async fn wait(engine: Engine, wait_ms: u64) {
    let sleep = engine.clock().sleep(Duration::from_millis(wait_ms));
    let set_back = Arc::clone(&engine.shared.set_back);
    // Not held over the wait: the store is let go when everybody else is done with it.
    drop(engine);
    tokio::select! {
        () = sleep => {}
        () = set_back.wait() => {}
    }
}

/// Goes through all schedules once; says how many had to be mended.
async fn walk(engine: &Engine, set_back_ms: i64) -> Result<usize, Error> {
    let store = engine.store();
    let (mut mended, mut after) = (0, None);
    loop {
        let tenants = store.schedule_tenants(after.take(), TENANTS_COUNT).await?;
        let is_last = tenants.len() < TENANTS_COUNT;
        after = tenants.last().cloned();
        for tenant in tenants {
            mended += walk_tenant(engine, &tenant, set_back_ms).await?;
        }
        if is_last || engine.is_draining() {
            return Ok(mended);
        }
    }
}

async fn walk_tenant(engine: &Engine, tenant: &Tenant, set_back_ms: i64) -> Result<usize, Error> {
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
        let begun_ms = engine.clock().monotonic_ms();
        let page = engine.store().list_schedules(query).await?;
        let orders = lost(engine, tenant, &page.schedules, set_back_ms).await?;
        if !orders.is_empty() {
            let results = engine.edit_schedules(orders).await?;
            mended += results.iter().flatten().filter(|edited| edited.changed).count();
        }
        after = page.next;
        if after.is_none() || engine.is_draining() {
            return Ok(mended);
        }
        let took_ms = engine.clock().monotonic_ms() - begun_ms;
        let wait_ms = took_ms.saturating_mul(PAGE_WAIT_FACTOR).clamp(PAGE_WAIT_MS, PAGE_WAIT_MS_MAX);
        engine.clock().sleep(Duration::from_millis(wait_ms.unsigned_abs())).await;
    }
}

fn order(schedule: &Schedule, command: ScheduleCommand) -> ScheduleOrder {
    ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version: None, command, key: None }
}

/// Orders for the schedules that wait for nothing, for a job that is not there or has ended, or for longer than they should.
async fn lost(
    engine: &Engine,
    tenant: &Tenant,
    schedules: &[Schedule],
    set_back_ms: i64,
) -> Result<Vec<ScheduleOrder>, Error> {
    let needs_mending = |schedule: &Schedule, job: Option<&Job>| {
        is_lost(job) || job.is_some_and(|job| schedule.is_put_off(job, set_back_ms, engine.clock().now()))
    };
    let waiting: Vec<(&Schedule, JobId)> =
        schedules.iter().filter_map(|schedule| Some((schedule, schedule.next?.job_id))).collect();
    let found = engine.store().get(tenant, waiting.iter().map(|(_, id)| *id).collect()).await;
    let found: Vec<bool> = match found {
        Ok(jobs) => {
            let each = waiting.iter().zip(&jobs);
            each.map(|((schedule, _), job)| needs_mending(schedule, job.as_ref())).collect()
        }
        Err(Error::Corrupt(_)) => each_by_itself(engine, tenant, &waiting, &needs_mending).await?,
        Err(error) => return Err(error),
    };
    let mut found = found.into_iter();
    let mut orders = Vec::new();
    for schedule in schedules {
        if schedule.next.is_none_or(|_| found.next().unwrap_or(true)) {
            orders.push(order(schedule, ScheduleCommand::Rearm { set_back_ms }));
        }
    }
    Ok(orders)
}

/// Which of the schedules need mending, the job of each looked up by itself. One that cannot be read is there; its schedule
/// waits for it, and keeps no other from being mended.
async fn each_by_itself(
    engine: &Engine,
    tenant: &Tenant,
    waiting: &[(&Schedule, JobId)],
    needs_mending: &(impl Fn(&Schedule, Option<&Job>) -> bool + Sync),
) -> Result<Vec<bool>, Error> {
    let mut found = Vec::with_capacity(waiting.len());
    for (schedule, id) in waiting {
        found.push(match engine.store().get(tenant, vec![*id]).await {
            Ok(jobs) => needs_mending(schedule, jobs.first().and_then(Option::as_ref)),
            Err(Error::Corrupt(reason)) => {
                tracing::error!(%tenant, job_id = %id, %reason, "the job that a schedule waits for cannot be read");
                false
            }
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

/// Whether nothing will come of a job.
fn is_lost(job: Option<&Job>) -> bool {
    job.is_none_or(|job| job.status.state.is_finished())
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
            trace: None,
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
