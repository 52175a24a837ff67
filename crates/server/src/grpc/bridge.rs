//! Calls of the HTTP API from within. What mirrors it is translated into its own requests and answers, so that there is
//! one reading, one set of rules and one set of errors for both.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidewheel_api::proto::v1::SubmitResponse;
use tidewheel_api::wire::fault::Code;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};
use tower_service::Service as _;

use super::instant::instant;
use super::status::{refusal, retry_after, status};
use crate::access::{ORIGIN_METADATA, Peer};
use crate::http::{Answer, Direct, Sent, Share, TakenIn};

/// Metadata that mean the same as headers.
const PASSED_ON: [&str; 4] = ["tidewheel-tenant", "authorization", "x-request-id", ORIGIN_METADATA];
/// The same, but they may be there more than once, which is for their reader to judge.
const ALL_PASSED_ON: [&str; 3] = ["idempotency-key", "traceparent", "tracestate"];

/// Where one job is taken in.
pub(super) const SUBMIT: &str = "/v1/jobs";

/// The HTTP API.
#[derive(Clone)]
pub(super) struct Bridge {
    direct: Option<Arc<Direct>>,
    router: Router,
}

/// A call, being put together.
pub(super) struct Call {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Call {
    pub(super) fn new(metadata: &MetadataMap, method: Method, path: &str) -> Self {
        let mut headers = HeaderMap::new();
        for name in PASSED_ON {
            if let Some(value) = metadata.as_ref().get(name) {
                headers.insert(HeaderName::from_static(name), value.clone());
            }
        }
        for name in ALL_PASSED_ON {
            for value in metadata.as_ref().get_all(name) {
                headers.append(HeaderName::from_static(name), value.clone());
            }
        }
        Self { method, path: path.to_owned(), query: String::new(), headers, body: Vec::new() }
    }

    /// A part of the path that the caller chose.
    pub(super) fn segment(mut self, text: &str) -> Self {
        self.path.push('/');
        encode(text, &mut self.path);
        self
    }

    /// A part of the path that is the same for all.
    pub(super) fn then(mut self, text: &str) -> Self {
        self.path.push_str(text);
        self
    }

    /// A parameter, unless it is empty.
    pub(super) fn parameter(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.query.push(if self.query.is_empty() { '?' } else { '&' });
            encode(name, &mut self.query);
            self.query.push('=');
            encode(value, &mut self.query);
        }
        self
    }

    /// A parameter that is a number, unless it was left out.
    pub(super) fn number(self, name: &str, value: Option<u32>) -> Self {
        match value {
            Some(value) => self.parameter(name, &value.to_string()),
            None => self,
        }
    }

    /// The version that is meant.
    pub(super) fn if_version(mut self, version: Option<u64>) -> Self {
        if let Some(value) = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok())
        {
            self.headers.insert(http::header::IF_MATCH, value);
        }
        self
    }

    /// Where the call came from, for the audit trail.
    fn take_origin(&mut self) -> Option<Peer> {
        let origin = self.headers.remove(ORIGIN_METADATA)?;
        origin.to_str().ok()?.parse().ok().map(Peer)
    }

    /// The body.
    pub(super) fn json(self, body: &impl serde::Serialize) -> Result<Self, Status> {
        Ok(self.body(as_json(body)?))
    }

    pub(super) fn body(mut self, body: Vec<u8>) -> Self {
        self.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = body;
        self
    }
}

/// A message as the HTTP API takes it.
pub(super) fn as_json(message: &impl serde::Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(message).map_err(|fault| status(Code::MalformedJson, fault.to_string()))
}

#[derive(Deserialize)]
struct ProblemDocument {
    status: u16,
    code: String,
    detail: String,
}

impl Bridge {
    pub(super) const fn new(direct: Option<Arc<Direct>>, router: Router) -> Self {
        Self { direct, router }
    }

    /// Takes one job in.
    pub(super) async fn submit(&self, mut call: Call) -> Result<SubmitResponse, Status> {
        let Some(direct) = &self.direct else { return self.call(call).await };
        let peer = call.take_origin();
        let sent = Sent { headers: call.headers, body: Body::from(call.body), peer };
        match direct.take_in(&Uri::from_static(SUBMIT), sent).await? {
            Answer::Job(taken) => Ok(told(&taken)),
            // A message has no field that would make it one.
            Answer::Flat(answer) => read(&said(answer).await?.0),
        }
    }

    /// Calls, and reads the answer.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Status> {
        read(&self.send(call).await?)
    }

    /// The same for a page, which may be large: what it takes of the bound on large answers it takes until it is sent.
    pub(super) async fn page<T: DeserializeOwned>(&self, call: Call) -> Result<Response<T>, Status> {
        let (answer, share) = self.ask(call).await?;
        let mut response = Response::new(read(&answer)?);
        if let Some(share) = share {
            response.extensions_mut().insert(share);
        }
        Ok(response)
    }

    /// Calls, and hands back the answer as it is.
    pub(super) async fn send(&self, call: Call) -> Result<Bytes, Status> {
        self.ask(call).await.map(|(answer, _)| answer)
    }

    async fn ask(&self, mut call: Call) -> Result<(Bytes, Option<Share>), Status> {
        let peer = call.take_origin();
        let mut request = axum::extract::Request::new(Body::from(call.body));
        *request.method_mut() = call.method;
        *request.headers_mut() = call.headers;
        *request.uri_mut() = format!("{}{}", call.path, call.query)
            .parse()
            .map_err(|_| status(Code::MalformedRequest, "the request cannot be put as an address"))?;
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let mut router = self.router.clone();
        let Ok(answer) = router.call(request).await;
        said(answer).await
    }
}

fn told(taken: &TakenIn) -> SubmitResponse {
    let id = taken.id.to_string();
    SubmitResponse {
        state: taken.state.map(str::to_owned),
        run_at: Some(instant(taken.run_at)),
        idempotency_key: taken.key_or(&id).map(str::to_owned),
        duplicate: taken.is_duplicate,
        id,
    }
}

/// What an answer says, and what it takes of the bound on large ones.
async fn said(answer: http::Response<Body>) -> Result<(Bytes, Option<Share>), Status> {
    let (mut head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|fault| Status::internal(fault.to_string()))?.to_bytes();
    if head.status.is_success() {
        return Ok((body, head.extensions.remove::<Share>()));
    }
    match serde_json::from_slice::<ProblemDocument>(&body) {
        Ok(problem) => {
            let seconds = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Err(retry_after(refusal(&problem.code, problem.status, &problem.detail, &body), seconds))
        }
        Err(_) => Err(Status::internal(format!("the HTTP API answered {}", head.status))),
    }
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Status> {
    serde_json::from_slice(answer).map_err(|fault| {
        tracing::error!(error = %fault, "an answer of the HTTP API could not be translated");
        status(Code::Internal, "the server failed; its log says more")
    })
}

/// Percent-encodes everything that could mean something in an address.
fn encode(text: &str, out: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let digit = |number: u8| DIGITS.get(usize::from(number)).copied().unwrap_or('0');
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(digit(byte >> 4));
            out.push(digit(byte & 15));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_chose_stays_in_its_place() {
        let call = Call::new(&MetadataMap::new(), Method::GET, "/v1/jobs")
            .segment("a/../b?c")
            .then("/cancel")
            .parameter("label.k&x", "a b=ü")
            .parameter("none", "")
            .number("limit", Some(7));
        assert_eq!(call.path, "/v1/jobs/a%2F..%2Fb%3Fc/cancel");
        assert_eq!(call.query, "?label.k%26x=a%20b%3D%C3%BC&limit=7");
    }
}
