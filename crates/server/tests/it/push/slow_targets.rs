//! Pushes to targets that hang, trickle or do not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_server::clock::Clock;
use tidewheel_server::push::{PushConfig, PushRequest, Pusher, Verdict};
use tokio::io::AsyncWriteExt as _;

use crate::push::harness::{
    DEADLINE, PATIENCE, RETRY, SetClock, Target, config, push_in_vain, pusher, read_request, request,
};

/// Pushes again of what came too late.
const TRIES_MAX: usize = 5;

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
async fn a_date_to_come_back_at_counts_from_when_the_answer_comes() {
    // A minute after the request was made.
    const AT: &str =
        "HTTP/1.1 503 Busy\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\nContent-Length: 0\r\n\r\n";
    let clock = Arc::new(SetClock::default());
    let shown = Arc::clone(&clock);
    let target = Target::start(move |mut stream, _| {
        let shown = Arc::clone(&shown);
        async move {
            while read_request(&mut stream).await.is_some() {
                shown.set_ahead(Duration::from_secs(40));
                stream.write_all(AT.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    for after in [Some(Duration::from_secs(20)), None] {
        let asked =
            PushRequest { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..request(&target.url(), PATIENCE) };
        let report = pusher().push(asked).await;
        assert_eq!((report.verdict, report.status), (Verdict::Retry { after }, Some(503)));
    }
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
    let mut report = patient.push(request(&target.url(), Duration::from_secs(2))).await;
    for _ in 0..TRIES_MAX {
        // The machine stood still, and there was no head before the deadline.
        if report.status.is_none() {
            report = patient.push(request(&target.url(), Duration::from_secs(2))).await;
        }
    }
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
