//! The Rust worker against a whole server in process, with a clock turned by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewheel_api::client::{Call, Submitter};
use tidewheel_api::proto::v1::NewJob;
use tidewheel_api::worker::{Classify as _, Context, Error, Failure, Stop, Worker, WorkerConfig};
use tidewheel_server::testing::TestServer;
use tokio::sync::{Semaphore, mpsc};

fn job(kind: &str, payload: &str) -> NewJob {
    NewJob {
        r#type: kind.into(),
        queue: "q".into(),
        payload: bytes::Bytes::copy_from_slice(payload.as_bytes()),
        ..NewJob::default()
    }
}

#[tokio::test]
async fn each_way_a_handler_can_end_becomes_of_its_job_what_it_says() {
    let server = TestServer::start().await.unwrap();
    let mut worker = Worker::connect(server.worker("q")).await.unwrap();
    worker
        .handle("double", |_, n: u32| async move { Ok::<_, Failure>(n * 2) })
        .handle("broken", |_, (): ()| async move { Err::<(), _>("no such address").or_final() })
        .handle(
            "unwanted",
            |_, (): ()| async move { Err::<(), _>(Failure::Cancelled("not any more".into())) },
        )
        .handle("second-time", |context: Context, (): ()| async move {
            if context.attempt() == 1 { Err(Failure::retry("try again")) } else { Ok(()) }
        })
        .handle(
            "early",
            |_, (): ()| async move { Err::<(), _>(Failure::Snooze(Duration::from_secs(3_600))) },
        );
    let stopper = worker.stopper();
    let working = tokio::spawn(worker.run());
    let client = server.client();
    let mut ids = Vec::new();
    for (kind, payload) in [
        ("double", "21"),
        ("double", "{}"),
        ("broken", "null"),
        ("unwanted", "null"),
        ("second-time", "null"),
        ("early", "null"),
    ] {
        ids.push(client.submit(job(kind, payload)).await.unwrap().id);
    }
    let doubled = server.until_ended(&ids[0]).await.unwrap();
    assert_eq!((doubled.state.as_str(), &doubled.result[..]), ("succeeded", b"42".as_slice()));
    for (id, state, error) in [
        (&ids[1], "dead", "the payload is not what the handler takes"),
        (&ids[2], "dead", "no such address"),
        (&ids[3], "cancelled", "not any more"),
    ] {
        let ended = server.until_ended(id).await.unwrap();
        assert_eq!(ended.state, state);
        let attempts: serde_json::Value =
            client.send(&Call::get(&["jobs", id, "attempts"])).await.unwrap().json().unwrap();
        assert!(attempts.to_string().contains(error), "{attempts}");
    }
    server.until(&ids[4], |job| job.state == "retrying").await.unwrap();
    let snoozed = server.until(&ids[5], |job| job.state != "running" && job.attempt > 0).await.unwrap();
    assert!(["scheduled", "retrying"].contains(&snoozed.state.as_str()), "{snoozed:?}");
    server.clock().advance(Duration::from_secs(20));
    assert_eq!(server.until_ended(&ids[4]).await.unwrap().state, "succeeded");
    stopper.drain();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_goes_beyond_the_servers_bounds_is_cut_or_fails_and_the_worker_goes_on() {
    const LONG: Duration = Duration::from_secs(40 * 86_400);
    let wordy = || "é".repeat(5 << 20);
    let server = TestServer::start().await.unwrap();
    let mut worker = Worker::connect(server.worker("q")).await.unwrap();
    worker
        .handle("late", move |_, (): ()| async move { Err::<(), _>(Failure::retry_after(wordy(), LONG)) })
        .handle("early", |_, (): ()| async move { Err::<(), _>(Failure::Snooze(LONG)) })
        .handle("wordy", move |_, (): ()| async move { Err::<(), _>(Failure::permanent(wordy())) })
        .handle("large", |_, (): ()| async move { Ok::<_, Failure>("x".repeat(10_000)) })
        .handle("deep", |_, (): ()| async move {
            let nest = |inner, _| serde_json::Value::Array(vec![inner]);
            Ok::<_, Failure>((0..200).fold(serde_json::Value::Null, nest))
        })
        .handle("plain", |_, (): ()| async move { Ok::<_, Failure>(()) });
    let stopper = worker.stopper();
    let working = tokio::spawn(worker.run());
    let client = server.client();
    let mut ids = Vec::new();
    for kind in ["late", "early", "wordy", "large", "deep"] {
        ids.push(client.submit(job(kind, "null")).await.unwrap().id);
    }
    server.until(&ids[0], |job| job.state == "retrying").await.unwrap();
    server.until(&ids[1], |job| job.state != "running" && job.attempt > 0).await.unwrap();
    for (id, error) in [(&ids[2], "éé"), (&ids[3], "cannot be kept"), (&ids[4], "nests deeper")] {
        assert_eq!(server.until_ended(id).await.unwrap().state, "dead");
        let attempts: serde_json::Value =
            client.send(&Call::get(&["jobs", id, "attempts"])).await.unwrap().json().unwrap();
        assert!(attempts.to_string().contains(error), "{attempts}");
    }
    let plain = client.submit(job("plain", "null")).await.unwrap().id;
    assert_eq!(server.until_ended(&plain).await.unwrap().state, "succeeded");
    stopper.drain();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn gathered_submissions_beyond_the_tenants_limit_are_taken_as_far_as_it_goes() {
    let server = TestServer::start().await.unwrap();
    let limit = Call::new(http::Method::PUT, &["tenants", "default"]).json(r#"{"limits": {"waiting": 1}}"#);
    server.client().send(&limit).await.unwrap();
    let hour = Some(prost_types::Duration { seconds: 3_600, nanos: 0 });
    let submitter = Submitter::new(server.client());
    let later = || submitter.submit(NewJob { delay: hour, ..job("t", "null") });
    let answers = futures_util::future::join_all((0..9).map(|_| later())).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        let code = refused.problem().and_then(|problem| problem.code.as_deref());
        assert_eq!(code, Some("too_many_waiting"), "{refused:?}");
    }
}

#[tokio::test]
async fn no_more_handlers_run_at_once_than_may_and_a_drain_hands_the_rest_back() {
    let server = TestServer::start().await.unwrap();
    let config = WorkerConfig { concurrency: 3, ..server.worker("q") };
    let mut worker = Worker::connect(config).await.unwrap();
    let (running, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (begun, mut begins) = mpsc::unbounded_channel();
    let counted = Arc::clone(&running);
    let held = Arc::clone(&gate);
    worker.handle("t", move |_, (): ()| {
        let (running, gate, begun) = (Arc::clone(&counted), Arc::clone(&held), begun.clone());
        async move {
            begun.send(running.fetch_add(1, Ordering::SeqCst) + 1).unwrap();
            gate.acquire().await.unwrap().forget();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        }
    });
    let stopper = worker.stopper();
    let working = tokio::spawn(worker.run());
    let submitter = Submitter::new(server.client());
    let ids: Vec<String> =
        futures_util::future::join_all((0..20).map(|_| submitter.submit(job("t", "null"))))
            .await
            .into_iter()
            .map(|submitted| submitted.unwrap().id)
            .collect();
    for _ in 0..3 {
        assert!(begins.recv().await.unwrap() <= 3);
    }
    stopper.drain();
    gate.add_permits(20);
    working.await.unwrap().unwrap();
    let mut states = Vec::new();
    for id in &ids {
        states.push(server.job(id).await.unwrap().state);
    }
    let done = states.iter().filter(|state| *state == "succeeded").count();
    assert!((3..=6).contains(&done), "{states:?}");
    let waiting = states.iter().filter(|state| ["ready", "scheduled"].contains(&state.as_str())).count();
    assert_eq!(done + waiting, 20, "{states:?}");
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_and_progress_reaches_the_server() {
    let server = TestServer::start().await.unwrap();
    let mut worker = Worker::connect(server.worker("q")).await.unwrap();
    let (stopped, mut stops) = mpsc::unbounded_channel();
    worker.handle("t", move |context: Context, (): ()| {
        let stopped = stopped.clone();
        async move {
            context.progress(&"half way")?;
            stopped.send(context.stopped().await).unwrap();
            Ok(())
        }
    });
    tokio::spawn(worker.run());
    let client = server.client();
    let id = client.submit(job("t", "null")).await.unwrap().id;
    let told = server.until(&id, |job| !job.progress.is_empty()).await.unwrap();
    assert_eq!(&told.progress[..], b"\"half way\"");
    client.send(&Call::post(&["jobs", &id, "cancel"])).await.unwrap();
    assert_eq!(stops.recv().await, Some(Stop::Cancelled));
    assert_eq!(server.job(&id).await.unwrap().state, "cancelled");
}

#[tokio::test]
async fn what_cannot_be_subscribed_to_ends_the_worker() {
    let server = TestServer::start().await.unwrap();
    let config = WorkerConfig { min_priority: Some("urgent".into()), ..server.worker("q") };
    let mut worker = Worker::connect(config).await.unwrap();
    worker.handle("t", |_, (): ()| async move { Ok::<_, Failure>(()) });
    let refused = worker.run().await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { code, .. } if code == "invalid_value"), "{refused:?}");
}

#[tokio::test]
async fn fifty_equal_submissions_under_one_key_are_one_job() {
    let server = TestServer::start().await.unwrap();
    let client = server.client();
    let keyed = || NewJob { idempotency_key: "once".into(), ..job("t", "{}") };
    let answers = futures_util::future::join_all((0..50).map(|_| client.submit(keyed()))).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|answer| answer.id == answers[0].id), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    let other = NewJob { idempotency_key: "once".into(), ..job("u", "{}") };
    let refused = Submitter::new(client).submit(other).await.unwrap_err();
    assert!(refused.problem().is_some(), "{refused:?}");
}
