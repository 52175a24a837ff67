//! A client of the HTTP API: one server, one key, one tenant, many calls over pooled connections.
//!
//! | file | what it holds |
//! |---|---|
//! | `call` | one request: its method, path, query and body |
//! | `error` | why a call has no answer, and what the server said |
//! | `patience` | how long to keep trying |
//! | `submit` | submitting jobs, one by one or in batches |
//!
//! A call is tried again only if it can do no harm twice: it reads, or it carries an idempotency key. Such a call
//! outlives a server that restarts, a dropped connection, and answers of 429 and 503, whose `Retry-After` it
//! honours. Any other call is sent once.

mod call;
mod error;
mod patience;
mod submit;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::uri::Scheme;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;

pub use self::call::Call;
pub(crate) use self::error::root_cause;
pub use self::error::{Error, Fault, Problem};
pub use self::patience::Patience;
pub use self::submit::{Submitted, Submitter};
use crate::tls::{Speak, TlsOptions};

/// Where a server listens unless told otherwise.
pub const URL_DEFAULT: &str = "http://127.0.0.1:7400";
/// One try of a call, from connecting to the last byte of the answer.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Making a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer is given up beyond this: a page of 1,000 jobs with the largest payloads stays well below it.
pub const ANSWER_BYTES_MAX: usize = 256 * 1_024 * 1_024;

const TENANT_HEADER: HeaderName = HeaderName::from_static("tidewheel-tenant");
const IDEMPOTENCY_KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const AGENT: &str = concat!("tidewheel-client/", env!("CARGO_PKG_VERSION"));

/// Whom to call, as whom, and how patiently.
#[derive(Clone)]
pub struct ClientConfig {
    /// The server, such as `http://127.0.0.1:7400`; a path before `/v1` may follow.
    pub url: String,
    /// The key to show, if the server asks for keys.
    pub key: Option<String>,
    /// The tenant to act for, where it is not the key's own.
    pub tenant: Option<String>,
    /// Whom to trust and what to show, if the URL begins with `https://`.
    pub tls: TlsOptions,
    /// Bound on one try of a call.
    pub timeout: Duration,
    /// How long to keep trying.
    pub patience: Patience,
}

impl ClientConfig {
    /// A client of the server at `url`, without a key, for the tenant the server takes by itself.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            key: None,
            tenant: None,
            tls: TlsOptions::default(),
            timeout: TIMEOUT_DEFAULT,
            patience: Patience::default(),
        }
    }
}

type RetryListener = Arc<dyn Fn(&Error, Duration) + Send + Sync>;

/// A client of one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at its end.
    base: String,
    headers: HeaderMap,
    timeout: Duration,
    patience: Patience,
    on_retry: Option<RetryListener>,
}

/// A 2xx answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as sent.
    pub body: Bytes,
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Error::Unexpected`] when it has another shape: the server is of another version, or not Tidewheel.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|fault| Error::unexpected(self.status, &self.body, Some(fault.to_string())))
    }
}

impl Client {
    /// Prepares a client; nothing is connected yet.
    ///
    /// # Errors
    /// When the URL, the key, the tenant or a file of TLS cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let base = base_of(&config.url)?;
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(key) = &config.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
                .map_err(|_| Error::Setup("the key has characters that no key has".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = &config.tenant {
            let value = HeaderValue::from_str(tenant)
                .map_err(|_| Error::Setup(format!("{tenant:?} cannot be the name of a tenant")))?;
            headers.insert(TENANT_HEADER, value);
        }
        let connector = config.tls.connector(&base, Speak::Both);
        let connector = connector.map_err(|fault| Error::Setup(fault.to_string()))?;
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { pool, base, headers, timeout: config.timeout, patience: config.patience, on_retry: None })
    }

    /// Tells `listener` of every try that failed and how long the client waits before the next.
    #[must_use]
    pub fn on_retry(mut self, listener: impl Fn(&Error, Duration) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Arc::new(listener));
        self
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Makes the call, more than once if it is safe to repeat and worth it.
    ///
    /// # Errors
    /// When there was no answer, or one that is not 2xx.
    pub async fn send(&self, call: &Call) -> Result<Answer, Error> {
        let mut waits = self.patience.waits();
        loop {
            let (error, retry_after) = match self.try_once(call).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if !call.is_repeatable() || !error.is_retryable() {
                return Err(error);
            }
            let Some(wait) = waits.next_wait(retry_after) else { return Err(error) };
            if let Some(listener) = &self.on_retry {
                listener(&error, wait);
            }
            pause(wait).await;
        }
    }

    async fn try_once(&self, call: &Call) -> Result<Answer, (Error, Option<Duration>)> {
        let request = self.request(call).map_err(|error| (error, None))?;
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => Err((Error::TimedOut { url: self.base.clone(), after: self.timeout }, None)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, (Error, Option<Duration>)> {
        let response = self.pool.request(request).await.map_err(|fault| {
            let (url, cause) = (self.base.clone(), error::root_cause(&fault));
            let error = if fault.is_connect() {
                Error::Unreachable { url, cause }
            } else {
                Error::Broken { url, cause }
            };
            (error, None)
        })?;
        let (head, body) = response.into_parts();
        let retry_after = retry_after(&head.headers);
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|fault| {
            (Error::Broken { url: self.base.clone(), cause: error::root_cause(&*fault) }, retry_after)
        })?;
        let answer = Answer { status: head.status, headers: head.headers, body: body.to_bytes() };
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err((Error::from_refusal(&answer), retry_after))
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, Error> {
        let unsendable = |what: &str| Error::Setup(format!("{what} cannot be sent in a request"));
        let uri: Uri =
            format!("{}{}", self.base, call.path_and_query()).parse().map_err(|_| unsendable("this path"))?;
        let mut request = Request::new(Full::new(call.body().unwrap_or_default()));
        *request.method_mut() = call.method().clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        if call.body().is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type()));
        }
        if let Some(key) = call.key() {
            // Bytes, not `from_str`: keys may hold letters beyond ASCII.
            let value =
                HeaderValue::from_bytes(key.as_bytes()).map_err(|_| unsendable("this idempotency key"))?;
            request.headers_mut().insert(IDEMPOTENCY_KEY_HEADER, value);
        }
        Ok(request)
    }
}

/// Checks a server's URL and takes the slash from its end.
fn base_of(url: &str) -> Result<String, Error> {
    let invalid = |why: &str| {
        Error::Setup(format!("{url:?} is not a server's URL: {why}; write it like {URL_DEFAULT}"))
    };
    let uri: Uri = url.parse().map_err(|_| invalid("it cannot be read"))?;
    let known = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    if !known {
        return Err(invalid("it begins with neither http:// nor https://"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(invalid("it names no host"));
    }
    if uri.query().is_some() {
        return Err(invalid("it has a query"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(invalid("it holds a user name; keys are given apart"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The wait a server asks for; a date instead of seconds is left to the client's own pace.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[expect(
    clippy::disallowed_methods,
    reason = "waits between tries in the caller's process, which has no server clock"
)]
async fn pause(wait: Duration) {
    tokio::time::sleep(wait).await;
}

/// Whether a method only reads.
fn reads(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
