//! What a caller may do with jobs and schedules that are there already. A key that is limited to types and queues acts on
//! nothing else, and only the submitters of a type have its jobs run, once more or sooner. Whoever is not limited, where
//! nothing is registered, pays one lookup and no read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_api::wire::fault::Code;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{ScheduleId, Template};
use tidewheel_store::{Error, Order, Refusal, Store};

use super::app::App;
use super::caller::Caller;
use super::problem::{Problem, unreadable_job};
use super::registered::Registered;
use crate::access::Identity;

/// What is done with a job or a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It is changed, moved or ended.
    Change,
    /// Its jobs run, which whoever does it must be allowed to submit.
    Run,
}

/// Jobs an act may be done with, and those it may not, each with why.
pub(super) type Sorted = (Vec<JobId>, Vec<(JobId, Problem)>);

/// What one caller may act on.
pub(super) struct Scope<'a> {
    app: &'a App,
    caller: &'a Caller,
    act: Act,
    registered: Registered<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn of(app: &'a App, caller: &'a Caller, act: Act) -> Self {
        Self { app, caller, act, registered: Registered::of(app, caller) }
    }

    /// Whether everything of the tenant is within it, so that nothing need be read.
    fn is_whole(&self) -> bool {
        let Caller { identity, .. } = self.caller;
        !identity.is_limited()
            && (self.act == Act::Change || identity.is_admin() || self.registered.is_empty())
    }

    fn check(&self, kind: &str, destination: &Destination) -> Result<(), Problem> {
        self.caller.identity.check_place(kind, destination)?;
        match self.act {
            Act::Change => Ok(()),
            Act::Run => self.registered.check_submitter(kind),
        }
    }

    /// Refuses a schedule, by what its jobs are like.
    pub(super) fn check_template(&self, template: &Template) -> Result<(), Problem> {
        self.check(&template.kind, &template.destination)
    }

    /// Refuses a schedule. One that is not there is for the order to answer.
    pub(super) async fn check_schedule(&self, id: ScheduleId) -> Result<(), Problem> {
        if self.is_whole() {
            return Ok(());
        }
        let found = self.app.engine.store().schedules(&self.caller.tenant, vec![id]).await?;
        found.into_iter().flatten().try_for_each(|found| self.check_template(&found.definition.template))
    }

    /// Refuses a job. One that is not there is for the order to answer.
    pub(super) async fn check_job(&self, id: JobId) -> Result<(), Problem> {
        match self.sort(vec![id]).await?.1.pop() {
            Some((_, problem)) => Err(problem),
            None => Ok(()),
        }
    }

    /// Tells the jobs it may act on, those that are not there among them, from the others.
    pub(super) async fn sort(&self, ids: Vec<JobId>) -> Result<Sorted, Problem> {
        if self.is_whole() || ids.is_empty() {
            return Ok((ids, Vec::new()));
        }
        let jobs = look_up(&**self.app.engine.store(), &self.caller.tenant, &ids).await?;
        let (mut within, mut beyond) = (Vec::with_capacity(ids.len()), Vec::new());
        for (id, job) in ids.into_iter().zip(jobs) {
            let check = |job: Job| self.check(&job.spec.kind, &job.spec.destination);
            match job.and_then(|job| job.map_or(Ok(()), check)) {
                Ok(()) => within.push(id),
                Err(problem) => beyond.push((id, problem)),
            }
        }
        Ok((within, beyond))
    }
}

/// Jobs by id, each by itself where one of them cannot be read: it costs the others nothing.
pub(super) async fn look_up(
    store: &dyn Store,
    tenant: &Tenant,
    ids: &[JobId],
) -> Result<Vec<Result<Option<Job>, Problem>>, Error> {
    match store.get(tenant, ids.to_vec()).await {
        Err(Error::Corrupt(_)) => {}
        found => return Ok(found?.into_iter().map(Ok).collect()),
    }
    let mut each = Vec::with_capacity(ids.len());
    for id in ids {
        each.push(match store.get(tenant, vec![*id]).await {
            Err(error @ Error::Corrupt(_)) => Err(unreadable_job(*id, &error)),
            found => Ok(found?.pop().flatten()),
        });
    }
    Ok(each)
}

/// Refuses what a worker reports of jobs that its key is not for: tokens are numbers, and could be guessed.
pub(crate) async fn check_reports(
    identity: &Identity,
    store: &dyn Store,
    orders: Vec<Result<Order, Problem>>,
) -> Result<Vec<Result<Order, Problem>>, Error> {
    if !identity.is_limited() {
        return Ok(orders);
    }
    let mut asked: BTreeMap<Tenant, Vec<JobId>> = BTreeMap::new();
    for order in orders.iter().flatten() {
        asked.entry(order.tenant.clone()).or_default().push(order.id);
    }
    let mut places: FxHashMap<JobId, (Arc<str>, Destination)> = FxHashMap::default();
    let mut unreadable = BTreeSet::new();
    for (tenant, ids) in asked {
        let jobs = look_up(store, &tenant, &ids).await?;
        for (id, job) in ids.into_iter().zip(jobs) {
            match job {
                Ok(job) => {
                    places.extend(job.map(|job| (id, (job.spec.kind.clone(), job.spec.destination.clone()))))
                }
                Err(_) => drop(unreadable.insert(id)),
            }
        }
    }
    let checked = |order: Order| match places.get(&order.id) {
        Some((kind, destination)) => identity.check_place(kind, destination).map(|()| order),
        None if unreadable.contains(&order.id) => Err(Refusal::Unreadable.into()),
        // One that is not there is for the order to answer.
        None => Ok(order),
    };
    Ok(orders.into_iter().map(|order| order.and_then(checked)).collect())
}

/// The same, for one.
pub(crate) async fn check_report(
    identity: &Identity,
    store: &dyn Store,
    order: Order,
) -> Result<Order, Problem> {
    let checked = check_reports(identity, store, vec![Ok(order)]).await?.pop();
    checked.unwrap_or_else(|| Err(Problem::new(Code::Internal, "the store did not answer for the job")))
}
