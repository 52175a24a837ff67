//! Workers that say more than they hear, or more than is heard: they are held up, and cost no more than their bound.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidewheel_api::proto::v1::{
    Failed, Heartbeat, Heartbeats, Outcome, Outcomes, Subscribe, WorkerMessage, outcome, server_message,
    worker_message,
};
use tidewheel_core::names::Tenant;
use tidewheel_server::engine::{Config, Interest, Subscription};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Code;

use crate::grpc::harness::{Server, Worker, patient, subscribe};

/// Longer than anything waited for takes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Nothing moves for so long: it is held up.
const STANDSTILL: Duration = Duration::from_secs(2);
/// Far more than all bounds on the way together let through.
const MESSAGES: usize = 2_000;
const BEATS: usize = 2_000;

#[tokio::test]
async fn a_worker_that_sends_heartbeats_and_reads_nothing_is_held_up() {
    let server = Server::start(patient()).await;
    let first = worker_message::Message::Subscribe(subscribe("q", 0));
    let (mut hear, say) = Worker::open(server.channel().await, "default", first).await.unwrap();
    let beat = |n: usize| Heartbeat {
        id: "job_00000000000000000000000000".into(),
        token: u64::try_from(n).unwrap(),
        ..Heartbeat::default()
    };
    let beats = WorkerMessage {
        message: Some(worker_message::Message::Heartbeats(Heartbeats {
            jobs: (0..BEATS).map(beat).collect(),
        })),
    };
    let mut sent = 0;
    while sent < MESSAGES && timeout(STANDSTILL, say.send(beats.clone())).await.is_ok_and(|sent| sent.is_ok())
    {
        sent += 1;
    }
    assert!(sent < MESSAGES, "all {sent} messages were taken in although no answer was read");
    // Once it reads, it goes on, and everything is answered for.
    let mut heard =
        async || timeout(PATIENCE, hear.message()).await.unwrap().unwrap().unwrap().message.unwrap();
    assert!(matches!(heard().await, server_message::Message::Welcome(_)));
    for _ in 0..sent {
        let server_message::Message::HeartbeatAnswers(answers) = heard().await else { panic!("no answers") };
        assert_eq!((answers.jobs.len(), answers.jobs[0].code.as_str()), (BEATS, "job_not_found"));
    }
    timeout(PATIENCE, say.send(beats)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_is_told_as_that() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 0)).await;
    let error = "x".repeat(5 << 20);
    let failed = Failed { error, ..Failed::default() };
    let large = Outcome { result: Some(outcome::Result::Failed(failed)), ..Outcome::default() };
    worker.say(worker_message::Message::Outcomes(Outcomes { jobs: vec![large], batch: 0 })).await;
    let told =
        timeout(PATIENCE, worker.next()).await.unwrap().unwrap_err().expect("the stream ends with a reason");
    assert_eq!(told.code(), Code::OutOfRange, "{told:?}");
}

#[tokio::test]
async fn what_the_scheduler_has_not_heard_yet_takes_up_room() {
    let server = Server::start(patient()).await;
    let tenant = Tenant::new("default").unwrap();
    let subscription = Subscription {
        tenant: tenant.clone(),
        worker: Arc::from("w1"),
        queues: vec![Arc::from("q")],
        interest: Interest::of_tenant(tenant),
        lease_ms: 30_000,
        credits: 0,
        resume: None,
        idle_heartbeat_ms: None,
    };
    let (_, link, _pushes) = server.api.engine.connect_worker(subscription).await.unwrap();
    let room = Arc::new(Semaphore::new(3));
    let hold = || link.holding(Arc::new(Arc::clone(&room).try_acquire_owned().unwrap()));
    // There is one thread, so that the scheduler hears nothing before this test waits.
    hold().add_credits(1);
    hold().started(Vec::new());
    hold().drain();
    assert_eq!(room.available_permits(), 0);
    drop(timeout(PATIENCE, room.acquire_many(3)).await.expect("it hears them").unwrap());
}

#[tokio::test]
async fn as_many_jobs_as_fit_of_types_that_nobody_takes_hold_up_no_other_type() {
    const LOT: usize = 200;
    let server = Server::start(Config { lot_count_max: LOT, ..patient() }).await;
    for n in 1..LOT {
        server.api.submit(&json!({"type": "report", "queue": "q", "payload": n})).await;
    }
    let mails = Subscribe { types: vec!["mail".into()], ..subscribe("q", 5) };
    let mut mails = server.worker(mails).await;
    mails.nothing_comes().await;
    for _ in 0..10 {
        let mail = server.api.submit(&json!({"type": "mail", "queue": "q"})).await;
        assert_eq!(mails.job().await.id, mail);
        mails.add_credits(1).await;
    }
    // Other priorities and other tenants have room of their own.
    for n in 0..LOT {
        server.api.submit(&json!({"type": "report", "queue": "q", "payload": n})).await;
    }
    let urgent = server.api.submit(&json!({"type": "mail", "queue": "q", "priority": "high"})).await;
    assert_eq!(mails.job().await.id, urgent);
}

#[tokio::test]
async fn the_gauge_of_workers_tells_who_is_there() {
    let server = Server::start(Config { worker_resume_ms: 60_000, ..patient() }).await;
    let shows = async |state: &str, count: usize| {
        let line = format!("tidewheel_workers{{state=\"{state}\"}} {count}\n");
        let looking = async {
            loop {
                let metrics = server.api.get("/metrics").await;
                if String::from_utf8_lossy(&metrics.body).contains(&line) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never {line}"));
    };
    shows("connected", 0).await;
    let mut holding = server.worker(subscribe("q", 1)).await;
    let idle = server.worker(subscribe("q", 0)).await;
    server.submit("q", 1).await;
    holding.job().await;
    shows("connected", 2).await;
    drop((holding, idle));
    // One of them has a job in its hands, and may come back for it.
    shows("connected", 0).await;
    shows("disconnected", 1).await;
}
