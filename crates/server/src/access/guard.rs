//! Asks before a call is served: who calls is known to what serves it, and whoever may not never reaches it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tonic::Status;

use super::{Access, Need, Peer, need_of};
use crate::http::Problem;

/// Serves a route of the HTTP API to whoever may call it.
pub(crate) async fn guard_route(access: Arc<Access>, need: Need, request: Request, next: Next) -> Response {
    match admit(&access, need, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Serves a method of the gRPC API to whoever may call it.
pub(crate) async fn guard_call(access: Arc<Access>, request: Request, next: Next) -> Response {
    // One that is not there is answered for as what needs most, so that strangers cannot tell.
    let need = need_of(request.uri().path()).unwrap_or(Need::Administer);
    match admit(&access, need, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => Status::from(problem).into_http::<Body>(),
    }
}

/// The request, with who calls beside it. What is open to everybody is told of nobody.
async fn admit(access: &Access, need: Need, mut request: Request) -> Result<Request, Problem> {
    if need != Need::Nothing {
        if let Some(issuer) = access.issuer_to_ask(request.headers()) {
            issuer.look().await;
        }
        let peer = request.extensions().get::<Peer>().copied();
        let identity = access.check(request.headers(), peer, need)?;
        request.extensions_mut().insert(identity);
    }
    Ok(request)
}
