//! Sends spans to a collector by OTLP over HTTP, in batches, apart from everything else. A collector that is slow or gone
//! costs spans, which are counted, and nothing more.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::otlp;
use super::span::Span;
use crate::clock::Clock;
use crate::metrics::{DropReason, SpanCounts};

/// Spans in one request.
const BATCH_COUNT_MAX: usize = 512;
/// How long the first of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// One request, to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a batch is sent before it is given up.
const TRIES_COUNT_MAX: u32 = 3;
/// After the first failure; twice as long after the second.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Of an answer no more than this is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const TRACES_PATH: &str = "/v1/traces";
const AGENT: &str = concat!("tidewheel/", env!("CARGO_PKG_VERSION"));

/// Where spans go.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// The collector, as [`endpoint`] reads it.
    pub endpoint: Uri,
    /// What each request says besides.
    pub headers: HeaderMap,
    /// Whose spans they are.
    pub service_name: String,
    /// The share of traces that begin here which is recorded, from 0 to 1.
    pub sample_ratio: f64,
}

/// Reads the address of a collector: `http://host:4318`, to which the path for traces is added.
///
/// # Errors
/// When it is none.
pub fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || format!("{text:?} is not the URL of a collector; write it like http://localhost:4318");
    let base: Uri = text.parse().map_err(|_| wrong())?;
    let is_web = matches!(base.scheme_str(), Some("http" | "https"));
    if !is_web || base.host().is_none_or(str::is_empty) || base.query().is_some() {
        return Err(wrong());
    }
    let base = text.trim_end_matches('/');
    format!("{base}{TRACES_PATH}").parse().map_err(|_| wrong())
}

/// The task that sends. Dropped, it sends what it has and ends.
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Exporter {
    pub(super) fn start(
        config: ExportConfig,
        queue: mpsc::Receiver<Span>,
        counts: SpanCounts,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let (stop, stopped) = oneshot::channel();
        let client = client()?;
        let sender = Sender { config, queue, counts, clock, client, is_failing: false };
        Ok(Self { stop, task: tokio::spawn(sender.run(stopped)) })
    }

    /// Sends what is left, and ends.
    pub async fn finish(self) {
        // It may have ended already.
        self.stop.send(()).ok();
        self.task.await.ok();
    }
}

fn client() -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
        .map_err(|fault| format!("TLS could not be set up: {fault}"))?
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
}

struct Sender {
    config: ExportConfig,
    queue: mpsc::Receiver<Span>,
    counts: SpanCounts,
    clock: Arc<dyn Clock>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    is_failing: bool,
}

/// Why a batch was not taken.
struct Failure {
    why: String,
    is_passing: bool,
}

impl Sender {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut is_stopping = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                _ = &mut stopped, if !is_stopping => { is_stopping = true; self.queue.close(); }
                is_open = gather(&mut self.queue, &mut batch, &*self.clock, is_stopping) => {
                    if !is_open && batch.is_empty() {
                        return;
                    }
                }
            }
            if !batch.is_empty() {
                self.export(mem::take(&mut batch), is_stopping).await;
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>, is_last: bool) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let body = Bytes::from(otlp::request(&self.config.service_name, spans));
        let tries = if is_last { 1 } else { TRIES_COUNT_MAX };
        let mut wait = RETRY_WAIT;
        for left in (0..tries).rev() {
            match self.send(body.clone()).await {
                Ok(answer) => {
                    self.taken(count, &answer);
                    return;
                }
                Err(failure) if failure.is_passing && left > 0 => {
                    self.clock.sleep(wait).await;
                    wait *= 2;
                }
                Err(failure) => {
                    self.given_up(count, &failure);
                    return;
                }
            }
        }
    }

    fn taken(&mut self, count: u64, answer: &[u8]) {
        let (rejected, why) = otlp::rejected(answer);
        let rejected = rejected.min(count);
        self.counts.exported(count - rejected);
        self.counts.dropped(DropReason::ExportFailed, rejected);
        if rejected > 0 {
            tracing::warn!(rejected, why, "the collector did not take all spans");
        } else if mem::take(&mut self.is_failing) {
            tracing::info!("the collector takes spans again");
        }
    }

    /// Told once for each time that it begins.
    fn given_up(&mut self, count: u64, failure: &Failure) {
        self.counts.dropped(DropReason::ExportFailed, count);
        if !mem::replace(&mut self.is_failing, true) {
            let endpoint = &self.config.endpoint;
            tracing::warn!(%endpoint, error = failure.why, "spans could not be sent; they are dropped until it works");
        }
    }

    async fn send(&self, body: Bytes) -> Result<Bytes, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.config.endpoint.clone();
        *request.headers_mut() = self.config.headers.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let exchange = async {
            let passing = |why: String| Failure { why, is_passing: true };
            let answer = self.client.request(request).await.map_err(|fault| passing(fault.to_string()))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            if !status.is_success() {
                let is_passing = matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS
                        | StatusCode::BAD_GATEWAY
                        | StatusCode::SERVICE_UNAVAILABLE
                        | StatusCode::GATEWAY_TIMEOUT
                );
                return Err(Failure { why: format!("the collector answered {status}"), is_passing });
            }
            body.map(|body| body.to_bytes()).map_err(|fault| passing(fault.to_string()))
        };
        tokio::select! {
            answer = exchange => answer,
            () = self.clock.sleep(TIMEOUT) => {
                Err(Failure { why: "the collector did not answer in time".to_owned(), is_passing: true })
            }
        }
    }
}

/// Waits for spans, and a moment longer for more of them; says whether there can be more. What was gathered stays in
/// `batch` if the wait is cut short.
async fn gather(
    queue: &mut mpsc::Receiver<Span>,
    batch: &mut Vec<Span>,
    clock: &dyn Clock,
    is_stopping: bool,
) -> bool {
    if queue.recv_many(batch, BATCH_COUNT_MAX).await == 0 {
        return false;
    }
    let mut linger = pin!(clock.sleep(if is_stopping { Duration::ZERO } else { LINGER }));
    while batch.len() < BATCH_COUNT_MAX {
        let room = BATCH_COUNT_MAX - batch.len();
        tokio::select! {
            biased;
            count = queue.recv_many(batch, room) => if count == 0 { return false },
            () = &mut linger => break,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_to_which_the_path_is_added() {
        for (text, uri) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("https://otel.example.com/tenant-7", "https://otel.example.com/tenant-7/v1/traces"),
        ] {
            assert_eq!(endpoint(text).unwrap().to_string(), uri);
        }
        for text in ["", "localhost:4318", "grpc://localhost:4317", "http://", "http://a b", "http://a/?b=c"]
        {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }
}
