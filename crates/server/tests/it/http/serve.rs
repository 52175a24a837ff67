//! Connections, over real sockets on loopback: both protocols, slow and silent clients, and stopping.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tidewheel_server::http::{ServeLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::http::harness::Api;

struct Running {
    api: Api,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

async fn start(limits: ServeLimits) -> Running {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let app = api.app.clone();
    let done = tokio::spawn(serve(listener, app, limits, async move { drop(stopped.await) }));
    Running { api, address, stop, done }
}

/// Reads until the server closes.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    drop(stream.read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until what has come contains `end`.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(end) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

#[tokio::test]
async fn both_protocols_answer_on_one_port() {
    let server = start(ServeLimits::default()).await;
    for (http2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let client: Client<_, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let body = json!({"type": "t", "delay": "1h"}).to_string();
        let request = Request::post(format!("http://{}/v1/jobs", server.address))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        let answer = client.request(request).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (201, version));
        assert!(!answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    assert_eq!(server.api.get("/v1/jobs/count").await.json()["count"], 2);
}

#[tokio::test]
async fn a_large_body_is_refused_in_a_way_its_sender_hears() {
    let server = start(ServeLimits::default()).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{}/v1/jobs", server.address))
        .body(Full::from(vec![b' '; 50 * 1_024 * 1_024]))
        .unwrap();
    let answer = client.request(request).await.expect("the sender sees the answer, not a reset");
    assert_eq!(answer.status(), 413);
}

#[tokio::test]
async fn too_many_and_too_long_headers_are_refused() {
    let server = start(ServeLimits::default()).await;
    for headers in ["X-A: b\r\n".repeat(10_000), format!("X-A: {}\r\n", "b".repeat(100_000))] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close while this is still being sent.
        drop(stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).await);
        let answer = read_all(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert_eq!(server.api.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn silent_and_dripping_clients_are_cut_off_and_their_seats_given_to_others() {
    let short = Duration::from_millis(50);
    let limits = ServeLimits {
        connections_max: 3,
        idle_timeout: short,
        head_timeout: short,
        ..ServeLimits::default()
    };
    let server = start(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut dripping = TcpStream::connect(server.address).await.unwrap();
    let mut preface = TcpStream::connect(server.address).await.unwrap();
    // On a machine that stands still their time may be over by now.
    drop(dripping.write_all(b"GET /healthz HTTP/1.1\r\nHo").await);
    drop(preface.write_all(b"PRI * HTT").await);
    // All seats are taken, and given to others as soon as they are free.
    loop {
        let mut next = TcpStream::connect(server.address).await.unwrap();
        drop(next.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await);
        let answer = read_all(&mut next).await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    for stream in [&mut silent, &mut dripping, &mut preface] {
        let answer = read_all(stream).await;
        assert!(!answer.contains("200"), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_closed() {
    let server = start(ServeLimits { connections_max: 1, ..ServeLimits::default() }).await;
    let mut seated = TcpStream::connect(server.address).await.unwrap();
    seated.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    read_until(&mut seated, "\"ok\"").await;
    for request in ["GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", ""] {
        let mut surplus = TcpStream::connect(server.address).await.unwrap();
        surplus.write_all(request.as_bytes()).await.unwrap();
        let answer = read_all(&mut surplus).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("connection: close"), "{answer}");
        assert!(head.contains("application/problem+json") && head.contains("retry-after: "), "{answer}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["code"], "overloaded");
    }
    drop(seated);
}

#[tokio::test]
async fn many_idle_connections_do_not_keep_others_from_being_served() {
    let server = start(ServeLimits::default()).await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut last = TcpStream::connect(server.address).await.unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(read_until(&mut last, "\"ok\"").await.starts_with("HTTP/1.1 200"));
    drop(idle);
}

#[tokio::test]
async fn a_stop_lets_requests_end_and_closes_idle_connections() {
    let limits = ServeLimits { drain_timeout: Duration::from_secs(600), ..ServeLimits::default() };
    let server = start(limits).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    read_until(&mut idle, "\"ok\"").await;
    let mut sending = TcpStream::connect(server.address).await.unwrap();
    let body = r#"{"type":"t","delay":"1h"}"#;
    let length = body.len();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    );
    sending.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body, so the request is under way.
    read_until(&mut sending, "100 Continue").await;
    server.stop.send(()).unwrap();
    assert_eq!(read_all(&mut idle).await, "");
    sending.write_all(body.as_bytes()).await.unwrap();
    let answer = read_all(&mut sending).await;
    assert!(answer.contains("201 Created") && answer.contains("scheduled"), "{answer}");
    server.done.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let limits = ServeLimits { drain_timeout: Duration::from_millis(50), ..ServeLimits::default() };
    let server = start(limits).await;
    let mut stuck = TcpStream::connect(server.address).await.unwrap();
    stuck
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await
        .unwrap();
    // The server asks for the body, so the request is under way; the body never comes.
    read_until(&mut stuck, "100 Continue").await;
    server.stop.send(()).unwrap();
    server.done.await.unwrap();
    assert_eq!(read_all(&mut stuck).await, "", "cut off without an answer");
}
