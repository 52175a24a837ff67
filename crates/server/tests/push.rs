//! Pushes against real targets on loopback, most of them hostile. Each target is written in raw bytes, so that it can do
//! what no HTTP library would. Where a target never answers, the request's own deadline ends the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tidewheel_core::time::Timestamp;
use tidewheel_server::push::{
    AddressPolicy, PushConfig, PushReport, PushRequest, Pusher, TrustedRoots, Verdict,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// For what should succeed: long enough for any machine, and never waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// For targets that never answer: how long the test takes.
const DEADLINE: Duration = Duration::from_millis(200);

const RETRY: Verdict = Verdict::Retry { after: None };

/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: Timestamp = Timestamp::from_ms(784_111_777_000);

/// A target on loopback that treats every connection the same way.
struct Target {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    events: mpsc::UnboundedReceiver<String>,
}

impl Target {
    /// `handle` gets each connection and a channel to tell the test what it saw.
    async fn start<F, Fut>(handle: F) -> Self
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
        Self { address, connections, events }
    }

    /// Answers every request on a connection with the same bytes, and tells the request.
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
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
    async fn endless(first: &'static [u8], more: &'static [u8], pace: Option<Duration>) -> Self {
        Self::start(move |mut stream, seen| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(first).await.unwrap();
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
    async fn hanging_after(first: &'static [u8]) -> Self {
        Self::start(move |mut stream, seen| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(first).await.unwrap();
            until_closed(&mut stream).await;
            seen.send("gone".to_owned()).ok();
        })
        .await
    }

    fn url(&self) -> String {
        format!("http://{}/hook?x=1", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn event(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("the target saw nothing").unwrap()
    }
}

/// Reads one request, head and body, as the target gets it. `None` once the client has closed.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
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

async fn until_closed<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut ignored = [0; 1_024];
    while matches!(stream.read(&mut ignored).await, Ok(count) if count > 0) {}
}

fn config() -> PushConfig {
    PushConfig { allow: AddressPolicy::public_only().allow_loopback(), ..PushConfig::default() }
}

fn pusher() -> Pusher {
    Pusher::new(config()).unwrap()
}

fn request(url: &str, timeout: Duration) -> PushRequest {
    PushRequest {
        url: url.parse().unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"secret\":1}"),
        timeout,
        now: NOW,
    }
}

async fn push(target: &Target) -> PushReport {
    pusher().push(request(&target.url(), PATIENCE)).await
}

/// For targets that must be given up on.
async fn push_in_vain(target: &Target) -> PushReport {
    let report = pusher().push(request(&target.url(), DEADLINE)).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
    report
}

#[tokio::test]
async fn the_status_and_its_headers_decide() {
    let retry_in = |secs| Verdict::Retry { after: Some(Duration::from_secs(secs)) };
    for (head, verdict) in [
        ("200 OK", Verdict::Done),
        ("201 Created", Verdict::Done),
        ("202 Accepted", Verdict::Done),
        ("202 Accepted\r\nTidewheel-Lease: 10m", Verdict::Accepted { lease: Duration::from_secs(600) }),
        ("404 Not Found", Verdict::Dead),
        ("410 Gone", Verdict::Dead),
        ("408 Request Timeout", RETRY),
        ("425 Too Early", RETRY),
        ("429 Too Many Requests\r\nRetry-After: 7", retry_in(7)),
        ("503 Unavailable\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT", retry_in(60)),
        ("500 Oops", RETRY),
        ("999 What", RETRY),
    ] {
        let target = Target::answering(format!("HTTP/1.1 {head}\r\nContent-Length: 5\r\n\r\nhello")).await;
        let report = push(&target).await;
        assert_eq!(report.verdict, verdict, "{head}");
        assert_eq!(report.status, head[..3].parse().ok(), "{head}");
        assert_eq!(report.excerpt, "hello", "{head}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_is_an_answer() {
    for head in [
        "204 No Content\r\n\r\n",
        "200 OK\r\nContent-Length: 0\r\n\r\n",
        "200 OK\r\nConnection: close\r\n\r\n",
    ] {
        let target = Target::start(move |mut stream, _| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(format!("HTTP/1.1 {head}").as_bytes()).await.unwrap();
        })
        .await;
        let report = push(&target).await;
        assert_eq!((report.verdict, report.excerpt.as_str()), (Verdict::Done, ""), "{head}");
    }
}

#[tokio::test]
async fn the_target_receives_exactly_what_was_asked() {
    let mut target = Target::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut asked = request(&target.url(), PATIENCE);
    asked.method = Method::PUT;
    asked.headers.insert("tidewheel-attempt", HeaderValue::from_static("3"));
    let report = pusher().push(asked).await;
    assert_eq!(report.verdict, Verdict::Done, "{}", report.excerpt);

    let received = target.event().await;
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("PUT /hook?x=1 HTTP/1.1"));
    let mut headers: Vec<&str> = lines.collect();
    headers.sort_unstable();
    // In particular no Accept-Encoding, Cookie, Connection or second header of any kind.
    let host = format!("host: {}", target.address);
    let agent = format!("user-agent: tidewheel/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(headers, ["content-length: 12", &host, "tidewheel-attempt: 3", &agent]);
    assert_eq!(body, "{\"secret\":1}");
}

#[tokio::test]
async fn redirects_are_dead_and_never_followed() {
    let decoy = Target::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for location in [decoy.url().as_str(), "http://169.254.169.254/latest/", "file:///etc/passwd"] {
        for status in [301, 302, 303, 307, 308] {
            let answer =
                format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\nbody");
            let target = Target::answering(answer).await;
            let report = push(&target).await;
            assert_eq!((report.verdict, report.status), (Verdict::Dead, Some(status)));
            assert!(report.excerpt.contains("not followed"), "{}", report.excerpt);
            assert!(report.excerpt.contains(location), "{}", report.excerpt);
        }
    }
    assert_eq!(decoy.connections(), 0);
}

#[tokio::test]
async fn a_target_that_never_answers_is_given_up_and_its_connection_closed() {
    let mut silent = Target::hanging_after(b"").await;
    let report = push_in_vain(&silent).await;
    assert!(report.excerpt.contains("no answer within"), "{}", report.excerpt);
    assert_eq!(silent.event().await, "gone");

    let mut half = Target::hanging_after(b"HTTP/1.1 200 OK\r\nX-Half: ").await;
    push_in_vain(&half).await;
    assert_eq!(half.event().await, "gone");
}

#[tokio::test]
async fn a_head_that_trickles_or_never_ends_is_given_up() {
    let mut slow =
        Target::endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a", Some(Duration::from_millis(5))).await;
    push_in_vain(&slow).await;
    assert_eq!(slow.event().await, "gone");

    let mut interim =
        Target::endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", Some(Duration::from_millis(1))).await;
    push_in_vain(&interim).await;
    assert_eq!(interim.event().await, "gone");
}

#[tokio::test]
async fn a_head_beyond_its_bounds_is_a_fault() {
    let mut endless = Target::endless(b"HTTP/1.1 200 OK\r\nX-Long: ", &[b'a'; 4_096], None).await;
    let report = push(&endless).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
    assert_eq!(endless.event().await, "gone");

    let many = Target::answering(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: y\r\n".repeat(2_000))).await;
    let report = push(&many).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
}

#[tokio::test]
async fn a_body_that_hangs_does_not_change_the_verdict() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe beginning";
    let mut target = Target::hanging_after(head).await;
    let impatient = Pusher::new(PushConfig { response_body_grace: DEADLINE, ..config() }).unwrap();
    let report = impatient.push(request(&target.url(), PATIENCE)).await;
    assert_eq!((report.verdict, report.status), (Verdict::Done, Some(200)), "{}", report.excerpt);
    assert_eq!(report.excerpt, "the beginning");
    assert_eq!(target.event().await, "gone");
}

#[tokio::test]
async fn the_deadline_in_mid_body_does_not_change_the_verdict_either() {
    let mut target = Target::hanging_after(b"HTTP/1.1 410 Gone\r\nContent-Length: 100\r\n\r\nsorry").await;
    let patient = Pusher::new(PushConfig { response_body_grace: PATIENCE, ..config() }).unwrap();
    let report = patient.push(request(&target.url(), Duration::from_secs(2))).await;
    assert_eq!((report.verdict, report.status), (Verdict::Dead, Some(410)), "{}", report.excerpt);
    assert_eq!(report.excerpt, "sorry");
    assert_eq!(target.event().await, "gone");
}

#[tokio::test]
async fn a_body_that_trickles_costs_its_grace() {
    let head = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut target = Target::endless(head, b"1\r\na\r\n", Some(Duration::from_millis(5))).await;
    let impatient = Pusher::new(PushConfig { response_body_grace: DEADLINE, ..config() }).unwrap();
    let report = impatient.push(request(&target.url(), PATIENCE)).await;
    assert_eq!((report.verdict, report.status), (RETRY, Some(500)));
    assert!(report.excerpt.starts_with('a'), "{}", report.excerpt);
    assert_eq!(target.event().await, "gone");
}

#[tokio::test]
async fn an_endless_or_enormous_body_is_read_to_its_bound_and_dropped() {
    const CHUNK: &[u8] = b"10\r\naaaaaaaaaaaaaaaa\r\n";
    let heads: [(&[u8], &[u8]); 3] = [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", &[b'a'; 4_096]),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &[b'a'; 4_096]),
    ];
    // The grace never ends here: only the bound on bytes can.
    let patient = Pusher::new(PushConfig { response_body_grace: PATIENCE, ..config() }).unwrap();
    for (head, more) in heads {
        let mut target = Target::endless(head, more, None).await;
        let report = patient.push(request(&target.url(), PATIENCE)).await;
        assert_eq!((report.verdict, report.status), (Verdict::Done, Some(200)));
        assert_eq!(report.excerpt, "a".repeat(config().response_excerpt_bytes_max));
        assert_eq!(target.event().await, "gone");
    }
}

#[tokio::test]
async fn a_compressed_body_is_kept_as_it_is() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n".to_vec();
    answer.extend([0x1f, 0x8b, 0x08, 0x00, b'h', b'i']);
    let report = push(&Target::answering(answer).await).await;
    assert_eq!(report.verdict, Verdict::Done);
    assert!(report.excerpt.ends_with("hi") && report.excerpt.starts_with('\u{fffd}'), "{:?}", report.excerpt);
}

#[tokio::test]
async fn what_is_no_http_is_a_fault() {
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.6\r\n\r\n"[..],
        b"\x00\x01\x02\x03\xff\xfe\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: minus one\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"<html>hello</html>\r\n\r\n",
    ] {
        let report = push(&Target::answering(garbage).await).await;
        let shown = String::from_utf8_lossy(garbage);
        assert_eq!((report.verdict, report.status), (RETRY, None), "{shown:?}: {}", report.excerpt);
        assert!(!report.excerpt.is_empty(), "{shown:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_head_is_a_fault_and_after_it_is_not() {
    // Closing with the request unread makes the system send a reset.
    let reset = Target::start(|stream, _| async move { drop(stream) }).await;
    let report = push(&reset).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);

    let closed = Target::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
    })
    .await;
    let report = push(&closed).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);

    let cut = Target::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart").await.unwrap();
    })
    .await;
    let report = push(&cut).await;
    assert_eq!((report.verdict, report.status), (Verdict::Done, Some(200)));
    assert_eq!(report.excerpt, "part");
}

#[tokio::test]
async fn a_target_that_does_not_read_is_given_up() {
    let deaf = Target::start(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let mut large = request(&deaf.url(), DEADLINE);
    large.body = Bytes::from(vec![b'a'; 64 * 1_024 * 1_024]);
    let report = pusher().push(large).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
}

#[tokio::test]
async fn nobody_listening_no_such_name_and_no_time_are_faults() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let report = pusher().push(request(&url, PATIENCE)).await;
    assert_eq!((report.verdict, report.status), (RETRY, None));
    assert!(report.excerpt.contains("could not connect"), "{}", report.excerpt);

    let report = pusher().push(request("http://no-such-name.invalid/", Duration::from_secs(2))).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);

    let silent = Target::hanging_after(b"").await;
    let report = pusher().push(request(&silent.url(), Duration::ZERO)).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
}

#[tokio::test]
async fn connections_are_used_again_after_any_answer_that_ends_within_its_bound() {
    const PUSHES: usize = 100;
    let read_max = config().response_read_bytes_max;
    for body_bytes in [0, 2, 4_096, read_max] {
        let body = "a".repeat(body_bytes);
        let target =
            Target::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n{body}")).await;
        let pusher = pusher();
        for _ in 0..PUSHES {
            let report = pusher.clone().push(request(&target.url(), PATIENCE)).await;
            assert_eq!(report.verdict, Verdict::Done, "{}", report.excerpt);
        }
        // The pool may open another connection when the last has not quite come back, but hardly ever.
        assert!(target.connections() <= PUSHES / 4, "{body_bytes}: {} connections", target.connections());
    }

    let too_long = Target::answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
        read_max * 4,
        "a".repeat(read_max * 4)
    ))
    .await;
    let pusher = pusher();
    for _ in 0..3 {
        assert_eq!(pusher.push(request(&too_long.url(), PATIENCE)).await.verdict, Verdict::Done);
    }
    assert_eq!(too_long.connections(), 3);
}

#[tokio::test]
async fn a_connection_the_target_announces_to_close_is_not_used_again() {
    let target = Target::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            .await
            .unwrap();
        until_closed(&mut stream).await;
    })
    .await;
    let pusher = pusher();
    for _ in 0..20 {
        let report = pusher.push(request(&target.url(), PATIENCE)).await;
        assert_eq!(report.verdict, Verdict::Done, "{}", report.excerpt);
    }
    assert_eq!(target.connections(), 20);
}

#[tokio::test]
async fn a_closed_address_is_refused_without_a_connection() {
    let decoy = Target::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let strict = Pusher::new(PushConfig::default()).unwrap();
    let port = decoy.address.port();
    for host in
        ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "a.localhost.", "127.1", "2130706433"]
    {
        let report = strict.push(request(&format!("http://{host}:{port}/"), PATIENCE)).await;
        assert_eq!((report.verdict, report.status), (Verdict::Refused, None), "{host}: {}", report.excerpt);
        assert!(!report.excerpt.is_empty());
    }
    let report = strict.push(request(&decoy.url(), PATIENCE)).await;
    assert!(report.excerpt.contains("--allow-target"), "{}", report.excerpt);
    for (method, url) in [
        (Method::CONNECT, decoy.url()),
        (Method::POST, format!("ftp://127.0.0.1:{port}/")),
        (Method::POST, format!("http://user@127.0.0.1:{port}/")),
        (Method::POST, "/relative".to_owned()),
    ] {
        let mut odd = request(&url, PATIENCE);
        odd.method = method;
        assert_eq!(pusher().push(odd).await.verdict, Verdict::Refused, "{url}");
    }
    assert_eq!(decoy.connections(), 0);
}

#[tokio::test]
async fn one_hanging_target_does_not_delay_another() {
    let hanging = Target::hanging_after(b"").await;
    let good = Target::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let pusher = pusher();
    let mut stuck = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (pusher, request) = (pusher.clone(), request(&hanging.url(), PATIENCE));
        stuck.spawn(async move { pusher.push(request).await });
    }
    for _ in 0..50 {
        assert_eq!(pusher.push(request(&good.url(), PATIENCE)).await.verdict, Verdict::Done);
    }
    assert!(stuck.try_join_next().is_none(), "a hanging push ended by itself");
}

/// What a certificate is for, and when.
struct Identity {
    names: Vec<String>,
    expired: bool,
}

/// A TLS target with a certificate by an authority of its own, and the roots that trust this authority.
async fn tls_target(identity: Identity) -> (Target, TrustedRoots) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);

    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(identity.names).unwrap();
    if identity.expired {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let server =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let target = Target::start(move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            match acceptor.accept(stream).await {
                Ok(stream) => answer_over_tls(stream, &seen).await,
                Err(fault) => drop(seen.send(format!("no handshake: {fault}"))),
            }
        }
    })
    .await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority_certificate.der().clone()).unwrap();
    (target, TrustedRoots::Only(roots))
}

async fn answer_over_tls<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    seen: &mpsc::UnboundedSender<String>,
) {
    while let Some(request) = read_request(&mut stream).await {
        seen.send(request).ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        stream.flush().await.unwrap();
    }
}

async fn push_tls(target: &Target, host: &str, trusted_roots: TrustedRoots) -> PushReport {
    let pusher = Pusher::new(PushConfig { trusted_roots, ..config() }).unwrap();
    pusher.push(request(&format!("https://{host}:{}/hook", target.address.port()), PATIENCE)).await
}

#[tokio::test]
async fn https_works_for_a_certificate_that_holds_and_for_no_other() {
    let valid = || Identity { names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()], expired: false };
    let (mut target, roots) = tls_target(valid()).await;
    for host in ["localhost", "127.0.0.1"] {
        let report = push_tls(&target, host, roots.clone()).await;
        assert_eq!((report.verdict, report.excerpt.as_str()), (Verdict::Done, "ok"));
        assert!(target.event().await.starts_with("POST /hook HTTP/1.1\r\n"));
    }

    let expired = Identity { expired: true, ..valid() };
    let other_host = Identity { names: vec!["example.com".to_owned()], expired: false };
    let (unknown, _) = tls_target(valid()).await;
    let (expired, expired_roots) = tls_target(expired).await;
    let (other_host, other_host_roots) = tls_target(other_host).await;
    for (mut target, roots, reason) in [
        (unknown, TrustedRoots::Public, "UnknownIssuer"),
        (expired, expired_roots, "expired"),
        (other_host, other_host_roots, "not valid for"),
    ] {
        let report = push_tls(&target, "127.0.0.1", roots).await;
        assert_eq!((report.verdict, report.status), (RETRY, None));
        assert!(report.excerpt.contains(reason), "{reason}: {}", report.excerpt);
        let seen = target.event().await;
        assert!(seen.starts_with("no handshake"), "the request must not be sent: {seen}");
    }
}

#[tokio::test]
async fn tls_to_a_plain_port_never_falls_back_to_plain_text() {
    let mut plain = Target::start(|mut stream, seen| async move {
        let mut first = vec![0; 4_096];
        let count = stream.read(&mut first).await.unwrap();
        first.truncate(count);
        seen.send(format!("{first:?} {}", String::from_utf8_lossy(&first))).ok();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        until_closed(&mut stream).await;
    })
    .await;
    let report = push_tls(&plain, "127.0.0.1", TrustedRoots::Public).await;
    assert_eq!((report.verdict, report.status), (RETRY, None), "{}", report.excerpt);
    let seen = plain.event().await;
    assert!(seen.starts_with("[22, 3,"), "a TLS handshake begins with these: {seen}");
    assert!(!seen.contains("secret"), "{seen}");
    assert_eq!(plain.connections(), 1);
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_is_given_up() {
    let mut silent = Target::start(|mut stream, seen| async move {
        until_closed(&mut stream).await;
        seen.send("gone".to_owned()).ok();
    })
    .await;
    let url = format!("https://127.0.0.1:{}/", silent.address.port());
    let report = pusher().push(request(&url, DEADLINE)).await;
    assert_eq!((report.verdict, report.status), (RETRY, None));
    assert_eq!(silent.event().await, "gone");

    let hasty = Pusher::new(PushConfig { connect_timeout: DEADLINE, ..config() }).unwrap();
    let report = hasty.push(request(&url, PATIENCE)).await;
    assert_eq!((report.verdict, report.status), (RETRY, None));
    assert!(report.excerpt.contains("no connection within"), "{}", report.excerpt);
    assert_eq!(silent.event().await, "gone");
}
