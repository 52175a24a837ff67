//! Asks before a call is served: who calls is known to what serves it, and whoever may not never reaches it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::COOKIE;
use tonic::Status;

use super::origin::refuse_other_origins;
use super::{Access, Need, Peer, need_of};
use crate::http::Problem;

/// Serves a route of the HTTP API to whoever may call it.
pub(crate) async fn guard_route(access: Arc<Access>, need: Need, request: Request, next: Next) -> Response {
    match admit(&access, need, request) {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Serves a method of the gRPC API to whoever may call it.
pub(crate) async fn guard_call(access: Arc<Access>, mut request: Request, next: Next) -> Response {
    // Cookies are for the web pages, which do not call this way.
    request.headers_mut().remove(COOKIE);
    // One that is not there is answered for as what needs most, so that strangers cannot tell.
    let need = need_of(request.uri().path()).unwrap_or(Need::Administer);
    match admit(&access, need, request) {
        Ok(request) => next.run(request).await,
        Err(problem) => Status::from(problem).into_http::<Body>(),
    }
}

/// The request, with who calls beside it. What is open to everybody is told of nobody.
fn admit(access: &Access, need: Need, mut request: Request) -> Result<Request, Problem> {
    refuse_other_origins(request.method(), request.uri(), request.headers())?;
    if need != Need::Nothing {
        let peer = request.extensions().get::<Peer>().copied();
        let (identity, session) = access.check(request.method(), request.headers(), peer, need)?;
        request.extensions_mut().insert(identity);
        if let Some(session) = session {
            request.extensions_mut().insert(session);
        }
    }
    Ok(request)
}
