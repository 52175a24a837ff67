//! Repeats of what would be refused by now. What was taken in before is not taken in again, so it needs no room and costs nothing,
//! and it came in time: only where a limit or the clock refuses a request is it looked whether it is one.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tidewheel_api::wire::fault::{Code, Faults};
use tidewheel_core::names::Tenant;
use tidewheel_store::{IdempotencyClaim, Submission, Submitted};

use super::admission::{Admitted, AdmittedSome, Asked, admit, admit_each};
use super::app::App;
use super::call_key::done_before;
use super::problem::Problem;

/// Keys looked for at a time.
const LOOKUPS_COUNT_MAX: usize = 32;

/// Admits jobs, or refuses them. `None`: all of them have keys that are taken, so that none will be new.
pub(super) async fn admit_new(
    app: &Arc<App>,
    tenant: &Tenant,
    jobs: &[Submission],
) -> Result<Option<Admitted>, Problem> {
    match admit(app, tenant, Asked::all(jobs)).await {
        Ok(admitted) => Ok(Some(admitted)),
        Err(problem) if is_repeat(app, tenant, jobs, &problem).await? => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// The same for jobs that are answered for one by one.
pub(super) async fn admit_each_new(
    app: &Arc<App>,
    tenant: &Tenant,
    jobs: &[Submission],
) -> Result<Option<AdmittedSome>, Problem> {
    match admit_each(app, tenant, jobs).await {
        Ok(some) => Ok(Some(some)),
        Err(problem) if is_repeat(app, tenant, jobs, &problem).await? => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Gives back what jobs were charged that turned out to be there already, or were refused.
pub(super) fn settle(admitted: Option<Admitted>, answers: &[Submitted]) {
    if let Some(admitted) = admitted {
        admitted.give_back(answers.iter().filter(|answer| **answer != Submitted::New).count());
    }
}

/// Whether a request was refused by one of the tenant's limits. What the server itself has too much of is another matter.
pub(super) fn is_by_limit(problem: &Problem) -> bool {
    [Code::RateLimited, Code::TooManyWaiting, Code::BatchOverLimit].contains(&problem.code())
}

async fn is_repeat(
    app: &App,
    tenant: &Tenant,
    jobs: &[Submission],
    problem: &Problem,
) -> Result<bool, Problem> {
    if !is_by_limit(problem) || jobs.is_empty() || jobs.iter().any(|job| job.key.is_none()) {
        return Ok(false);
    }
    for some in jobs.chunks(LOOKUPS_COUNT_MAX) {
        let lookups: Vec<_> = some.iter().map(|job| is_taken(app, tenant, job.key.as_ref())).collect();
        if try_join_all(lookups).await?.contains(&false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a key is in use, whatever for: nothing new can come of a request that has it.
pub(super) async fn is_taken(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
) -> Result<bool, Problem> {
    let Some(claim) = claim else { return Ok(false) };
    Ok(app.engine.store().find_key(app.now(), tenant, &claim.key).await?.is_some())
}

/// Whether what has these faults is late and nothing else, and was taken in when it was not.
pub(super) async fn is_late_repeat(
    app: &App,
    tenant: &Tenant,
    claim: Option<&IdempotencyClaim>,
    faults: &Faults,
) -> Result<bool, Problem> {
    Ok(faults.are_of_time() && done_before(app, tenant, claim).await?.is_some())
}

/// Which of these claims are those of requests that were taken in before, in their order.
pub(super) async fn taken_before(
    app: &App,
    tenant: &Tenant,
    claims: &[Option<&IdempotencyClaim>],
) -> Result<Vec<bool>, Problem> {
    let mut taken = Vec::with_capacity(claims.len());
    for some in claims.chunks(LOOKUPS_COUNT_MAX) {
        let lookups: Vec<_> = some.iter().map(|claim| done_before(app, tenant, *claim)).collect();
        taken.extend(try_join_all(lookups).await?.iter().map(Option::is_some));
    }
    Ok(taken)
}
