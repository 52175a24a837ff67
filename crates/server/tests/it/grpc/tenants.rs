//! Tenants beside each other at dispatch, and keys over gRPC.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test fails on whatever else comes")]

use std::sync::Arc;

use serde_json::{Value, json};
use tidewheel_api::proto::dispatcher::UpdateAttemptRequest;
use tidewheel_api::proto::dispatcher::scheduler_dispatcher_client::SchedulerDispatcherClient;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::worker_client::WorkerClient;
use tidewheel_api::proto::v1::{
    GetJobRequest, NewJob, Outcome, Outcomes, SubmitRequest, Subscribe, WorkerMessage, server_message,
    worker_message,
};
use tidewheel_server::http::{ServeLimits, serve};
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::MemoryStore;
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};

use crate::grpc::harness::{Server, code, end, patient, subscribe, succeeded};
use crate::http::harness::{ADMIN_KEY, Api};

/// So many submissions in a row are not a second apart each.
const TRIES_MAX: usize = 100;

fn everybody(queue: &str, credits: u32) -> Subscribe {
    Subscribe { all_tenants: true, ..subscribe(queue, credits) }
}

async fn set(server: &Server, tenant: &str, settings: Value) {
    let headers = [("content-type", "application/json")];
    let answer =
        server.api.call("PUT", &format!("/v1/tenants/{tenant}"), &headers, settings.to_string()).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
}

async fn submit(server: &Server, tenant: &'static str, count: usize, job: Value) {
    let api = server.api.as_tenant(tenant);
    let answer = api.post("/v1/jobs/batch", &json!(vec![job; count])).await;
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
}

async fn running(server: &Server, tenant: &'static str) -> u64 {
    let answer = server.api.as_tenant(tenant).get("/v1/jobs/count?state=running").await;
    answer.json()["count"].as_u64().unwrap()
}

#[tokio::test]
async fn saturated_tenants_share_a_queue_by_their_weights() {
    let server = Server::start(patient()).await;
    set(&server, "acme", json!({"weight": 3})).await;
    for tenant in ["globex", "acme"] {
        submit(&server, tenant, 400, json!({"type": "t", "queue": "q"})).await;
    }
    let mut worker = server.worker(everybody("q", 40)).await;
    let mut taken = worker.jobs(40).await;
    for _ in 0..4 {
        worker.add_credits(40).await;
        taken.extend(worker.jobs(40).await);
    }
    let share = taken.iter().filter(|job| job.tenant == "acme").count();
    assert!((140..=160).contains(&share), "{share} of 200 instead of 150");
    // Changed while they wait.
    set(&server, "acme", json!({"weight": 1})).await;
    let mut taken = Vec::new();
    for _ in 0..5 {
        worker.add_credits(40).await;
        taken.extend(worker.jobs(40).await);
    }
    let share = taken.iter().filter(|job| job.tenant == "acme").count();
    assert!((90..=110).contains(&share), "{share} of 200 instead of 100");
}

#[tokio::test]
async fn a_tenant_at_its_cap_waits_and_nobody_waits_for_it() {
    let server = Server::start(patient()).await;
    set(&server, "acme", json!({"limits": {"concurrency": 2}})).await;
    let mut worker = server.worker(everybody("q", 100)).await;
    submit(&server, "acme", 6, json!({"type": "t", "queue": "q"})).await;
    let mut held = worker.jobs(2).await;
    submit(&server, "globex", 10, json!({"type": "t", "queue": "q"})).await;
    let others = worker.jobs(10).await;
    assert!(others.iter().all(|job| job.tenant == "globex"), "{others:?}");
    worker.nothing_comes().await;
    let page = server.api.as_tenant("acme").get("/v1/jobs?state=ready&limit=1").await.json();
    let waits = format!("/v1/jobs/{}/explain", page["items"][0]["id"].as_str().unwrap());
    let explained = server.api.as_tenant("acme").get(&waits).await.json();
    assert_eq!(explained["waits_for"], "tenant_limit", "{explained}");
    let mut done_count = 0;
    while let Some(job) = held.pop() {
        assert_eq!(job.tenant, "acme");
        let outcomes = Outcomes { jobs: vec![end(&job, succeeded())], batch: 0 };
        worker.say(worker_message::Message::Outcomes(outcomes)).await;
        done_count += 1;
        // The answer, and as long as some wait the next job, in either order.
        let mut answers = if done_count <= 4 { 2 } else { 1 };
        while answers > 0 {
            match worker.next().await {
                Ok(server_message::Message::Jobs(batch)) => held.extend(batch.jobs().unwrap()),
                Ok(server_message::Message::OutcomeAnswers(_)) => {}
                other => panic!("{other:?}"),
            }
            answers -= 1;
        }
        assert!(running(&server, "acme").await <= 2);
    }
    let done = server.api.as_tenant("acme").get("/v1/jobs/count?state=succeeded").await.json();
    assert_eq!(done["count"], 6);
}

#[tokio::test]
async fn a_cap_on_pushes_holds_up_nobody_else_and_can_be_raised() {
    let server = Server::start(patient()).await;
    set(&server, "acme", json!({"limits": {"concurrency": 1}})).await;
    let push = |host: &str| json!({"type": "t", "target_url": format!("https://{host}.example.com/")});
    submit(&server, "acme", 5, push("same")).await;
    submit(&server, "acme", 5, push("own")).await;
    submit(&server, "globex", 3, push("same")).await;
    let until = async |tenant: &'static str, count: u64| {
        let waiting = async {
            while running(&server, tenant).await != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(300), waiting).await.expect("never so many");
    };
    until("globex", 3).await;
    until("acme", 1).await;
    set(&server, "acme", json!({"limits": {"concurrency": 4}})).await;
    until("acme", 4).await;
    set(&server, "acme", json!({})).await;
    until("acme", 10).await;
}

async fn closed() -> Server {
    let api = Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, api.app.clone(), ServeLimits::default(), std::future::pending()));
    Server { api, address }
}

async fn key(server: &Server, wanted: Value) -> String {
    let headers = [("content-type", "application/json"), ("authorization", &*format!("Bearer {ADMIN_KEY}"))];
    let made = server.api.call("POST", "/v1/keys", &headers, wanted.to_string()).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    made.json()["secret"].as_str().unwrap().to_owned()
}

fn with_key<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    if !key.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    request
}

#[tokio::test]
async fn calls_ask_for_keys_and_go_by_their_roles_and_tenants() {
    let server = closed().await;
    let mut jobs = JobsClient::new(server.channel().await);
    let submission = || {
        let job = NewJob { r#type: "t".into(), queue: "q".into(), ..NewJob::default() };
        SubmitRequest { job: Some(job) }
    };
    for wrong in ["", "twk_wrong"] {
        let refused = jobs.submit(with_key(submission(), wrong)).await.unwrap_err();
        assert_eq!((refused.code(), code(&refused)), (Code::Unauthenticated, "unauthorized"), "{refused:?}");
    }
    let viewer = key(&server, json!({"tenant": "acme", "role": "viewer"})).await;
    let refused = jobs.submit(with_key(submission(), &viewer)).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::PermissionDenied, "forbidden"));
    let producer = key(&server, json!({"tenant": "acme", "role": "producer"})).await;
    let id = jobs.submit(with_key(submission(), &producer)).await.unwrap().into_inner().id;
    let get = || GetJobRequest { id: id.clone() };
    assert_eq!(jobs.get(with_key(get(), &viewer)).await.unwrap().into_inner().id, id);
    let stranger = key(&server, json!({"tenant": "globex", "role": "operator"})).await;
    let refused = jobs.get(with_key(get(), &stranger)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let mut named = with_key(get(), &stranger);
    named.metadata_mut().insert("tidewheel-tenant", "acme".parse().unwrap());
    assert_eq!(jobs.get(named).await.unwrap_err().code(), Code::PermissionDenied);
    let headers = [("content-type", "application/json"), ("authorization", &*format!("Bearer {ADMIN_KEY}"))];
    let limits = json!({"limits": {"submit_rate": 1, "submit_burst": 1}}).to_string();
    server.api.call("PUT", "/v1/tenants/acme", &headers, limits).await;
    let mut answer = jobs.submit(with_key(submission(), &producer)).await;
    assert!(answer.is_ok(), "{answer:?}");
    for _ in 0..TRIES_MAX {
        // One more than a second later is in time.
        if answer.is_ok() {
            answer = jobs.submit(with_key(submission(), &producer)).await;
        }
    }
    let refused = answer.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::ResourceExhausted, "rate_limited"));
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "1");
}

/// Subscribes, and says how that was answered.
async fn enter(server: &Server, key: &str, subscribe: Subscribe) -> Result<(), Status> {
    let first = WorkerMessage { message: Some(worker_message::Message::Subscribe(subscribe)) };
    let words = futures_util::stream::iter([first]);
    let opened = WorkerClient::new(server.channel().await).work(with_key(words, key)).await;
    opened?.into_inner().message().await.map(drop)
}

#[tokio::test]
async fn workers_serve_the_tenant_types_and_queues_of_their_key() {
    let server = closed().await;
    let producer = key(&server, json!({"tenant": "acme", "role": "producer"})).await;
    let refused = enter(&server, &producer, subscribe("q", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(enter(&server, "", subscribe("q", 1)).await.unwrap_err().code(), Code::Unauthenticated);
    let wanted = json!({"tenant": "acme", "role": "worker", "queues": ["q"], "types": ["t"]});
    let worker = key(&server, wanted).await;
    enter(&server, &worker, subscribe("q", 1)).await.unwrap();
    for refused in [
        subscribe("other", 1),
        everybody("q", 1),
        Subscribe { tenants: vec!["globex".into()], ..subscribe("q", 1) },
        Subscribe { types: vec!["u".into()], ..subscribe("q", 1) },
    ] {
        let status = enter(&server, &worker, refused.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{refused:?}");
    }
    enter(&server, ADMIN_KEY, everybody("q", 1)).await.unwrap();
}

#[tokio::test]
async fn a_limited_worker_reports_of_no_other_queue_over_grpc() {
    let server = closed().await;
    let limited = key(&server, json!({"tenant": "acme", "role": "worker", "queues": ["q"]})).await;
    let free = key(&server, json!({"tenant": "acme", "role": "operator"})).await;
    let headers = [("content-type", "application/json"), ("authorization", &*format!("Bearer {free}"))];
    let job = json!({"type": "t", "queue": "other"}).to_string();
    let api = server.api.as_tenant("acme");
    assert_eq!(api.call("POST", "/v1/jobs", &headers, job).await.status.as_u16(), 201);
    let take = json!({"worker": "w", "wait": "40s"}).to_string();
    let taken = api.call("POST", "/v1/queues/other/take", &headers, take).await.json()["jobs"][0].clone();
    let (id, token) = (taken["id"].as_str().unwrap(), taken["token"].clone());
    let number = token.as_u64().or_else(|| token.as_str()?.parse().ok()).unwrap();

    let outcome = Outcome { id: id.into(), token: number, result: Some(succeeded()), ..Outcome::default() };
    let words = [
        worker_message::Message::Subscribe(subscribe("q", 1)),
        worker_message::Message::Outcomes(Outcomes { jobs: vec![outcome], batch: 0 }),
    ];
    let words = futures_util::stream::iter(words.map(|message| WorkerMessage { message: Some(message) }));
    let mut heard =
        WorkerClient::new(server.channel().await).work(with_key(words, &limited)).await.unwrap().into_inner();
    let answers = loop {
        if let Some(server_message::Message::OutcomeAnswers(answers)) =
            heard.message().await.unwrap().unwrap().message
        {
            break answers.jobs;
        }
    };
    assert_eq!(answers[0].code, "forbidden", "{answers:?}");

    let trigger_id = format!("{id}.{number}");
    let update =
        UpdateAttemptRequest { trigger_id, status: "SUCCEEDED".into(), ..UpdateAttemptRequest::default() };
    let mut dispatcher = SchedulerDispatcherClient::new(server.channel().await);
    let refused = dispatcher.update_attempt_status(with_key(update.clone(), &limited)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(dispatcher.update_attempt_status(with_key(update, &free)).await.unwrap().into_inner().success);
}
