//! Targets on loopback, written in raw bytes, so that they can do what no HTTP library would. Where a target never
//! answers, the request's own deadline ends the test.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::Clock;
use tidewheel_server::push::{AddressPolicy, PushConfig, PushReport, PushRequest, Pusher, Verdict};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// For what should succeed: long enough for any machine, and never waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// For targets that never answer: how long the test takes.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);

pub(crate) const RETRY: Verdict = Verdict::Retry { after: None };

/// Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const NOW: Timestamp = Timestamp::from_ms(784_111_777_000);

/// A clock that shows [`NOW`] until it is set ahead. Nobody waits by it.
#[derive(Default)]
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn set_ahead(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        NOW.plus_ms(self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// A target on loopback that treats every connection the same way.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Requests read by a target that does not answer in full.
    asked: Arc<AtomicUsize>,
    pub(crate) events: mpsc::UnboundedReceiver<String>,
}

impl Target {
    /// `handle` gets each connection and a channel to tell the test what it saw.
    pub(crate) async fn start<F, Fut>(handle: F) -> Self
    where
        F: Fn(TcpStream, mpsc::UnboundedSender<String>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, events) = mpsc::unbounded_channel();
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handle(stream, sender.clone()));
            }
        });
        Self { address, connections, asked: Arc::default(), events }
    }

    /// Answers every request on a connection with the same bytes, and tells the request.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut stream, seen| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    seen.send(request).ok();
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers one request with `first`, then sends `more` again and again until the client goes away, and tells so.
    pub(crate) async fn endless(first: &'static [u8], more: &'static [u8], pace: Option<Duration>) -> Self {
        Self::once_asked(move |mut stream, seen| async move {
            stream.write_all(first).await.ok();
            let mut ticks = pace.map(tokio::time::interval);
            while stream.write_all(more).await.is_ok() {
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
            }
            seen.send("gone".to_owned()).ok();
        })
        .await
    }

    /// Answers one request with `first`, then neither says nor closes anything until the client goes away, and tells so.
    pub(crate) async fn hanging_after(first: &'static [u8]) -> Self {
        Self::once_asked(move |mut stream, seen| async move {
            stream.write_all(first).await.ok();
            until_closed(&mut stream).await;
            seen.send("gone".to_owned()).ok();
        })
        .await
    }

    /// `handle` gets each connection after its first request; a client in a hurry may be gone by then.
    async fn once_asked<F, Fut>(handle: F) -> Self
    where
        F: Fn(TcpStream, mpsc::UnboundedSender<String>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let target = Self::start(move |mut stream, seen| {
            let (counted, handle) = (Arc::clone(&counted), handle.clone());
            async move {
                if read_request(&mut stream).await.is_some() {
                    counted.fetch_add(1, Ordering::SeqCst);
                    handle(stream, seen).await;
                }
            }
        })
        .await;
        Self { asked, ..target }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?x=1", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) async fn event(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("the target saw nothing").unwrap()
    }
}

/// Reads one request, head and body, as the target gets it. `None` once the client has closed.
pub(crate) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut request = Vec::new();
    let head_end = loop {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..head_end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    while request.len() < head_end + length {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&request).into_owned())
}

pub(crate) async fn until_closed<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut ignored = [0; 1_024];
    while matches!(stream.read(&mut ignored).await, Ok(count) if count > 0) {}
}

pub(crate) fn config() -> PushConfig {
    PushConfig { allow: AddressPolicy::public_only().allow_loopback(), ..PushConfig::default() }
}

pub(crate) fn pusher() -> Pusher {
    Pusher::new(config()).unwrap()
}

pub(crate) fn request(url: &str, timeout: Duration) -> PushRequest {
    PushRequest {
        url: url.parse().unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"secret\":1}"),
        timeout,
        clock: Arc::new(SetClock::default()),
    }
}

pub(crate) async fn push(target: &Target) -> PushReport {
    pusher().push(request(&target.url(), PATIENCE)).await
}

/// For targets that must be given up on. Pushed again where the deadline passed before the target read the request.
pub(crate) async fn push_in_vain(target: &Target) -> PushReport {
    let pushing = async {
        loop {
            let report = pusher().push(request(&target.url(), DEADLINE)).await;
            assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
            if target.asked.load(Ordering::SeqCst) > 0 {
                return report;
            }
        }
    };
    tokio::time::timeout(PATIENCE, pushing).await.expect("the target was never asked")
}
