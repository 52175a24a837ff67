//! What a worker's messages mean to the engine.

use std::sync::Arc;

use prost_types::Duration;
use tidewheel_api::proto::v1::{AttemptRef, Heartbeat, Outcome, Subscribe, outcome, snoozed};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::worker_request::{SNOOZE_MS_DEFAULT, check_small_json, error_excerpt};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Failure, Finding, Priority, Token};
use tidewheel_core::limits::{
    LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, RETRY_DELAY_MS_MAX, WORKER_CREDITS_COUNT_MAX,
    WORKER_HEARTBEAT_MS, WORKER_IDLE_HEARTBEAT_MS_MAX, WORKER_QUEUES_COUNT_MAX, WORKER_TENANTS_COUNT_MAX,
    WORKER_TYPES_COUNT_MAX,
};
use tidewheel_core::names::{InvalidName, Tenant, check_queue, check_type, check_worker};
use tidewheel_core::time::{Timestamp, format_duration};
use tidewheel_store::Order;

use crate::access::Identity;
use crate::engine::{Interest, Resume, Subscription, Tenants};
use crate::grpc::instant::{duration_ms, time};
use crate::http::{Caller, Problem};

/// What is known of a worker when its messages are read.
pub(super) struct Context {
    /// Whose job it means if it does not say.
    pub(super) tenant: Tenant,
    pub(super) interest: Interest,
    pub(super) identity: Identity,
    pub(super) lease_ms: i64,
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidValue, detail)
}

/// Reads a subscription.
pub(super) fn subscription(subscribe: &Subscribe, caller: &Caller) -> Result<Subscription, Problem> {
    let tenant = &caller.tenant;
    check_worker(&subscribe.worker).map_err(|fault| invalid(fault.to_string()))?;
    if subscribe.queues.is_empty() {
        return Err(Problem::new(Code::MissingField, "a worker names the queues it takes jobs of"));
    }
    let mut queues = names("queues", &subscribe.queues, WORKER_QUEUES_COUNT_MAX, check_queue)?;
    queues.sort();
    queues.dedup();
    queues.iter().try_for_each(|queue| caller.identity.check_queue(queue))?;
    let kinds = names("types", &subscribe.types, WORKER_TYPES_COUNT_MAX, check_type)?;
    let kinds = allowed_kinds(&caller.identity, kinds)?;
    let priority_min = match subscribe.min_priority.as_str() {
        "" => Priority::Low,
        name => Priority::from_name(name)
            .ok_or_else(|| invalid("`min_priority`: write one of critical, high, normal, low"))?,
    };
    let lease_ms = match &subscribe.lease {
        Some(lease) => within("lease", lease, LEASE_MS_MIN, LEASE_MS_MAX)?,
        None => LEASE_MS_DEFAULT,
    };
    let idle_heartbeat = subscribe.idle_heartbeat.as_ref();
    let idle_heartbeat_ms = idle_heartbeat
        .map(|every| within("idle_heartbeat", every, WORKER_HEARTBEAT_MS, WORKER_IDLE_HEARTBEAT_MS_MAX))
        .transpose()?;
    let credits = usize::try_from(subscribe.credits).unwrap_or(usize::MAX);
    if credits > WORKER_CREDITS_COUNT_MAX {
        return Err(invalid(format!("`credits`: at most {WORKER_CREDITS_COUNT_MAX}")));
    }
    let resume = subscribe.resume.as_ref().map(|resume| Resume {
        // What is no session's secret resumes none, as one that is over.
        session: u128::from_str_radix(&resume.session, 16).unwrap_or(0),
        holding: attempts(&resume.holding),
    });
    Ok(Subscription {
        tenant: tenant.clone(),
        worker: Arc::from(subscribe.worker.as_str()),
        queues,
        interest: Interest::new(tenants(subscribe, caller)?, kinds, priority_min),
        lease_ms,
        credits,
        resume,
        idle_heartbeat_ms,
    })
}

/// The types a worker gets jobs of: none named is all that its key allows.
fn allowed_kinds(identity: &Identity, kinds: Vec<Arc<str>>) -> Result<Vec<Arc<str>>, Problem> {
    match identity.types() {
        Some([]) => Err(Problem::new(Code::Forbidden, "the key is for no type of jobs")),
        Some(types) if kinds.is_empty() => Ok(types.iter().map(|kind| Arc::from(&**kind)).collect()),
        Some(_) | None => {
            kinds.iter().try_for_each(|kind| identity.check_type(kind))?;
            Ok(kinds)
        }
    }
}

fn tenants(subscribe: &Subscribe, caller: &Caller) -> Result<Tenants, Problem> {
    let own = &caller.tenant;
    if subscribe.all_tenants && !caller.identity.is_admin() {
        return Err(Problem::new(Code::Forbidden, "only an admin key works for all tenants"));
    }
    if subscribe.all_tenants {
        if !subscribe.tenants.is_empty() {
            let detail = "`tenants` and `all_tenants` exclude each other";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        return Ok(Tenants::All);
    }
    if subscribe.tenants.len() > WORKER_TENANTS_COUNT_MAX {
        return Err(invalid(format!("`tenants`: at most {WORKER_TENANTS_COUNT_MAX}")));
    }
    if subscribe.tenants.is_empty() {
        return Ok(Tenants::Only(vec![own.clone()]));
    }
    let refused = |fault: InvalidName| Problem::new(Code::InvalidTenant, fault.to_string());
    let names: Result<Vec<Tenant>, Problem> = subscribe
        .tenants
        .iter()
        .map(|name| caller.identity.tenant(Some(Tenant::new(name).map_err(refused)?)))
        .collect();
    Ok(Tenants::Only(names?))
}

fn names(
    field: &str,
    names: &[String],
    count_max: usize,
    check: fn(&str) -> Result<(), InvalidName>,
) -> Result<Vec<Arc<str>>, Problem> {
    if names.len() > count_max {
        return Err(invalid(format!("`{field}`: at most {count_max}")));
    }
    names
        .iter()
        .map(|name| {
            check(name).map_err(|fault| invalid(format!("`{field}`: {fault}")))?;
            Ok(Arc::from(name.as_str()))
        })
        .collect()
}

fn within(field: &str, duration: &Duration, min_ms: i64, max_ms: i64) -> Result<i64, Problem> {
    let ms = duration_ms(duration);
    if (min_ms..=max_ms).contains(&ms) {
        return Ok(ms);
    }
    let (min, max) = (format_duration(min_ms), format_duration(max_ms));
    Err(invalid(format!("`{field}`: it is {ms} ms; write {min} to {max}")))
}

/// Attempts as the engine knows them; what is no id is nobody's.
pub(super) fn attempts(attempts: &[AttemptRef]) -> Vec<(JobId, Token)> {
    let read = |attempt: &AttemptRef| Some((attempt.id.parse().ok()?, Token::from_u64(attempt.token)));
    attempts.iter().filter_map(read).collect()
}

/// What a heartbeat orders.
pub(super) fn heartbeat(beat: &Heartbeat, context: &Context) -> Result<Order, Problem> {
    let extend_ms = match &beat.extend {
        Some(extend) => within("extend", extend, LEASE_MS_MIN, LEASE_MS_MAX)?,
        None => context.lease_ms,
    };
    let progress = if beat.progress.is_empty() {
        None
    } else {
        check_small_json(&beat.progress).map_err(|(code, detail)| Problem::new(code, detail))?;
        Some(beat.progress.clone())
    };
    let token = Token::from_u64(beat.token);
    order(&beat.id, &beat.tenant, context, Command::Heartbeat { token, extend_ms, progress })
}

/// What an outcome orders.
pub(super) fn outcome(
    outcome: &Outcome,
    context: &Context,
    now: Timestamp,
    jitter: u32,
) -> Result<Order, Problem> {
    let token = Token::from_u64(outcome.token);
    let finding = |detail: &str| Finding { status_code: None, detail: error_excerpt(detail).into() };
    let command = match &outcome.result {
        Some(outcome::Result::Succeeded(succeeded)) => {
            let result = check_small_json(&succeeded.result);
            let result = result.map_err(|(code, detail)| Problem::new(code, detail))?;
            Command::Succeed { token, finding: Finding { status_code: None, detail: result.into() } }
        }
        Some(outcome::Result::Failed(failed)) => {
            let retry_after_ms = match &failed.retry_after {
                Some(after) => Some(within("retry_after", after, 0, RETRY_DELAY_MS_MAX)?),
                None => None,
            };
            let (finding, retryable) = (finding(&failed.error), !failed.r#final);
            let failure = Failure { finding, retryable, timed_out: false, retry_after_ms, jitter };
            Command::Fail { token, failure }
        }
        Some(outcome::Result::Snoozed(snoozed)) => {
            let delay_ms = match &snoozed.when {
                None => SNOOZE_MS_DEFAULT,
                Some(snoozed::When::Delay(delay)) => within("delay", delay, 0, RETRY_DELAY_MS_MAX)?,
                Some(snoozed::When::Until(until)) => {
                    let delay_ms = time(until).since_ms(now).max(0);
                    if delay_ms > RETRY_DELAY_MS_MAX {
                        return Err(invalid("`until`: it is more than 7 days ahead"));
                    }
                    delay_ms
                }
            };
            Command::Snooze { token, delay_ms }
        }
        Some(outcome::Result::Cancelled(cancelled)) => {
            Command::Abandon { token, finding: finding(&cancelled.error) }
        }
        Some(outcome::Result::Released(_)) => Command::Release { token },
        None => return Err(Problem::new(Code::MissingField, "an outcome says what came of the attempt")),
    };
    order(&outcome.id, &outcome.tenant, context, command)
}

fn order(id: &str, tenant: &str, context: &Context, command: Command) -> Result<Order, Problem> {
    // A job of a tenant that the worker does not work for looks like none.
    let no_job = || Problem::new(Code::JobNotFound, "there is no such job");
    let id = id.parse().map_err(|_| no_job())?;
    let tenant = if tenant.is_empty() || tenant == context.tenant.as_str() {
        context.tenant.clone()
    } else {
        Tenant::new(tenant).map_err(|_| no_job())?
    };
    if !context.interest.covers(tenant.as_str()) {
        return Err(no_job());
    }
    Ok(Order { tenant, id, command, key: None })
}
