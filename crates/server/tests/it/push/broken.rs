//! Pushes to targets that answer too much, or what is no HTTP, or break off.

use tidewheel_server::push::{PushConfig, Pusher, Verdict};
use tokio::io::AsyncWriteExt as _;

use crate::push::harness::{PATIENCE, RETRY, Target, config, push, read_request, request};

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
