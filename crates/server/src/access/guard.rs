//! Asks before a call is served: who calls is known to what serves it, and whoever may not never reaches it. What
//! changes something is recorded on the way ([`crate::audit`]).

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use rustc_hash::FxHashMap;
use tonic::Status;

use super::host::refuse_names_of_sites;
use super::origin::refuse_other_origins;
use super::rules::RULES;
use super::{Access, Identity, Need, Peer, Session};
use crate::audit::{self, Auditor, Summed, Trail, trail_of};
use crate::http::{Caller, Problem};

/// Where a gRPC call came from, for the calls of the HTTP API that it becomes.
pub(crate) const ORIGIN_METADATA: &str = "tidewheel-origin";

/// How the paths of calls begin that are about what the directory has.
const OF_DIRECTORY: [&str; 3] = ["/v1/tenants", "/v1/keys", "/v1/types"];

/// What is asked of a route before it is served, and what is recorded of it.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    call: Arc<str>,
    need: Need,
    trail: Trail,
}

impl Guard {
    /// That of a call; `None` for one that has no rule.
    pub(crate) fn of(call: &str) -> Option<Self> {
        static ALL: LazyLock<FxHashMap<&str, Guard>> = LazyLock::new(|| {
            let guard = |call: &str, need| Guard { call: call.into(), need, trail: trail_of(call, need) };
            RULES.iter().map(|(call, need)| (*call, guard(call, *need))).collect()
        });
        ALL.get(call).cloned()
    }

    /// Whether the audit trail has how many such calls there were, not each of them.
    pub(crate) fn is_summed(&self) -> bool {
        matches!(self.trail, Trail::Sum(_))
    }

    /// Begins to sum a call up whose caller is known; `None` if it is not summed up.
    pub(crate) fn begin_sum(
        &self,
        auditor: &Arc<Auditor>,
        caller: Option<&Caller>,
        identity: &Identity,
        peer: Option<Peer>,
    ) -> Option<Summed> {
        let Trail::Sum(action) = &self.trail else { return None };
        Summed::begin(auditor, (action, &self.call), caller.map(|caller| &caller.tenant), identity, peer)
    }
}

/// Serves a route of the HTTP API to whoever may call it.
pub(crate) async fn guard_route(access: Arc<Access>, guard: Guard, request: Request, next: Next) -> Response {
    match admit(&access, &guard, request).await {
        Ok(request) => serve(&access, guard, request, next).await,
        Err(problem) => problem.into_response(),
    }
}

/// Serves a method of the gRPC API to whoever may call it.
pub(crate) async fn guard_call(access: Arc<Access>, mut request: Request, next: Next) -> Response {
    // Cookies are for the web pages, which do not call this way.
    request.headers_mut().remove(COOKIE);
    note_origin(&mut request);
    let path = request.uri().path();
    // One that is not there is answered for as what needs most, so that strangers cannot tell.
    let unknown = || Guard { call: path.into(), need: Need::Administer, trail: Trail::Nothing };
    let guard = Guard::of(path).unwrap_or_else(unknown);
    match admit(&access, &guard, request).await {
        Ok(request) => serve(&access, guard, request, next).await,
        Err(problem) => Status::from(problem).into_http::<Body>(),
    }
}

/// Says in the metadata where a call comes from, whatever the caller says there.
fn note_origin(request: &mut Request) {
    let address = request.extensions().get::<Peer>().map(|Peer(address)| address.to_string());
    let headers = request.headers_mut();
    headers.remove(ORIGIN_METADATA);
    if let Some(address) = address.and_then(|address| HeaderValue::try_from(address).ok()) {
        headers.insert(ORIGIN_METADATA, address);
    }
}

async fn serve(access: &Access, guard: Guard, request: Request, next: Next) -> Response {
    let auditor = Arc::clone(access.auditor());
    match guard.trail {
        Trail::Nothing => next.run(request).await,
        Trail::Act(action) => audit::served(auditor, action, guard.call, request, next).await,
        Trail::Sum(action) => audit::sum_up(auditor, action, guard.call, request, next).await,
    }
}

/// Whether a call is about what the directory has: whoever looks at it, to change it, must not see what another node has
/// changed since.
fn is_of_directory(call: &str) -> bool {
    let path = call.split_once(' ').map_or(call, |(_, path)| path);
    OF_DIRECTORY.iter().any(|beginning| path.starts_with(beginning))
}

/// The request, with who calls beside it. What is open to everybody is told of nobody.
async fn admit(access: &Access, guard: &Guard, mut request: Request) -> Result<Request, Problem> {
    let peer = request.extensions().get::<Peer>().copied();
    let admitted = access.let_in(guard, request.method(), request.uri(), request.headers(), peer);
    if let Some((identity, session)) = admitted.await? {
        request.extensions_mut().insert(identity);
        if let Some(session) = session {
            request.extensions_mut().insert(session);
        }
    }
    Ok(request)
}

impl Access {
    /// Who makes a call, if they may; nobody where it is open to everybody.
    pub(crate) async fn admit(
        &self,
        guard: &Guard,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Identity, Problem> {
        let admitted = self.let_in(guard, method, uri, headers, peer).await?;
        Ok(admitted.map_or(Identity::Anyone, |(identity, _)| identity))
    }

    async fn let_in(
        &self,
        guard: &Guard,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Option<(Identity, Option<Session>)>, Problem> {
        refuse_other_origins(method, uri, headers)?;
        if guard.need == Need::Nothing {
            return Ok(None);
        }
        if self.is_only_here() {
            refuse_names_of_sites(uri, headers)?;
        }
        if let Some(issuer) = self.issuer_to_ask(headers) {
            issuer.look().await;
        }
        if self.shows_unknown_key(headers, peer) {
            // Another node may have made it a moment ago.
            self.directory().catch_up().await;
        }
        let checked = self.check(method, headers, peer, guard.need).inspect_err(|problem| {
            let refused = Some(problem).filter(|problem| problem.status() == StatusCode::FORBIDDEN);
            if let Some(identity) = refused.and_then(|_| self.identify(headers))
                && let Trail::Act(action) | Trail::Sum(action) = &guard.trail
            {
                audit::refused(self.auditor(), &identity, action, &guard.call, peer);
            }
        })?;
        if is_of_directory(&guard.call) {
            self.directory().catch_up().await;
        }
        Ok(Some(checked))
    }
}
