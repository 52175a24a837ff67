//! Who calls, and for which tenant: the one place that decides it. What they may do was asked before, by
//! [`crate::access`].

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use http::{Extensions, HeaderMap};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;

use super::app::App;
use super::problem::Problem;
use crate::access::Identity;

const TENANT_HEADER: &str = "tidewheel-tenant";

/// For whom a request acts.
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// The tenant that the request names.
    pub(crate) named: Option<Tenant>,
    pub(crate) identity: Identity,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        Self::of(&parts.headers, &parts.extensions)
    }
}

impl Caller {
    /// Who makes a call with these headers.
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Result<Self, Problem> {
        let Some(identity) = extensions.get::<Identity>().cloned() else {
            tracing::error!("a call was served without asking who calls");
            return Err(Problem::new(Code::Internal, "the server failed; its log says more"));
        };
        Self::with(headers, identity)
    }

    /// The same, where it is known already who calls.
    pub(super) fn with(headers: &HeaderMap, identity: Identity) -> Result<Self, Problem> {
        let named = named_tenant(headers)?;
        Ok(Self { tenant: identity.tenant(named.clone())?, named, identity })
    }
}

fn named_tenant(headers: &HeaderMap) -> Result<Option<Tenant>, Problem> {
    let Some(name) = headers.get(TENANT_HEADER) else { return Ok(None) };
    let invalid = |detail: String| Problem::new(Code::InvalidTenant, detail);
    let name = name.to_str().map_err(|_| invalid("the tenant's name is not ASCII".to_owned()))?;
    Tenant::new(name).map(Some).map_err(|fault| invalid(fault.to_string()))
}

/// The job named in the path. What is no id names no job.
pub(super) struct JobPath(pub(super) JobId);

impl FromRequestParts<Arc<App>> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| no_job())?;
        text.parse().map(Self).map_err(|fault| Problem::new(Code::JobNotFound, ToString::to_string(&fault)))
    }
}

/// The answer for a job that is not there, or is another tenant's: the two look the same.
pub(super) fn no_job() -> Problem {
    Problem::new(Code::JobNotFound, "there is no such job")
}

/// The schedule named in the path. What is no id names no schedule.
pub(super) struct SchedulePath(pub(super) ScheduleId);

impl FromRequestParts<Arc<App>> for SchedulePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| no_schedule())?;
        let refused = |fault| Problem::new(Code::ScheduleNotFound, ToString::to_string(&fault));
        text.parse::<ScheduleId>().map(Self).map_err(refused)
    }
}

/// The answer for a schedule that is not there, or is another tenant's: the two look the same.
pub(super) fn no_schedule() -> Problem {
    Problem::new(Code::ScheduleNotFound, "there is no such schedule")
}

/// The name in the path.
pub(super) struct NamePath(pub(super) String);

impl FromRequestParts<Arc<App>> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let refused = |_| Problem::new(Code::MalformedRequest, "the name in the address is not UTF-8");
        Path::<String>::from_request_parts(parts, app).await.map(|Path(name)| Self(name)).map_err(refused)
    }
}
