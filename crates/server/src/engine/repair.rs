//! Walks through all schedules, at the start and every so often after it, and mends what does not go on by
//! itself: a schedule whose waiting occurrence is lost. The walk keeps to a pace and holds one page at a time.

use std::sync::Weak;
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
/// Between two pages: long enough that a herd at the top of the hour does not share the machine with the walk.
const PAGE_WAIT_MS: u64 = 100;
/// Tenants listed at once.
const TENANTS_COUNT: usize = 100;

/// Runs as long as somebody else holds the engine.
pub(super) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(engine) = shared.upgrade().map(|shared| Engine { shared }) else { return };
        if engine.is_draining() {
            return;
        }
        if !engine.shared.is_appointed("repair", APPOINTED_MS).await {
            let sleep = engine.clock().sleep(Duration::from_millis(WALK_WAIT_MS));
            drop(engine);
            sleep.await;
            continue;
        }
        let wait_ms = match walk(&engine).await {
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
        let sleep = engine.clock().sleep(Duration::from_millis(wait_ms));
        // Not held over the wait: the store is let go when everybody else is done with it.
        drop(engine);
        sleep.await;
    }
}

/// Goes through all schedules once; says how many had to be mended.
async fn walk(engine: &Engine) -> Result<usize, Error> {
    let store = engine.store();
    let (mut mended, mut after) = (0, None);
    loop {
        let tenants = store.schedule_tenants(after.take(), TENANTS_COUNT).await?;
        let is_last = tenants.len() < TENANTS_COUNT;
        after = tenants.last().cloned();
        for tenant in tenants {
            mended += walk_tenant(engine, &tenant).await?;
        }
        if is_last || engine.is_draining() {
            return Ok(mended);
        }
    }
}

async fn walk_tenant(engine: &Engine, tenant: &Tenant) -> Result<usize, Error> {
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
        let orders = lost(engine, tenant, &page.schedules).await?;
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
    ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version: None, command, key: None }
}

/// Orders for the schedules that wait for nothing, or for a job that is not there or has ended.
async fn lost(engine: &Engine, tenant: &Tenant, schedules: &[Schedule]) -> Result<Vec<ScheduleOrder>, Error> {
    let ids: Vec<JobId> =
        schedules.iter().filter_map(|schedule| schedule.next.map(|next| next.job_id)).collect();
    let found: Vec<bool> = match engine.store().get(tenant, ids.clone()).await {
        Ok(jobs) => jobs.iter().map(|job| is_lost(job.as_ref())).collect(),
        Err(Error::Corrupt(_)) => each_lost(engine, tenant, ids).await?,
        Err(error) => return Err(error),
    };
    let mut found = found.into_iter();
    let mut orders = Vec::new();
    for schedule in schedules {
        if schedule.next.is_none_or(|_| found.next().unwrap_or(true)) {
            orders.push(order(schedule, ScheduleCommand::Rearm));
        }
    }
    Ok(orders)
}

/// Which of the jobs are lost, each looked up by itself. One that cannot be read is there; its schedule waits for it, and keeps
/// no other from being mended.
async fn each_lost(engine: &Engine, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<bool>, Error> {
    let mut lost = Vec::with_capacity(ids.len());
    for id in ids {
        lost.push(match engine.store().get(tenant, vec![id]).await {
            Ok(jobs) => is_lost(jobs.first().and_then(Option::as_ref)),
            Err(Error::Corrupt(reason)) => {
                tracing::error!(%tenant, job_id = %id, %reason, "the job that a schedule waits for cannot be read");
                false
            }
            Err(error) => return Err(error),
        });
    }
    Ok(lost)
}

/// Whether nothing will come of the job a schedule waits for.
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
