//! `database.scheduler.v1.SchedulerDispatcher`, and what every gRPC client expects: health and reflection.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tidewheel_api::proto::dispatcher::scheduler_dispatcher_client::SchedulerDispatcherClient;
use tidewheel_api::proto::dispatcher::{
    ClaimTriggersRequest, ClaimTriggersResponse, TaskPayload, UpdateAttemptRequest,
};
use tidewheel_api::proto::v1::NewJob;
use tidewheel_server::engine::Config;
use tidewheel_server::testing::{BEGINNING_MS, TestServer};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::grpc::harness::{Server, code};

type Client = SchedulerDispatcherClient<Channel>;

async fn claim(client: &mut Client, tenant: &str, max_tasks: i32) -> Result<ClaimTriggersResponse, Status> {
    let message = ClaimTriggersRequest { worker_id: "w1".into(), max_tasks, lease_duration_seconds: 60 };
    let mut request = Request::new(message);
    request.metadata_mut().insert("tidewheel-tenant", tenant.parse().unwrap());
    Ok(client.claim_triggers(request).await?.into_inner())
}

/// Claims until something is due.
async fn claim_one(client: &mut Client, tenant: &str) -> TaskPayload {
    loop {
        if let Some(task) = claim(client, tenant, 1).await.unwrap().tasks.pop() {
            return task;
        }
    }
}

async fn update(client: &mut Client, tenant: &str, trigger: &str, status: &str) -> Result<bool, Status> {
    let mut request = Request::new(UpdateAttemptRequest {
        attempt_id: "mine".into(),
        trigger_id: trigger.into(),
        status: status.into(),
        error_message: "went wrong".into(),
    });
    request.metadata_mut().insert("tidewheel-tenant", tenant.parse().unwrap());
    Ok(client.update_attempt_status(request).await?.into_inner().success)
}

#[tokio::test]
async fn a_registered_job_is_claimed_and_reported_on() {
    let server = Server::start(Config::default()).await;
    let mut client = Client::new(server.channel().await);
    assert!(claim(&mut client, "acme", 10).await.unwrap().tasks.is_empty());
    let form = json!({"tenant_id": "acme", "job_name": "settle", "job_type": "billing", "schedule_type": "ONCE",
        "max_attempts": 3, "payload": {"batch": 500}});
    let made = server.api.as_tenant("acme").post("/api/v1/jobs", &form).await.json();
    assert_eq!(made["status"], "ACTIVE", "{made}");
    let task = claim_one(&mut client, "acme").await;
    assert_eq!((task.tenant_id.as_str(), task.job_type.as_str()), ("acme", "billing"));
    assert_eq!(
        (task.payload_json.as_str(), task.job_id.clone()),
        (r#"{"batch":500}"#, made["job_id"].as_str().unwrap().to_owned())
    );
    assert!(task.scheduled_time_epoch > 1_700_000_000);
    assert!(update(&mut client, "acme", &task.trigger_id, "STARTED").await.unwrap());
    assert!(update(&mut client, "acme", &task.trigger_id, "SUCCEEDED").await.unwrap());
    // The same again is fine; anything else is too late.
    assert!(update(&mut client, "acme", &task.trigger_id, "SUCCEEDED").await.unwrap());
    assert!(!update(&mut client, "acme", &task.trigger_id, "FAILED").await.unwrap());
    assert!(claim(&mut client, "default", 10).await.unwrap().tasks.is_empty());
}

#[tokio::test]
async fn a_failed_attempt_is_tried_again_under_another_trigger() {
    let server = Server::start(Config::default()).await;
    let mut client = Client::new(server.channel().await);
    let job = json!({"type": "t", "retry": {"max_attempts": 2, "policy": "fixed", "base": 0}});
    let id = server.api.submit(&job).await;
    let first = claim_one(&mut client, "default").await;
    assert!(update(&mut client, "default", &first.trigger_id, "FAILED").await.unwrap());
    let second = claim_one(&mut client, "default").await;
    assert_eq!((&first.job_id, &second.job_id), (&id, &id));
    assert_ne!(first.trigger_id, second.trigger_id);
    assert!(!update(&mut client, "default", &first.trigger_id, "SUCCEEDED").await.unwrap());
    assert!(update(&mut client, "default", &second.trigger_id, "FAILED").await.unwrap());
    assert_eq!(server.job(&id).await["state"], "dead");
}

#[tokio::test]
async fn a_sign_of_life_is_good_for_as_long_as_the_claim_was() {
    let server = TestServer::start().await.unwrap();
    let channel = Endpoint::from_shared(server.url().to_owned()).unwrap().connect().await.unwrap();
    let mut client = Client::new(channel);
    let job =
        NewJob { r#type: "t".into(), queue: "default".into(), payload: "null".into(), ..NewJob::default() };
    let id = server.client().submit(job).await.unwrap().id;
    let task = claim_one(&mut client, "default").await;
    for said_s in [50, 100, 150] {
        server.clock().advance(Duration::from_secs(50));
        assert!(update(&mut client, "default", &task.trigger_id, "RUNNING").await.unwrap());
        let until = server.job(&id).await.unwrap().lease_until.unwrap();
        assert_eq!(
            until.seconds - BEGINNING_MS / 1_000,
            said_s + 60,
            "claimed for 60 s, heard of {said_s} s later"
        );
    }
}

#[tokio::test]
async fn without_keys_a_client_that_names_no_tenant_serves_all() {
    let server = Server::start(Config::default()).await;
    let mut client = Client::new(server.channel().await);
    for tenant in ["acme", "b.c", "default"] {
        let form =
            json!({"tenant_id": tenant, "job_name": "n", "job_type": "billing", "schedule_type": "ONCE"});
        let made = server.api.as_tenant(tenant).post("/api/v1/jobs", &form).await.json();
        assert_eq!(made["status"], "ACTIVE", "{made}");
    }
    let mut tasks = Vec::new();
    while tasks.len() < 3 {
        let message =
            ClaimTriggersRequest { worker_id: "w1".into(), max_tasks: 10, lease_duration_seconds: 60 };
        tasks.extend(client.claim_triggers(message).await.unwrap().into_inner().tasks);
    }
    let mut tenants: Vec<&str> = tasks.iter().map(|task| task.tenant_id.as_str()).collect();
    tenants.sort_unstable();
    assert_eq!(tenants, ["acme", "b.c", "default"]);
    for task in &tasks {
        let message = |status: &str| UpdateAttemptRequest {
            attempt_id: "a".into(),
            trigger_id: task.trigger_id.clone(),
            status: status.into(),
            error_message: String::new(),
        };
        // Whoever says for whom it works reports on that tenant's jobs alone.
        if task.tenant_id != "default" {
            let refused = update(&mut client, "default", &task.trigger_id, "SUCCEEDED").await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound);
        }
        assert!(client.update_attempt_status(message("STARTED")).await.unwrap().into_inner().success);
        assert!(client.update_attempt_status(message("SUCCEEDED")).await.unwrap().into_inner().success);
        assert!(!client.update_attempt_status(message("FAILED")).await.unwrap().into_inner().success);
    }
}

#[tokio::test]
async fn an_answer_is_no_larger_than_clients_take_and_the_rest_is_for_the_next() {
    const JOBS: usize = 200;
    let server = Server::start(Config::default()).await;
    let job = json!({"type": "t", "payload": "x".repeat(60_000)});
    let mut ids = BTreeSet::new();
    for _ in 0..JOBS {
        ids.insert(server.api.submit(&job).await);
    }
    // As it comes, with a client's own bound of 4 MiB.
    let mut client = Client::new(server.channel().await);
    let claim =
        || ClaimTriggersRequest { worker_id: "w1".into(), max_tasks: 1_000, lease_duration_seconds: 3_600 };
    let (mut taken, mut largest) = (BTreeSet::new(), 0);
    let all = async {
        while taken.len() < JOBS {
            let tasks = client.claim_triggers(claim()).await.unwrap().into_inner().tasks;
            largest = largest.max(tasks.len());
            taken.extend(tasks.into_iter().map(|task| task.job_id));
        }
    };
    tokio::time::timeout(Duration::from_secs(300), all).await.expect("not all came");
    assert_eq!(taken, ids);
    assert!((2..JOBS).contains(&largest), "{largest}");
    for id in &ids {
        assert_eq!(server.job(id).await["attempt"], 1);
    }
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let server = Server::start(Config::default()).await;
    let mut client = Client::new(server.channel().await);
    let refused = claim(&mut client, "default", 0).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_value"));
    let refused = update(&mut client, "default", "nonsense", "SUCCEEDED").await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::NotFound, "job_not_found"));
    server.api.submit(&json!({"type": "t"})).await;
    let task = claim_one(&mut client, "default").await;
    let refused = update(&mut client, "default", &task.trigger_id, "DONE").await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_value"));
    let refused = update(&mut client, "other", &task.trigger_id, "SUCCEEDED").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(claim(&mut client, "no tenant", 1).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn health_tells_whether_the_server_takes_work() {
    let server = Server::start(Config::default()).await;
    let mut client = HealthClient::new(server.channel().await);
    let check = |service: &str| HealthCheckRequest { service: service.into() };
    for service in [
        "",
        "tidewheel.v1.Worker",
        "tidewheel.v1.Jobs",
        "tidewheel.v1.Schedules",
        "tidewheel.v1.DeadLetters",
        "tidewheel.v1.Calendars",
        "database.scheduler.v1.SchedulerDispatcher",
    ] {
        assert_eq!(client.check(check(service)).await.unwrap().into_inner().status, 1, "{service}");
    }
    assert_eq!(client.check(check("other")).await.unwrap_err().code(), Code::NotFound);
    let mut watched = client.watch(check("")).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    server.api.engine.drain(Duration::from_secs(5)).await;
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
}

#[tokio::test]
async fn reflection_names_every_service() {
    let server = Server::start(Config::default()).await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let asked = futures_util::stream::iter([ask]);
    let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list");
    };
    let mut names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "database.scheduler.v1.SchedulerDispatcher",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "tidewheel.v1.Calendars",
            "tidewheel.v1.DeadLetters",
            "tidewheel.v1.Jobs",
            "tidewheel.v1.Schedules",
            "tidewheel.v1.Worker"
        ]
    );
}
