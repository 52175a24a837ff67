//! Recording one call: who and what from the request, and from the answer what became of it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::RequestExt as _;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tidewheel_api::wire::audit::Act;
use tidewheel_api::wire::fault::Code;
use tidewheel_core::limits::{AUDIT_FIELDS_COUNT_MAX, AUDIT_TEXT_CHARS_MAX};
use tidewheel_core::names::Tenant;

use super::sums::Counted;
use super::{Auditor, actor};
use crate::access::{Identity, Peer};
use crate::directory::ApiKey;
use crate::http::{Caller, Problem};
use crate::random::{Random as _, SystemRandom};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Answers up to this size are looked into for the id of what was made.
const ANSWER_BYTES_MAX: u64 = 64 * 1_024;

/// The names of the fields of a request's body, noted by whoever reads it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Arc<Mutex<Vec<String>>>);

impl Fields {
    /// Notes the names in a body; one that is no JSON object has none.
    pub(crate) fn note(&self, body: &str) {
        let names = serde_json::from_str::<std::collections::BTreeMap<String, IgnoredAny>>(body);
        let names = names.unwrap_or_default().into_keys().take(AUDIT_FIELDS_COUNT_MAX);
        *self.lock() = names.map(|name| shortened(&name)).collect();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What whoever served a call knows better than its request says, put beside the answer.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// Who it was: those who sign in or out say so in the request itself.
    Who(Arc<ApiKey>),
    /// Whose the object is.
    Whose(Tenant),
}

impl Told {
    /// Puts it beside an answer.
    pub(crate) fn beside(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }

    fn correct(self, act: &mut Act) {
        match self {
            Self::Who(key) => {
                act.actor = key.id.to_string();
                act.tenant = key.tenant.to_string();
            }
            Self::Whose(tenant) => act.tenant = tenant.to_string(),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(AUDIT_TEXT_CHARS_MAX).collect()
}

/// Serves a call and records it, to the end even if the caller hangs up.
pub(crate) async fn served(
    auditor: Arc<Auditor>,
    action: Arc<str>,
    call: Arc<str>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut act = draft(&action, &call, &mut request).await;
    let fields = Fields::default();
    request.extensions_mut().insert(fields.clone());
    let work = async move {
        let mut response = next.run(request).await;
        act.status = response.status().as_u16();
        act.fields = fields.take();
        let told = response.extensions_mut().remove::<Told>();
        if response.status().is_client_error() {
            // Nothing was done.
            if response.status() == StatusCode::FORBIDDEN {
                auditor.count(counted(&act, &action, &call));
            }
            return response;
        }
        if act.object.is_none() {
            response = look_into(response, &mut act).await;
        }
        if let Some(told) = told {
            told.correct(&mut act);
        }
        if response.status().is_server_error() {
            // Nobody knows what was done. Whatever keeps the server from it may keep the record from being written,
            // and the answer is not to wait for that.
            tokio::spawn(async move { record(&auditor, &act).await });
            return response;
        }
        match record(&auditor, &act).await {
            Ok(()) => response,
            Err(problem) => problem.into_response(),
        }
    };
    tokio::spawn(work).await.unwrap_or_else(|fault| {
        tracing::error!(error = %fault, "a call did not end");
        Problem::new(Code::Internal, "the server failed; its log says more").into_response()
    })
}

async fn record(auditor: &Auditor, act: &Act) -> Result<(), Problem> {
    auditor.record(act).await.map_err(|error| {
        let id = act.request_id.as_deref().unwrap_or_default();
        tracing::error!(%error, action = act.action, request_id = id, "a call could not be recorded");
        let detail =
            format!("the call was carried out, but could not be recorded in the audit trail: {error}");
        Problem::new(Problem::from(error).code(), detail)
    })
}

/// Counts a call that was served.
pub(crate) async fn sum_up(
    auditor: Arc<Auditor>,
    action: Arc<str>,
    call: Arc<str>,
    request: Request,
    next: Next,
) -> Response {
    if !auditor.sums_calls() {
        return next.run(request).await;
    }
    let (tenant, actor, address) = who(&request);
    let response = next.run(request).await;
    let status = response.status().as_u16();
    auditor.count(Counted { tenant, actor, address, action, call, status });
    response
}

/// A call that is counted once it is served.
pub(crate) struct Summed {
    auditor: Arc<Auditor>,
    counted: Counted,
}

impl Summed {
    /// Of whoever calls, for that tenant, or else their own; `None` where calls are not counted.
    pub(crate) fn begin(
        auditor: &Arc<Auditor>,
        (action, call): (&Arc<str>, &Arc<str>),
        tenant: Option<&Tenant>,
        identity: &Identity,
        peer: Option<Peer>,
    ) -> Option<Self> {
        if !auditor.sums_calls() {
            return None;
        }
        let own = || identity.tenant(None).unwrap_or_default();
        let counted = Counted {
            tenant: tenant.cloned().unwrap_or_else(own),
            actor: actor(identity).into(),
            address: peer.map(|Peer(address)| address),
            action: Arc::clone(action),
            call: Arc::clone(call),
            status: 0,
        };
        Some(Self { auditor: Arc::clone(auditor), counted })
    }

    /// It was answered.
    pub(crate) fn served(mut self, status: StatusCode) {
        self.counted.status = status.as_u16();
        self.auditor.count(self.counted);
    }
}

/// Counts a call that somebody may not make.
pub(crate) fn refused(
    auditor: &Arc<Auditor>,
    identity: &Identity,
    action: &Arc<str>,
    call: &Arc<str>,
    peer: Option<Peer>,
) {
    let counted = Counted {
        tenant: identity.tenant(None).unwrap_or_default(),
        actor: actor(identity).into(),
        address: peer.map(|Peer(address)| address),
        action: Arc::clone(action),
        call: Arc::clone(call),
        status: StatusCode::FORBIDDEN.as_u16(),
    };
    auditor.count(counted);
}

fn counted(act: &Act, action: &Arc<str>, call: &Arc<str>) -> Counted {
    Counted {
        // An act names a tenant that was let through as one.
        tenant: Tenant::new(&act.tenant).unwrap_or_default(),
        actor: act.actor.as_str().into(),
        address: act.address.as_ref().and_then(|address| address.parse().ok()),
        action: Arc::clone(action),
        call: Arc::clone(call),
        status: act.status,
    }
}

/// Tenant, actor and address of a request that was let through.
fn who(request: &Request) -> (Tenant, Box<str>, Option<std::net::IpAddr>) {
    let (headers, extensions) = (request.headers(), request.extensions());
    let identity = extensions.get::<Identity>();
    let own = || identity.and_then(|identity| identity.tenant(None).ok()).unwrap_or_default();
    let tenant = Caller::of(headers, extensions).map_or_else(|_| own(), |caller| caller.tenant);
    let address = extensions.get::<Peer>().map(|Peer(address)| *address);
    (tenant, identity.map_or("anonymous", actor).into(), address)
}

async fn draft(action: &str, call: &str, request: &mut Request) -> Act {
    let (tenant, actor, address) = who(request);
    let names = request.extract_parts::<Path<Vec<(String, String)>>>().await;
    let names = names.map(|Path(names)| names).unwrap_or_default();
    // What is done to a tenant concerns that one.
    let named = names.first().filter(|_| call.contains("/tenants/{id}"));
    let named = named.and_then(|(_, name)| Tenant::new(name).ok());
    Act {
        tenant: named.unwrap_or(tenant).as_str().to_owned(),
        actor: actor.as_ref().to_owned(),
        address: address.map(|address| address.to_string()),
        action: action.to_owned(),
        // What is made is named by the answer.
        object: names.last().filter(|_| !action.ends_with(".create")).map(|(_, name)| shortened(name)),
        call: call.to_owned(),
        request_id: Some(request_id(request.headers())),
        status: 0,
        fields: Vec::new(),
        count: 1,
    }
}

/// As the caller chose it, or a new one.
fn request_id(headers: &HeaderMap) -> String {
    let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    sent.map_or_else(|| format!("req_{:032x}", SystemRandom.tail()), shortened)
}

/// What a call made, as its answer names it.
#[derive(Deserialize)]
struct Made {
    id: Option<String>,
    name: Option<String>,
    tenant: Option<String>,
}

/// Takes the id of what was made, and whose it is, from the answer.
async fn look_into(response: Response, act: &mut Act) -> Response {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_small = response.body().size_hint().upper().is_some_and(|bytes| bytes <= ANSWER_BYTES_MAX);
    if !is_json || !is_small || !response.status().is_success() {
        return response;
    }
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Problem::new(Code::Internal, "the server failed; its log says more").into_response();
    };
    if let Ok(made) = serde_json::from_slice::<Made>(&body) {
        act.object = made.id.or(made.name).map(|name| shortened(&name));
        if let Some(tenant) = made.tenant.filter(|tenant| Tenant::new(tenant).is_ok()) {
            act.tenant = tenant;
        }
    }
    Response::from_parts(head, Body::from(body))
}
