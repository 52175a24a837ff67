//! Connections: how many, how long, how they end. HTTP/1.1 and HTTP/2 on one port, with or without TLS.
//!
//! A connection without a request costs memory whether it is idle, sends a byte now and then, or does not read its
//! answer, so there is one rule for all of these: a connection on which no request was answered or worked on for
//! [`ServeLimits::idle_timeout`] is closed, at the latest after twice that time.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tidewheel_core::limits::CONNECTIONS_COUNT_MAX;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::handshake::Handshakes;
use super::refuse::{REFUSALS_COUNT_MAX, refuse};
use super::service::ApiService;
use crate::access::Peer;
use crate::tls::Tls;

/// Pause after the machine refused a connection, mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Connections at once; further ones are refused.
    pub connections_max: usize,
    /// How long a connection may be without a request.
    pub idle_timeout: Duration,
    /// How long an HTTP/2 connection with a call under way may be silent before it is asked for a sign of life. Longer
    /// than idle workers are, so that they need not be asked.
    pub ping_after: Duration,
    /// How long the head of a request may take, counted from the end of the one before.
    pub head_timeout: Duration,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long requests may go on after the server was asked to stop.
    pub drain_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_COUNT_MAX,
            idle_timeout: Duration::from_secs(60),
            ping_after: Duration::from_secs(150),
            head_timeout: Duration::from_secs(60),
            head_bytes_max: 32 * 1_024,
            streams_max: 128,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How far the stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Requests under way may end.
    Draining,
    /// Nothing may go on.
    Over,
}

/// Serves `app` until `stop`, then lets requests under way end, at most [`ServeLimits::drain_timeout`] long.
pub async fn serve(
    listener: TcpListener,
    app: impl Into<ApiService>,
    limits: ServeLimits,
    stop: impl Future<Output = ()>,
) {
    serve_over(listener, app.into(), limits, None, stop).await;
}

/// The same over TLS, and over nothing else.
pub async fn serve_tls(
    listener: TcpListener,
    app: impl Into<ApiService>,
    limits: ServeLimits,
    tls: Arc<Tls>,
    stop: impl Future<Output = ()>,
) {
    let handshakes = Handshakes::new(tls, limits.connections_max);
    serve_over(listener, app.into(), limits, Some(Arc::new(handshakes)), stop).await;
}

async fn serve_over(
    listener: TcpListener,
    app: ApiService,
    limits: ServeLimits,
    handshakes: Option<Arc<Handshakes>>,
    stop: impl Future<Output = ()>,
) {
    let connections_max = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
    let seats = Arc::new(Semaphore::new(limits.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_COUNT_MAX));
    let (phases, phase) = watch::channel(Phase::Open);
    let builder = Arc::new(builder(&limits));
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // Whoever is accepted can be answered: with a seat, or with a refusal.
            let refusal = Arc::clone(&refusals).acquire_owned().await.ok();
            (refusal, listener.accept().await)
        };
        let (refusal, accepted) = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, Peer(peer.ip())),
            Err(fault) => {
                pause_after(&fault).await;
                continue;
            }
        };
        if let Ok(seat) = Arc::clone(&seats).try_acquire_owned() {
            let (builder, app, phase) = (Arc::clone(&builder), app.clone(), phase.clone());
            let handshakes = handshakes.clone();
            tokio::spawn(async move {
                let service = Counted { app, peer, activity: Arc::default() };
                welcome(stream, handshakes.as_deref(), &builder, service, phase, limits.idle_timeout).await;
                drop(seat);
            });
        } else {
            let handshakes = handshakes.clone();
            tokio::spawn(async move {
                refuse(stream, handshakes.as_deref()).await;
                drop(refusal);
            });
        }
    }
    drop(listener);
    phases.send_replace(Phase::Draining);
    if tokio::time::timeout(limits.drain_timeout, seats.acquire_many(connections_max)).await.is_err() {
        let left = limits.connections_max.saturating_sub(seats.available_permits());
        tracing::warn!(connections = left, "requests were still under way when the time to stop was over");
    }
    phases.send_replace(Phase::Over);
}

fn builder(limits: &ServeLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes_max)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 * 1_024)
        .initial_connection_window_size(1_024 * 1_024)
        .keep_alive_interval(limits.ping_after)
        .keep_alive_timeout(limits.head_timeout);
    builder
}

/// A connection that failed before it was accepted is nobody's trouble; a machine without descriptors is, for a while.
async fn pause_after(fault: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&fault.kind()) {
        return;
    }
    tracing::warn!(error = %fault, "a connection could not be accepted");
    drop(tokio::time::timeout(ACCEPT_PAUSE, std::future::pending::<()>()).await);
}

/// Makes the connection ready for requests, and serves them.
async fn welcome(
    stream: TcpStream,
    handshakes: Option<&Handshakes>,
    builder: &Builder<TokioExecutor>,
    service: Counted,
    mut phase: watch::Receiver<Phase>,
    idle_timeout: Duration,
) {
    if let Err(fault) = stream.set_nodelay(true) {
        tracing::debug!(error = %fault, "a connection was gone before it began");
        return;
    }
    let Some(handshakes) = handshakes else {
        return converse(stream, builder, service, phase, idle_timeout).await;
    };
    let secret = tokio::select! {
        // Nothing was asked yet, so nothing is lost.
        _ = phase.wait_for(|phase| *phase != Phase::Open) => return,
        secret = handshakes.shake(stream) => secret,
    };
    if let Some(stream) = secret {
        converse(stream, builder, service, phase, idle_timeout).await;
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    builder: &Builder<TokioExecutor>,
    service: Counted,
    mut phase: watch::Receiver<Phase>,
    idle_timeout: Duration,
) {
    let activity = Arc::clone(&service.activity);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut answered_before = 0;
    loop {
        tokio::select! {
            biased;
            ended = tokio::time::timeout(idle_timeout, connection.as_mut()) => match ended {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => {
                    tracing::debug!(error = %fault, "a connection broke off");
                    return;
                }
                Err(_) => {
                    let answered = activity.answered.load(Ordering::Relaxed);
                    if activity.under_way.load(Ordering::Relaxed) == 0 && answered == answered_before {
                        return;
                    }
                    answered_before = answered;
                }
            },
            changed = phase.changed() => match (changed, *phase.borrow()) {
                (Ok(()), Phase::Open) => {}
                (Ok(()), Phase::Draining) => connection.as_mut().graceful_shutdown(),
                (Ok(()), Phase::Over) | (Err(_), _) => return,
            },
        }
    }
}

/// Marks an answer that is still being made while it is sent: its request is under way until its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongAnswer;

/// What happens on one connection.
#[derive(Default)]
struct Activity {
    under_way: AtomicUsize,
    answered: AtomicU64,
}

/// A request under way.
struct UnderWay(Arc<Activity>);

impl UnderWay {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Counted {
    app: ApiService,
    peer: Peer,
    activity: Arc<Activity>,
}

impl hyper::service::Service<Request<Incoming>> for Counted {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = UnderWay::begin(&self.activity);
        let answer = self.app.answer(request, Some(self.peer));
        Box::pin(async move {
            let answer = answer.await?;
            // A gRPC call is under way until the last of its answers. Any other may take as long as it likes to read.
            let is_call = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/grpc");
            Ok(if is_call || answer.extensions().get::<LongAnswer>().is_some() {
                answer.map(|body| Body::new(Held { body, _under_way: under_way }))
            } else {
                answer
            })
        })
    }
}

/// A body that counts as under way until it ends.
struct Held {
    body: Body,
    _under_way: UnderWay,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
