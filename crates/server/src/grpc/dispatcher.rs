//! `database.scheduler.v1.SchedulerDispatcher`: claiming and reporting in two calls, over the same engine functions as
//! everything else. The messages have no place for a fencing token, so `trigger_id` carries it, and the job's
//! tenant: without keys, a client need not say for whom it works. It carries the length of the lease, too: a client that claims
//! for ten minutes says every few that it is alive, and each time means ten more.

use std::sync::Arc;

use tidewheel_api::proto::dispatcher::scheduler_dispatcher_server::SchedulerDispatcher;
use tidewheel_api::proto::dispatcher::{
    ClaimTriggersRequest, ClaimTriggersResponse, TaskPayload, UpdateAttemptRequest, UpdateAttemptResponse,
};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::job_request::QUEUE_DEFAULT;
use tidewheel_api::wire::worker_request::{TAKE_COUNT_MAX, error_excerpt};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Failure, Finding, Job, Rejection, Token};
use tidewheel_core::limits::{LEASE_MS_DEFAULT, LEASE_MS_MAX, SECOND_MS};
use tidewheel_core::names::{Tenant, check_queue, check_worker};
use tidewheel_store::{Order, Refusal};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::status::status;
use crate::access::Identity;
use crate::engine::{Engine, Take, Tenants};
use crate::http::{Caller, Problem, check_report};

/// Names another queue than the default one.
const QUEUE_KEY: &str = "tidewheel-queue";
/// How long a claim waits for something due. Short: the caller polls.
const CLAIM_WAIT_MS: i64 = 100;
/// Between the parts of a trigger's id.
const SEPARATOR: char = '.';
/// Between the token and the seconds of the lease, where these are said.
const LEASE_MARK: char = '~';
/// The longest lease.
const LEASE_S_MAX: i64 = LEASE_MS_MAX / SECOND_MS;

/// The service.
pub(super) struct DispatcherService {
    engine: Engine,
}

impl DispatcherService {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl SchedulerDispatcher for DispatcherService {
    async fn claim_triggers(
        &self,
        request: Request<ClaimTriggersRequest>,
    ) -> Result<Response<ClaimTriggersResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let queue = queue(&metadata)?;
        let Caller { tenant, named, identity } = Caller::of(&metadata.into_headers(), &extensions)?;
        // Its clients know of no metadata, and say for whom a job is in its body.
        let tenants = match (&identity, named) {
            (Identity::Anyone, None) => Tenants::All,
            (Identity::Anyone | Identity::Key(_), _) => Tenants::Only(vec![tenant]),
        };
        identity.check_queue(&queue)?;
        let invalid = |detail: String| status(Code::InvalidValue, detail);
        check_worker(&request.worker_id).map_err(|fault| invalid(fault.to_string()))?;
        let count_max = usize::try_from(request.max_tasks).unwrap_or(0);
        if !(1..=TAKE_COUNT_MAX).contains(&count_max) {
            return Err(invalid(format!("`max_tasks`: write 1 to {TAKE_COUNT_MAX}")));
        }
        let lease_ms = match request.lease_duration_seconds {
            0 => LEASE_MS_DEFAULT,
            seconds if (1..=LEASE_S_MAX).contains(&seconds) => seconds * SECOND_MS,
            _ => return Err(invalid(format!("`lease_duration_seconds`: write 1 to {LEASE_S_MAX}"))),
        };
        let worker = Arc::from(request.worker_id);
        let kinds = identity.kinds()?;
        let take = Take { tenants, queue, kinds, worker, count_max, wait_ms: CLAIM_WAIT_MS, lease_ms };
        let jobs = self.engine.take(take).await.map_err(Problem::from)?;
        Ok(Response::new(ClaimTriggersResponse {
            tasks: jobs.iter().map(|job| task(job, lease_ms)).collect(),
        }))
    }

    async fn update_attempt_status(
        &self,
        request: Request<UpdateAttemptRequest>,
    ) -> Result<Response<UpdateAttemptResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let Caller { tenant, named, identity } = Caller::of(&metadata.into_headers(), &extensions)?;
        let Some(trigger) = Trigger::read(&request.trigger_id) else {
            return Err(status(Code::JobNotFound, "`trigger_id` is not one that was handed out"));
        };
        let command = self.command(&request, &trigger)?;
        let tenant = match (&identity, named) {
            (Identity::Anyone, None) => trigger.tenant.unwrap_or(tenant),
            (Identity::Anyone | Identity::Key(_), _) => tenant,
        };
        let order = Order { tenant, id: trigger.id, command, key: None };
        let orders = vec![check_report(&identity, &**self.engine.store(), order).await?];
        let engine = self.engine.clone();
        // To its end, even if the caller hangs up.
        let applied = tokio::spawn(async move { engine.command(orders).await });
        let applied =
            applied.await.map_err(|_| status(Code::Internal, "the server failed; its log says more"))?;
        let success = match applied.map_err(Problem::from)?.pop() {
            Some(Ok(_)) => true,
            Some(Err(Refusal::Rejected(Rejection::StaleToken))) => false,
            Some(Err(refusal)) => return Err(Problem::from(refusal).into()),
            None => return Err(status(Code::Internal, "the store did not answer for the job")),
        };
        Ok(Response::new(UpdateAttemptResponse { success }))
    }
}

impl DispatcherService {
    fn command(&self, request: &UpdateAttemptRequest, trigger: &Trigger) -> Result<Command, Status> {
        let token = trigger.token;
        let finding = || Finding { status_code: None, detail: error_excerpt(&request.error_message).into() };
        Ok(match request.status.as_str() {
            "STARTED" | "RUNNING" => {
                Command::Heartbeat { token, extend_ms: trigger.extend_ms, progress: None }
            }
            "SUCCEEDED" => Command::Succeed { token, finding: Finding::default() },
            "CANCELLED" => Command::Abandon { token, finding: finding() },
            "FAILED" => {
                let jitter = self.engine.random().jitter();
                let finding = finding();
                let failure =
                    Failure { finding, retryable: true, timed_out: false, retry_after_ms: None, jitter };
                Command::Fail { token, failure }
            }
            _ => {
                let detail = "`status`: write STARTED, RUNNING, SUCCEEDED, FAILED or CANCELLED";
                return Err(status(Code::InvalidValue, detail));
            }
        })
    }
}

fn queue(metadata: &MetadataMap) -> Result<Arc<str>, Status> {
    let Some(value) = metadata.get(QUEUE_KEY) else { return Ok(Arc::from(QUEUE_DEFAULT)) };
    let name = value.to_str().map_err(|_| status(Code::InvalidValue, "the queue's name is not ASCII"))?;
    check_queue(name).map_err(|fault| status(Code::InvalidValue, fault.to_string()))?;
    Ok(Arc::from(name))
}

fn task(job: &Job, lease_ms: i64) -> TaskPayload {
    let occurrence = job.spec.occurrence.as_ref();
    let registered = occurrence.map(|occurrence| occurrence.schedule_id.to_string());
    let scheduled = occurrence.map_or(job.id.run_at(), |occurrence| occurrence.fire_at);
    let (token, lease_s) = (job.status.token.as_u64(), lease_ms / SECOND_MS);
    TaskPayload {
        trigger_id: format!("{}{SEPARATOR}{token}{LEASE_MARK}{lease_s}{SEPARATOR}{}", job.id, job.tenant),
        job_id: registered.unwrap_or_else(|| job.id.to_string()),
        tenant_id: job.tenant.to_string(),
        job_type: job.spec.kind.to_string(),
        payload_json: String::from_utf8_lossy(&job.spec.payload).into_owned(),
        scheduled_time_epoch: scheduled.as_ms().div_euclid(SECOND_MS),
    }
}

/// What a trigger's id says.
struct Trigger {
    id: JobId,
    token: Token,
    /// How long a sign of life is good for: as long as the claim was, but no shorter than usual.
    extend_ms: i64,
    /// Whose job it is, if that was said.
    tenant: Option<Tenant>,
}

impl Trigger {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, SEPARATOR);
        let (id, attempt) = (parts.next()?.parse().ok()?, parts.next()?);
        let (token, extend_ms) = match attempt.split_once(LEASE_MARK) {
            Some((token, lease_s)) => {
                let lease_s =
                    lease_s.parse::<i64>().ok().filter(|seconds| (1..=LEASE_S_MAX).contains(seconds))?;
                (token, LEASE_MS_DEFAULT.max(lease_s * SECOND_MS))
            }
            // One that does not say it has the usual.
            None => (attempt, LEASE_MS_DEFAULT),
        };
        let tenant = parts.next().map(Tenant::new).transpose().ok()?;
        Some(Self { id, token: Token::from_u64(token.parse().ok()?), extend_ms, tenant })
    }
}
