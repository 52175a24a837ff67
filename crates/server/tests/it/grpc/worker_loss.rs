//! Workers that go away, fall silent, come back, or sit on what they were given.

use std::collections::BTreeSet;

use serde_json::json;
use tidewheel_api::proto::v1::{
    Heartbeat, Heartbeats, LeasedJob, Outcomes, Resume, Subscribe, server_message, worker_message,
};
use tidewheel_core::job::Command;
use tidewheel_core::names::Tenant;
use tidewheel_server::engine::Config;
use tidewheel_server::http::ServeLimits;
use tidewheel_store::Order;
use tonic::Code;

use crate::grpc::harness::{Server, Worker, attempt, code, end, patient, released, subscribe, succeeded};

fn resuming(worker: &Worker, holding: &[&LeasedJob], credits: u32) -> Subscribe {
    let holding = holding.iter().map(|job| attempt(job)).collect();
    let resume = Some(Resume { session: worker.welcome.session.clone(), holding });
    Subscribe { resume, ..subscribe("q", credits) }
}

#[tokio::test]
async fn jobs_of_a_worker_that_went_away_return_and_count() {
    let server = Server::start(Config { worker_resume_ms: 50, ..patient() }).await;
    let mut gone = server.worker(subscribe("q", 1)).await;
    server.submit("q", 1).await;
    let first = gone.job().await;
    drop(gone);
    let mut next = server.worker(subscribe("q", 1)).await;
    let second = next.job().await;
    assert_eq!((&second.id, second.attempt), (&first.id, 2));
    assert!(second.token > first.token);
    // A late outcome under the old token is refused, whoever brings it.
    let late = json!({"token": first.token, "status": "succeeded"});
    server.api.post(&format!("/v1/jobs/{}/outcome", first.id), &late).await.problem(409, "stale_token");
    assert_eq!(next.outcomes(vec![end(&first, succeeded())]).await[0].code, "stale_token");
    assert_eq!(next.end(&second, succeeded()).await, "accepted");
    let attempts = server.api.get(&format!("/v1/jobs/{}/attempts", first.id)).await.json();
    assert_eq!(
        (&attempts["items"][0]["state"], &attempts["items"][1]["state"]),
        (&json!("lost"), &json!("succeeded"))
    );
    assert!(attempts["items"][0]["detail"].as_str().unwrap().contains("worker"), "{attempts}");
}

/// As when another node ends an attempt and the news of it is lost.
#[tokio::test]
async fn an_attempt_that_is_over_leaves_its_workers_hands_when_that_is_refused_for_it() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 1)).await;
    server.submit("q", 1).await;
    let job = worker.job().await;
    server.workers_until(|workers| workers[0]["in_flight"] == 1).await;
    let engine = &server.api.engine;
    let cancel =
        Order { tenant: Tenant::default(), id: job.id.parse().unwrap(), command: Command::Cancel, key: None };
    engine.store().apply(engine.clock().now(), None, vec![cancel]).await.unwrap().remove(0).unwrap();
    let beat = Heartbeat { id: job.id.clone(), token: job.token, ..Heartbeat::default() };
    worker.say(worker_message::Message::Heartbeats(Heartbeats { jobs: vec![beat] })).await;
    server.workers_until(|workers| workers[0]["in_flight"] == 0).await;
}

#[tokio::test]
async fn a_worker_that_comes_back_goes_on_where_it_was() {
    let server = Server::start(Config { worker_resume_ms: 600_000, ..patient() }).await;
    let mut worker = server.worker(subscribe("q", 3)).await;
    server.submit("q", 3).await;
    let jobs = worker.jobs(3).await;
    assert!(!worker.welcome.resumed);
    // Of the three, one never reached the worker.
    let again = resuming(&worker, &[&jobs[0], &jobs[1]], 0);
    let id = worker.welcome.worker_id.clone();
    drop(worker);
    server.workers_until(|workers| workers[0]["connected"] == false && workers[0]["in_flight"] == 3).await;
    let mut other = server.worker(subscribe("q", 1)).await;
    other.nothing_comes().await;
    let mut worker = Worker::connect(server.channel().await, "default", again).await.unwrap();
    assert!(worker.welcome.resumed && worker.welcome.worker_id == id);
    let given = other.job().await;
    assert_eq!((&given.id, given.attempt), (&jobs[2].id, 2));
    assert_eq!(worker.end(&jobs[0], succeeded()).await, "accepted");
    assert_eq!(worker.end(&jobs[2], succeeded()).await, "stale_token");
    let workers = server.workers_until(|workers| workers[0]["in_flight"] == 1).await;
    assert_eq!((&workers[0]["id"], &workers[0]["connected"]), (&json!(id), &json!(true)));
    let released = server.api.get(&format!("/v1/jobs/{}/attempts", given.id)).await.json();
    assert_eq!(released["items"][0]["state"], "released");
}

#[tokio::test]
async fn a_session_goes_on_over_one_stream_only_and_only_for_its_tenant() {
    let server = Server::start(patient()).await;
    let mut old = server.worker(subscribe("q", 1)).await;
    server.submit("q", 1).await;
    let job = old.job().await;
    let again = resuming(&old, &[&job], 0);
    let foreign = Worker::connect(server.channel().await, "other", again.clone()).await.unwrap();
    assert!(!foreign.welcome.resumed);
    let mut new = Worker::connect(server.channel().await, "default", again).await.unwrap();
    assert!(new.welcome.resumed);
    assert_eq!(old.next().await.unwrap_err().unwrap().code(), Code::Aborted);
    assert_eq!(new.end(&job, succeeded()).await, "accepted");
    let unknown = Resume { session: "0123".into(), holding: Vec::new() };
    let fresh = server.worker(Subscribe { resume: Some(unknown), ..subscribe("q", 1) }).await;
    assert!(!fresh.welcome.resumed);
}

#[tokio::test]
async fn a_silent_worker_is_dead() {
    let server = Server::start(Config { worker_dead_ms: 300, ..patient() }).await;
    // Before it connects: it does not live long enough to wait for one.
    server.submit("q", 1).await;
    // On a machine that stands still it may be dead before it has one; then there is another.
    let (mut silent, first) = loop {
        let mut silent = server.worker(subscribe("q", 1)).await;
        match silent.next().await {
            Ok(server_message::Message::Jobs(batch)) => break (silent, batch.jobs().unwrap().remove(0)),
            Ok(other) => panic!("expected a job: {other:?}"),
            Err(ended) => assert_eq!(code(&ended.unwrap()), "request_timeout"),
        }
    };
    let ended = silent.next().await.unwrap_err().unwrap();
    assert_eq!((ended.code(), code(&ended)), (Code::DeadlineExceeded, "request_timeout"));
    // One that takes its job over HTTP may be silent.
    let second = server.api.take_one("q").await;
    assert_eq!((&second["id"], &second["attempt"]), (&json!(first.id), &json!(first.attempt + 1)));
    let outcome = json!({"token": second["token"], "status": "succeeded"});
    let ended = server.api.post(&format!("/v1/jobs/{}/outcome", first.id), &outcome).await;
    assert_eq!(ended.json()["state"], "succeeded", "{ended:?}");
}

#[tokio::test]
async fn a_worker_with_empty_hands_may_be_silent_for_longer_but_not_with_a_job() {
    let server = Server::start(Config { worker_dead_ms: 300, ..patient() }).await;
    let idle_heartbeat = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    let mut quiet = server.worker(Subscribe { idle_heartbeat, ..subscribe("quiet", 1) }).await;
    assert_eq!(quiet.welcome.idle_heartbeat_every.unwrap().seconds, 5);
    // One that asked for nothing is gone by now: so would the other be, by the same time.
    let mut usual = server.worker(subscribe("usual", 1)).await;
    let ended = usual.next().await.unwrap_err().unwrap();
    assert_eq!(code(&ended), "request_timeout");
    server.submit("quiet", 1).await;
    let first = quiet.job().await;
    let ended = quiet.next().await.unwrap_err().unwrap();
    assert_eq!(code(&ended), "request_timeout");
    let second = server.api.take_one("quiet").await;
    assert_eq!((&second["id"], &second["attempt"]), (&json!(first.id), &json!(2)));
}

#[tokio::test]
async fn a_job_that_brings_its_workers_down_ends_dead_and_its_queue_moves_on() {
    let server = Server::start(Config { worker_resume_ms: 20, ..patient() }).await;
    let poison = server.api.submit(&json!({"type": "t", "queue": "q", "max_attempts": 3})).await;
    for attempt in 1..=3 {
        let mut victim = server.worker(subscribe("q", 1)).await;
        let job = victim.job().await;
        assert_eq!((job.id.as_str(), job.attempt), (poison.as_str(), attempt));
    }
    let dead = server.job_until(&poison, |job| job["state"] == "dead").await;
    assert!(dead["reason"].as_str().unwrap().contains("worker"), "{dead}");
    let attempts = server.api.get(&format!("/v1/jobs/{poison}/attempts")).await.json();
    let attempts = attempts["items"].as_array().unwrap();
    assert!(attempts.len() == 3 && attempts.iter().all(|attempt| attempt["state"] == "lost"), "{attempts:?}");
    let healthy = server.submit("q", 1).await;
    let mut next = server.worker(subscribe("q", 1)).await;
    assert_eq!(next.job().await.id, healthy[0]);
}

/// The next thing said but wishes to take jobs back, which go on for as long as another worker has nothing to do.
async fn said_besides(worker: &mut Worker) -> server_message::Message {
    loop {
        let said = worker.next().await.unwrap();
        if !matches!(said, server_message::Message::TakeBack(_)) {
            return said;
        }
    }
}

#[tokio::test]
async fn jobs_that_lie_unstarted_are_taken_back_for_an_idle_worker() {
    let server = Server::start(Config { worker_take_back_ms: 100, ..patient() }).await;
    let mut slow = server.worker(subscribe("q", 50)).await;
    // Together, so that they lie for the same time.
    let five = json!(vec![json!({"type": "t", "queue": "q"}); 5]);
    assert_eq!(server.api.post("/v1/jobs/batch", &five).await.status.as_u16(), 201);
    let jobs = slow.jobs(5).await;
    slow.started(&[&jobs[0]]).await;
    slow.nothing_comes().await;
    let mut idle = server.worker(subscribe("q", 10)).await;
    let asked = match slow.next().await {
        Ok(server_message::Message::TakeBack(back)) => back.jobs,
        other => panic!("expected a wish to take back: {other:?}"),
    };
    assert_eq!(asked.len(), 2, "half of the four that lie unstarted");
    assert!(asked.iter().all(|job| job.id != jobs[0].id));
    let back: Vec<&LeasedJob> = jobs.iter().filter(|job| asked.contains(&attempt(job))).collect();
    let outcomes = Outcomes { jobs: back.iter().map(|job| end(job, released())).collect(), batch: 0 };
    slow.say(worker_message::Message::Outcomes(outcomes)).await;
    let server_message::Message::OutcomeAnswers(answers) = said_besides(&mut slow).await else {
        panic!("expected answers")
    };
    assert!(answers.jobs.iter().all(|answer| answer.code == "accepted"), "{answers:?}");
    let moved: BTreeSet<String> = idle.jobs(2).await.into_iter().map(|job| job.id).collect();
    assert_eq!(moved, back.iter().map(|job| job.id.clone()).collect());
    // The other is busy now, so the rest stays, whatever was asked for before.
    slow.say(worker_message::Message::Heartbeats(Heartbeats { jobs: Vec::new() })).await;
    assert!(matches!(said_besides(&mut slow).await, server_message::Message::HeartbeatAnswers(_)));
    slow.nothing_comes().await;
}

#[tokio::test]
async fn a_quiet_stream_is_not_an_idle_connection() {
    let limits = ServeLimits { idle_timeout: std::time::Duration::from_millis(50), ..ServeLimits::default() };
    let server = Server::start_within(Config { worker_dead_ms: 1_000, ..patient() }, limits).await;
    let standing = async {
        loop {
            // Before its stream stands, the connection is an idle one.
            if let Ok(quiet) = Worker::connect(server.channel().await, "default", subscribe("q", 1)).await {
                return quiet;
            }
        }
    };
    let mut quiet = tokio::time::timeout(std::time::Duration::from_secs(300), standing).await.unwrap();
    // What ends it is its silence, told as such, and not the end of the connection long before.
    let ended = quiet.next().await.unwrap_err().unwrap();
    assert_eq!((ended.code(), code(&ended)), (Code::DeadlineExceeded, "request_timeout"));
}

#[tokio::test]
async fn a_worker_that_does_not_read_gets_no_more_until_it_does() {
    let server = Server::start(patient()).await;
    let mut slow = server.worker(subscribe("q", 200)).await;
    let job = json!({"type": "t", "queue": "q", "payload": "x".repeat(60_000)});
    let mut ids = Vec::new();
    // One after the other, each sent or held before the next comes: what falls due at once is sent at once.
    let stalled = async {
        let mut is_held = false;
        while ids.len() < 120 {
            ids.push(server.api.submit(&job).await);
            let last = format!("/v1/jobs/{}/explain", ids[ids.len() - 1]);
            is_held = loop {
                let said = server.api.get(&last).await.json();
                if said["waits_for"] == "workers_busy" || said["state"] == "running" {
                    break said["state"] != "running";
                }
                tokio::task::yield_now().await;
            };
        }
        assert!(is_held, "it was sent everything");
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), stalled).await.unwrap();
    let workers = server.workers_until(|workers| workers[0]["in_flight"].as_u64() > Some(0)).await;
    assert!(workers[0]["credits"].as_u64() > Some(80), "{workers:?}");
    let read: BTreeSet<String> = slow.jobs(120).await.into_iter().map(|job| job.id).collect();
    assert_eq!(read, ids.into_iter().collect());
}

#[tokio::test]
async fn a_hundred_jobs_of_a_worker_that_went_away_are_all_given_to_another() {
    let server = Server::start(Config { worker_resume_ms: 50, ..patient() }).await;
    let mut gone = server.worker(subscribe("q", 100)).await;
    server.submit("q", 100).await;
    let mut held: Vec<String> = gone.jobs(100).await.into_iter().map(|job| job.id).collect();
    drop(gone);
    let mut next = server.worker(subscribe("q", 100)).await;
    let again = next.jobs(100).await;
    assert!(again.iter().all(|job| job.attempt == 2));
    let mut given: Vec<String> = again.into_iter().map(|job| job.id).collect();
    held.sort();
    given.sort();
    assert_eq!(held, given);
}
