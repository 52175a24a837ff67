//! What answers the requests of a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use futures_util::future::Either;
use http::Request;
use http_body::Body as HttpBody;
use tower_service::Service;

use super::direct::Direct;
use crate::access::Peer;

/// Answers requests: those that take in one job directly, all others by the router. Cheap to clone.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct ApiService {
    direct: Option<Arc<Direct>>,
    router: Router,
}

impl ApiService {
    pub(super) const fn new(direct: Option<Arc<Direct>>, router: Router) -> Self {
        Self { direct, router }
    }

    /// Answers a request that came from there.
    pub(super) fn answer<B>(&self, mut request: Request<B>, peer: Option<Peer>) -> Answering
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        match &self.direct {
            Some(direct) if Direct::is_for(request.method(), request.uri()) => {
                let answer = Arc::clone(direct).answer(request.map(Body::new), peer);
                Either::Left(Box::pin(answer))
            }
            Some(_) | None => {
                if let Some(peer) = peer {
                    request.extensions_mut().insert(peer);
                }
                Either::Right(self.router.clone().call(request))
            }
        }
    }
}

/// All requests are answered by the router.
impl From<Router> for ApiService {
    fn from(router: Router) -> Self {
        Self::new(None, router)
    }
}

/// An answer on its way: directly, or by the router.
pub type Answering = Either<
    Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>,
    RouteFuture<Infallible>,
>;

impl<B> Service<Request<B>> for ApiService
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().copied();
        self.answer(request, peer)
    }
}
