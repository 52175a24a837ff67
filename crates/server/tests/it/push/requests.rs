//! Pushes against real targets on loopback: what is sent, and what an answer means.

use std::time::Duration;

use http::{HeaderValue, Method};
use tidewheel_server::push::Verdict;
use tokio::io::AsyncWriteExt as _;

use crate::push::harness::{PATIENCE, RETRY, Target, push, pusher, read_request, request};

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
async fn a_compressed_body_is_kept_as_it_is() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n".to_vec();
    answer.extend([0x1f, 0x8b, 0x08, 0x00, b'h', b'i']);
    let report = push(&Target::answering(answer).await).await;
    assert_eq!(report.verdict, Verdict::Done);
    assert!(report.excerpt.ends_with("hi") && report.excerpt.starts_with('\u{fffd}'), "{:?}", report.excerpt);
}
