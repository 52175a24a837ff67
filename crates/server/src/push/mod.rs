//! Delivery by HTTP push: sends one claimed job to its target and says what came of it.
//!
//! | file | what it decides |
//! |---|---|
//! | `address` | which IP addresses a push may reach |
//! | `target` | which URLs and methods a job may be submitted for |
//! | `headers` | which headers a submitter may add |
//! | `connector` | resolving and connecting, only to checked addresses |
//! | `verdict` | what a status and its headers mean for the job |
//! | `excerpt` | the bounded text of an answer that is kept |
//! | `deliver` | what a target receives, and what its answer means for the engine |
//!
//! **One deadline** covers the whole attempt: name lookup, connecting, TLS, sending, waiting for the head of the answer and
//! reading its body. **The status decides**: once the head has arrived the verdict stands, and a body that then hangs,
//! trickles, breaks off or never ends changes only the excerpt. Of the body at most
//! [`PushConfig::response_read_bytes_max`] is read, for at most [`PushConfig::response_body_grace`] and never past the
//! deadline; a body that ends within that leaves its connection open for the next push to the same host, any other costs its
//! connection. Redirects are not followed, bodies are not decompressed, there are no cookies and no proxies.

mod address;
mod connector;
mod deliver;
mod excerpt;
mod headers;
mod target;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use rustls::crypto::ring;
use tidewheel_core::limits::EXCERPT_BYTES_MAX;

use self::connector::{ConnectFault, Connector};
use self::excerpt::{Excerpt, describe};
use crate::clock::Clock;

pub use self::address::{AddressPolicy, Cidr, CidrFault, RefusedAddress};
pub use self::deliver::PushDeliverer;
pub use self::headers::{HeaderFault, check_headers};
pub use self::target::{TargetFault, check_method};
pub use self::verdict::Verdict;

/// Resolving, connecting and the TLS handshake together, unless configured otherwise.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How much of a body is read at most, unless configured otherwise.
pub const RESPONSE_READ_BYTES_MAX_DEFAULT: usize = 64 * 1_024;
/// How long a body may take after its head, unless configured otherwise.
pub const RESPONSE_BODY_GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// The head of an answer is refused beyond this; it bounds the memory of a connection too.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1_024;
/// Idle connections kept per host, unless configured otherwise.
pub const POOL_IDLE_PER_HOST_MAX_DEFAULT: usize = 512;
/// How long an idle connection is kept, unless configured otherwise. Common servers close theirs after 5 s, and a request
/// sent into a connection that is just being closed is an attempt lost.
pub const POOL_IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(4);
/// What pushes call themselves, unless configured otherwise.
pub const USER_AGENT_DEFAULT: &str = concat!("tidewheel/", env!("CARGO_PKG_VERSION"));

/// Whom `https` targets must be vouched for by.
#[derive(Debug, Clone, Default)]
pub enum TrustedRoots {
    /// The certificate authorities browsers trust, as compiled in.
    #[default]
    Public,
    /// These alone, for an operator with an authority of their own.
    Only(RootCertStore),
}

/// How pushes are sent.
#[derive(Debug, Clone)]
pub struct PushConfig {
    /// Which addresses may be connected to.
    pub allow: AddressPolicy,
    /// Bound on resolving, connecting and the TLS handshake together; a request's own timeout may be shorter.
    pub connect_timeout: Duration,
    /// Bytes of an answer kept as its excerpt.
    pub response_excerpt_bytes_max: usize,
    /// Bytes of an answer's body read before its connection is dropped.
    pub response_read_bytes_max: usize,
    /// Time an answer's body may take after its head before its connection is dropped.
    pub response_body_grace: Duration,
    /// Idle connections kept per host.
    pub pool_idle_per_host_max: usize,
    /// How long an idle connection is kept.
    pub pool_idle_timeout: Duration,
    /// The `User-Agent` of requests that bring none.
    pub user_agent: String,
    /// Whom `https` targets must be vouched for by.
    pub trusted_roots: TrustedRoots,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            allow: AddressPolicy::public_only(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            response_excerpt_bytes_max: EXCERPT_BYTES_MAX,
            response_read_bytes_max: RESPONSE_READ_BYTES_MAX_DEFAULT,
            response_body_grace: RESPONSE_BODY_GRACE_DEFAULT,
            pool_idle_per_host_max: POOL_IDLE_PER_HOST_MAX_DEFAULT,
            pool_idle_timeout: POOL_IDLE_TIMEOUT_DEFAULT,
            user_agent: USER_AGENT_DEFAULT.to_owned(),
            trusted_roots: TrustedRoots::Public,
        }
    }
}

/// Why no [`Pusher`] could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user agent cannot be sent as a header.
    #[error("the user agent {0:?} cannot be sent as a header")]
    UserAgent(String),
    /// The TLS library refuses its own settings.
    #[error("TLS for push targets could not be set up")]
    Tls(#[from] rustls::Error),
}

/// One attempt to make.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "has a trait object")]
pub struct PushRequest {
    /// Where to; judged again here, as the policy may have changed since the job was accepted.
    pub url: Uri,
    /// How to call it.
    pub method: Method,
    /// What to send besides; already judged by [`check_headers`], plus what Tidewheel adds.
    pub headers: HeaderMap,
    /// The payload.
    pub body: Bytes,
    /// The deadline of the whole attempt, from now.
    pub timeout: Duration,
    /// To read a `Retry-After` that names a date: the wait for it begins when the answer comes, which may be long after the
    /// request was made.
    pub clock: Arc<dyn Clock>,
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushReport {
    /// What it means for the job.
    pub verdict: Verdict,
    /// The status, if the target answered.
    pub status: Option<u16>,
    /// For humans: the beginning of the answer, or why there is none. Bounded, and free of control characters.
    pub excerpt: String,
    /// The deadline passed before the target answered.
    pub timed_out: bool,
}

/// Sends pushes over pooled connections. Clones share the pool.
#[derive(Clone)]
pub struct Pusher {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client<Connector, Full<Bytes>>,
    config: PushConfig,
    user_agent: HeaderValue,
}

/// What is known of an answer so far. It outlives the exchange, so that a deadline passing in mid-body loses nothing.
struct Answer {
    verdict: Verdict,
    status: u16,
    excerpt: Excerpt,
}

impl Pusher {
    /// Makes a client with an empty pool.
    ///
    /// # Errors
    /// When the user agent is not a header value or TLS cannot be set up.
    pub fn new(config: PushConfig) -> Result<Self, Error> {
        let user_agent = HeaderValue::from_str(&config.user_agent)
            .map_err(|_| Error::UserAgent(config.user_agent.clone()))?;
        let connector =
            Connector::new(config.allow.clone(), tls_config(&config.trusted_roots)?, config.connect_timeout);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(config.pool_idle_timeout)
            .pool_max_idle_per_host(config.pool_idle_per_host_max)
            .http1_max_buf_size(RESPONSE_HEAD_BYTES_MAX)
            .build(connector);
        Ok(Self { shared: Arc::new(Shared { client, config, user_agent }) })
    }

    /// Makes one attempt and reports on it. It ends by the request's deadline whatever the target does; dropping it
    /// earlier drops the connection.
    pub async fn push(&self, request: PushRequest) -> PushReport {
        if let Err(fault) = self.check(&request) {
            return self.unanswered(Verdict::Refused, &fault.to_string());
        }
        let timeout = request.timeout;
        let mut answer = None;
        let exchange = tokio::time::timeout(timeout, self.exchange(request, &mut answer)).await;
        match (answer, exchange) {
            (Some(Answer { verdict, status, excerpt }), _) => {
                PushReport { verdict, status: Some(status), excerpt: excerpt.into_text(), timed_out: false }
            }
            (None, Ok(Err(fault))) => {
                let refused = connect_fault(&fault).is_some_and(ConnectFault::is_refusal);
                let verdict = if refused { Verdict::Refused } else { Verdict::Retry { after: None } };
                self.unanswered(verdict, &describe_failure(&fault))
            }
            (None, Ok(Ok(())) | Err(_)) => {
                let report =
                    self.unanswered(Verdict::Retry { after: None }, &format!("no answer within {timeout:?}"));
                PushReport { timed_out: true, ..report }
            }
        }
    }

    fn check(&self, request: &PushRequest) -> Result<(), TargetFault> {
        check_method(request.method.as_str())?;
        self.shared.config.allow.check_uri(&request.url)
    }

    async fn exchange(&self, request: PushRequest, answer: &mut Option<Answer>) -> Result<(), legacy::Error> {
        let Shared { client, config, user_agent } = &*self.shared;
        let mut outgoing = Request::new(Full::new(request.body));
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = request.url;
        *outgoing.headers_mut() = request.headers;
        outgoing.headers_mut().entry(USER_AGENT).or_insert_with(|| user_agent.clone());

        let (head, body) = client.request(outgoing).await?.into_parts();
        let verdict = verdict::judge(head.status, &head.headers, request.clock.now());
        let mut excerpt = Excerpt::new(config.response_excerpt_bytes_max);
        if head.status.is_redirection()
            && let Some(location) = head.headers.get(LOCATION)
        {
            excerpt.push(b"redirects are not followed; this one leads to ");
            excerpt.push(location.as_bytes());
            excerpt.push(b"\n");
        }
        let answer = answer.insert(Answer { verdict, status: head.status.as_u16(), excerpt });
        let reading = answer.excerpt.fill(body, config.response_read_bytes_max);
        if tokio::time::timeout(config.response_body_grace, reading).await.is_err() {
            tracing::debug!(status = answer.status, "push answer's body was left unread: it took too long");
        }
        Ok(())
    }

    fn unanswered(&self, verdict: Verdict, why: &str) -> PushReport {
        let mut excerpt = Excerpt::new(self.shared.config.response_excerpt_bytes_max);
        excerpt.push(why.as_bytes());
        PushReport { verdict, status: None, excerpt: excerpt.into_text(), timed_out: false }
    }
}

fn tls_config(trusted: &TrustedRoots) -> Result<rustls::ClientConfig, rustls::Error> {
    use hyper_rustls::ConfigBuilderExt as _;
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(match trusted {
        TrustedRoots::Public => builder.with_webpki_roots(),
        TrustedRoots::Only(roots) => builder.with_root_certificates(roots.clone()),
    }
    .with_no_client_auth())
}

/// The connector's own fault, from under the layers the client wraps it in.
fn connect_fault(error: &legacy::Error) -> Option<&ConnectFault> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<ConnectFault>() {
            return Some(fault);
        }
        cause = error.source();
    }
    None
}

/// The client's own wrapping ("client error (Connect)") tells a reader nothing, so what it wraps speaks.
fn describe_failure(error: &legacy::Error) -> String {
    match (connect_fault(error), std::error::Error::source(error)) {
        (Some(fault), _) => describe(fault),
        (None, Some(cause)) if error.is_connect() => format!("could not connect: {}", describe(cause)),
        (None, Some(cause)) => describe(cause),
        (None, None) => describe(error),
    }
}
