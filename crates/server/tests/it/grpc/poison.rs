//! A job that brings down whoever runs it takes no other job along.

use std::collections::{BTreeSet, VecDeque};

use serde_json::json;
use tidewheel_api::proto::v1::{LeasedJob, Outcomes, server_message, worker_message};
use tidewheel_server::engine::Config;

use crate::grpc::harness::{Server, Worker, end, subscribe, succeeded};

const INNOCENTS: usize = 20;
/// One more than a job may lose with its worker before it is handed out alone.
const ATTEMPTS: u32 = 3;

/// A worker, and what it was sent and has not looked at.
struct Victim {
    worker: Worker,
    sent: VecDeque<Vec<LeasedJob>>,
}

impl Victim {
    async fn connect(server: &Server) -> Self {
        Self { worker: server.worker(subscribe("q", 50)).await, sent: VecDeque::new() }
    }

    async fn next(&mut self) -> Vec<LeasedJob> {
        match self.sent.pop_front() {
            Some(jobs) => jobs,
            None => match self.worker.next().await {
                Ok(server_message::Message::Jobs(batch)) => batch.jobs().unwrap(),
                other => panic!("expected jobs: {other:?}"),
            },
        }
    }

    /// Reports all as done, and has room for as many more.
    async fn end(&mut self, jobs: &[LeasedJob]) {
        let outcomes = Outcomes { jobs: jobs.iter().map(|job| end(job, succeeded())).collect(), batch: 0 };
        self.worker.say(worker_message::Message::Outcomes(outcomes)).await;
        let answers = loop {
            match self.worker.next().await {
                Ok(server_message::Message::OutcomeAnswers(answers)) => break answers.jobs,
                Ok(server_message::Message::Jobs(batch)) => self.sent.push_back(batch.jobs().unwrap()),
                other => panic!("expected answers: {other:?}"),
            }
        };
        assert!(answers.iter().all(|answer| answer.code == "accepted"), "{answers:?}");
        self.worker.add_credits(u32::try_from(jobs.len()).unwrap()).await;
    }
}

#[tokio::test]
async fn a_job_that_brings_its_workers_down_takes_no_other_along() {
    let config = Config { worker_resume_ms: 20, worker_dead_ms: 3_600_000, ..Config::default() };
    let server = Server::start(config).await;
    let job = json!({"type": "t", "queue": "q", "max_attempts": ATTEMPTS});
    let mut innocents = BTreeSet::new();
    let mut poison = String::new();
    for n in 0..=INNOCENTS {
        let id = server.api.submit(&job).await;
        if n == INNOCENTS / 2 {
            poison = id;
        } else {
            innocents.insert(id);
        }
    }
    let (mut done, mut deaths) = (BTreeSet::new(), 0);
    while done.len() < INNOCENTS || deaths < ATTEMPTS {
        let mut victim = Victim::connect(&server).await;
        while done.len() < INNOCENTS || deaths < ATTEMPTS {
            let jobs = victim.next().await;
            if jobs.iter().any(|job| job.id == poison) {
                // With all that it has in its hands.
                deaths += 1;
                let is_alone = jobs.len() == 1 && victim.sent.is_empty();
                assert!(is_alone || deaths < ATTEMPTS, "{jobs:?} and {:?}", victim.sent);
                break;
            }
            victim.end(&jobs).await;
            done.extend(jobs.into_iter().map(|job| job.id));
        }
    }
    assert_eq!(done, innocents);
    server.job_until(&poison, |job| job["state"] == "dead").await;
    for id in &innocents {
        assert_eq!(server.job(id).await["state"], "succeeded");
    }
}

#[tokio::test]
async fn one_who_asks_once_is_handed_such_a_job_alone() {
    let server = Server::start(Config::default()).await;
    let job = |max_attempts: u32| {
        let retry = json!({"max_attempts": max_attempts, "policy": "fixed", "base": 0});
        json!({"type": "t", "queue": "q", "retry": retry})
    };
    let take = json!({"worker": "w", "max": 10, "wait": "20s", "lease": "1s"});
    let took = async || {
        let answer = server.api.post("/v1/queues/q/take", &take).await.json();
        let jobs = answer["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    // Lost once, and another time would be the last.
    let doubtful = server.api.submit(&job(2)).await;
    assert_eq!(took().await, BTreeSet::from([doubtful.clone()]));
    server.job_until(&doubtful, |job| job["state"] == "ready").await;
    let others = BTreeSet::from([server.api.submit(&job(9)).await, server.api.submit(&job(9)).await]);
    let (first, second) = (took().await, took().await);
    assert_eq!(first, BTreeSet::from([doubtful]));
    assert_eq!(second, others);
}
