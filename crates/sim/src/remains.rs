//! What is in the store: all of it when a run is over, and what has not ended before that.

use std::collections::BTreeMap;

use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::Schedule;
use tidewheel_store::{Filter, ListQuery, ScheduleQuery, Store};

use crate::checker::{KeptSchedule, Ledger};
use crate::plan::{ClusterStrike, Strike};
use crate::weather::Weather;
use crate::world::World;

/// Everything there is, as it is at one instant: nothing happens while it is read.
pub async fn read(world: &World) -> Ledger {
    world.weathers().for_each(Weather::stand_still);
    let mut ledger = Ledger {
        jobs: BTreeMap::new(),
        schedules: BTreeMap::new(),
        call_ms_max: call_ms_max(world),
        skew_ms_max: world.plan.skew_ms_max,
        ended_at: world.now(),
    };
    let Some(store) = world.looked_at() else { return ledger };
    let store = store.as_ref();
    for tenant in world.tenants() {
        let jobs = list(store, &tenant, Vec::new()).await;
        ledger.jobs.extend(jobs.into_iter().map(|job| (job.id, job)));
        for schedule in schedules(store, &tenant).await {
            let page = store.ledger(&tenant, schedule.id, None, usize::MAX).await;
            let entries = page.map(|page| page.entries).unwrap_or_default();
            ledger.schedules.insert(schedule.id, KeptSchedule { schedule, entries });
        }
    }
    ledger
}

/// How long calls took, unless they were held up for who knows how long or the clock was set back meanwhile.
fn call_ms_max(world: &World) -> Option<i64> {
    let plan = &world.plan;
    let is_held_up = plan.strikes.contains(&Strike::Pause)
        || plan.cluster_strikes.contains(&ClusterStrike::Pause)
        || plan.cluster_strikes.contains(&ClusterStrike::CutOff);
    let is_certain = world.clock.set_back_ms() == 0 && plan.skew_ms_max == 0 && !is_held_up;
    is_certain.then(|| world.plan.climate.call_ms_max())
}

/// One tenant's jobs that have not ended.
pub async fn unfinished(store: &dyn Store, tenant: &Tenant) -> Vec<Job> {
    let states = State::ALL.into_iter().filter(|state| !state.is_finished()).collect();
    list(store, tenant, states).await
}

async fn list(store: &dyn Store, tenant: &Tenant, states: Vec<State>) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let filter = Filter { states: states.clone(), ..Filter::default() };
        let query = ListQuery { tenant: tenant.clone(), filter, after, count_max: LIST_SCAN_COUNT_MAX };
        let Ok(page) = store.list(query).await else { return jobs };
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}

async fn schedules(store: &dyn Store, tenant: &Tenant) -> Vec<Schedule> {
    let query = ScheduleQuery {
        tenant: tenant.clone(),
        states: Vec::new(),
        kind: None,
        calendar: None,
        after: None,
        count_max: LIST_SCAN_COUNT_MAX,
    };
    store.list_schedules(query).await.map(|page| page.schedules).unwrap_or_default()
}
