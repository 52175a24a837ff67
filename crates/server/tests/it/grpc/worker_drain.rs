//! Workers that say that they leave: what they have not started is for others at once.

use std::collections::BTreeSet;

use tidewheel_api::proto::v1::{LeasedJob, Outcomes, Subscribe, server_message, worker_message};
use tidewheel_server::engine::Config;

use crate::grpc::harness::{Server, Worker, end, subscribe, succeeded};

/// Nothing comes back by itself for so long.
const LONG_MS: i64 = 3_600_000;

async fn server() -> Server {
    let config = Config {
        worker_dead_ms: LONG_MS,
        worker_resume_ms: LONG_MS,
        worker_take_back_ms: LONG_MS,
        ..Config::default()
    };
    Server::start(config).await
}

async fn worker(server: &Server) -> Worker {
    let lease = Some(prost_types::Duration { seconds: LONG_MS / 1_000, nanos: 0 });
    server.worker(Subscribe { lease, ..subscribe("q", 10) }).await
}

fn ids(jobs: &[LeasedJob]) -> BTreeSet<String> {
    jobs.iter().map(|job| job.id.clone()).collect()
}

#[tokio::test]
async fn what_a_draining_worker_has_not_started_is_for_others_at_once() {
    let server = server().await;
    let mut leaving = worker(&server).await;
    server.submit("q", 3).await;
    let jobs = leaving.jobs(3).await;
    leaving.started(&[&jobs[0]]).await;
    leaving.drain().await;
    let mut other = worker(&server).await;
    let given = other.jobs(2).await;
    assert_eq!(ids(&given), ids(&jobs[1..]));
    assert!(given.iter().all(|job| job.attempt == 2));
    for job in &given {
        let attempts = server.api.get(&format!("/v1/jobs/{}/attempts", job.id)).await.json();
        assert_eq!(attempts["items"][0]["state"], "released", "it costs nothing");
    }
    // It is told, should it start them all the same.
    let mut told = BTreeSet::new();
    while told.len() < given.len() {
        match leaving.next().await {
            Ok(server_message::Message::CancelJobs(cancels)) => {
                told.extend(cancels.jobs.into_iter().map(|job| job.id));
            }
            other => panic!("expected to be told: {other:?}"),
        }
    }
    assert_eq!(told, ids(&given));
    assert_eq!(leaving.end(&jobs[0], succeeded()).await, "accepted");
    assert_eq!(leaving.end(&jobs[1], succeeded()).await, "stale_token");
}

#[tokio::test]
async fn an_outcome_that_is_on_its_way_when_its_worker_drains_counts() {
    let server = server().await;
    let mut leaving = worker(&server).await;
    server.submit("q", 1).await;
    let job = leaving.job().await;
    // Over so soon that it was never said to have started.
    let outcomes = Outcomes { jobs: vec![end(&job, succeeded())], batch: 0 };
    leaving.say(worker_message::Message::Outcomes(outcomes)).await;
    leaving.drain().await;
    match leaving.next().await {
        Ok(server_message::Message::OutcomeAnswers(answers)) => assert_eq!(answers.jobs[0].code, "accepted"),
        other => panic!("expected an answer: {other:?}"),
    }
    assert_eq!(server.job(&job.id).await["state"], "succeeded");
}
