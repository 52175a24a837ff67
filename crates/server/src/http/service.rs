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
pub(super) type Answering =
    Either<Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>, RouteFuture<Infallible>>;

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

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_LENGTH, LOCATION};
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;
    use crate::access::Access;
    use crate::http::{HttpLimits, HttpParts, router};
    use crate::push::AddressPolicy;
    use crate::testing::TestServer;

    /// What an answer says, without what is new in each.
    async fn said(api: &ApiService, request: Request<Body>) -> (u16, Vec<(String, String)>, Value) {
        let Ok(answer) = api.answer(request, None).await;
        let (mut head, body) = answer.into_parts();
        // The connection says how long it is.
        head.headers.remove(CONTENT_LENGTH);
        let place = head.headers.remove(LOCATION);
        let mut body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        if let Some(fields) = body.as_object_mut() {
            let id = fields.remove("id").or_else(|| fields.remove("job_id"));
            let place = place.map(|place| place.to_str().unwrap().to_owned());
            assert_eq!(place, place.as_ref().map(|_| format!("/v1/jobs/{}", id.unwrap().as_str().unwrap())));
            for field in ["run_at", "idempotency_key"] {
                fields.remove(field);
            }
        }
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        let mut headers: Vec<_> = headers.collect();
        headers.sort();
        (head.status.as_u16(), headers, body)
    }

    #[tokio::test]
    async fn what_is_taken_in_directly_is_answered_as_by_the_router() {
        let server = TestServer::start().await.unwrap();
        let engine = server.engine().clone();
        let access = Access::open_to_all(&engine).await.unwrap();
        let (targets, limits) = (AddressPolicy::public_only(), HttpLimits::default());
        let direct = router(HttpParts { engine: engine.clone(), targets, limits, access });
        let routed = ApiService { direct: None, ..direct.clone() };
        assert!(direct.direct.is_some());
        let job = r#"{"type":"t","payload":{"n":1}}"#;
        let large = format!(r#"{{"type":"t","payload":"{}"}}"#, "x".repeat(limits.body_bytes_max));
        let cases = [
            ("/v1/jobs", vec![], job),
            ("/api/v1/jobs?x=1", vec![("content-type", "application/json")], job),
            ("/v1/jobs", vec![("idempotency-key", "k")], job),
            ("/v1/jobs", vec![("idempotency-key", "k")], r#"{"type":"other"}"#),
            ("/v1/jobs", vec![("idempotency-key", "a"), ("idempotency-key", "b")], job),
            ("/v1/jobs", vec![("tidewheel-tenant", "not a name")], job),
            ("/v1/jobs", vec![("sec-fetch-site", "cross-site")], job),
            ("/v1/jobs", vec![("content-type", "image/png")], job),
            ("/v1/jobs", vec![("content-encoding", "gzip")], job),
            ("/v1/jobs", vec![], ""),
            ("/v1/jobs", vec![], r#"{"type":7,"oops":1}"#),
            ("/v1/jobs", vec![], &large),
        ];
        let mut statuses = Vec::new();
        for (path, headers, body) in cases {
            let request = || {
                let mut request = Request::post(path);
                for (name, value) in &headers {
                    request = request.header(*name, *value);
                }
                request.body(Body::from(body.to_owned())).unwrap()
            };
            let (first, second) = (said(&direct, request()).await, said(&routed, request()).await);
            if first.0 == 201 && headers.contains(&("idempotency-key", "k")) {
                assert_eq!(second.0, 200, "its repeat");
            } else {
                assert_eq!(first, second, "{path} {headers:?}");
            }
            statuses.push(first.0);
        }
        assert_eq!(statuses, [201, 201, 201, 409, 400, 400, 403, 415, 415, 400, 422, 413]);
    }
}
