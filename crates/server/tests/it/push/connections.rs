//! Pushes and their connections: none to be had, none allowed, used again or not.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;
use tidewheel_server::push::{PushConfig, Pusher, Verdict};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::push::harness::{PATIENCE, RETRY, Target, config, pusher, read_request, request, until_closed};

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
