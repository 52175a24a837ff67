//! Requests over HTTP/2 that are taken back as soon as they are made, thousands of them: they keep nobody else out.

use std::future::Future as _;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidewheel_server::http::{ServeLimits, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::http::harness::Api;

/// Requests one connection takes back.
const RESETS_COUNT: usize = 5_000;

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(address: SocketAddr, body: &'static str) -> Request<Full<Bytes>> {
    let request =
        Request::post(format!("http://{address}/v1/jobs")).header("content-type", "application/json");
    request.body(Full::from(body)).unwrap()
}

/// Makes requests and takes each back; how many until the server would hear no more.
async fn flood(address: SocketAddr) -> usize {
    let mut sender = connect(address).await;
    for count in 0..RESETS_COUNT {
        if sender.ready().await.is_err() {
            return count;
        }
        let mut answer =
            Box::pin(sender.send_request(request(address, "{\"type\": \"t\", \"delay\": \"1h\"}")));
        // Polled once, so that it goes out, and dropped, so that it is reset.
        if let Poll::Ready(Err(_)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return count;
        }
    }
    RESETS_COUNT
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_taken_back_at_once_keep_nobody_out() {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let limits = ServeLimits { connections_max: 6, ..ServeLimits::default() };
    let done = tokio::spawn(serve(listener, api.app.clone(), limits, async move { drop(stopped.await) }));

    let floods: Vec<_> = (0..4).map(|_| tokio::spawn(flood(address))).collect();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for _ in 0..20 {
        let answer =
            client.request(request(address, "{\"type\": \"calm\", \"delay\": \"1h\"}")).await.unwrap();
        assert_eq!(answer.status(), 201, "while others flood");
    }
    let mut sent = 0;
    for flood in floods {
        sent += flood.await.unwrap();
    }
    assert!(sent > 0);
    // A job that was taken back may be there or not; what was answered is, and the engine goes on.
    let calm = api.get("/v1/jobs?type=calm").await.json();
    assert_eq!(calm["items"].as_array().unwrap().len(), 20);
    assert_eq!(api.get("/healthz").await.status, 200);
    drop(client);
    stop.send(()).unwrap();
    done.await.unwrap();
}
