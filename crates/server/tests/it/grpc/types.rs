//! What is registered for a job type holds over gRPC as over HTTP.

use bytes::Bytes;
use prost_types::Duration;
use serde_json::json;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::schedules_client::SchedulesClient;
use tidewheel_api::proto::v1::{CreateScheduleRequest, NewJob, ScheduleSpec, SubmitRequest};
use tidewheel_server::engine::Config;
use tonic::Code;

use crate::grpc::harness::{Server, code};

fn mail(payload: &'static str) -> NewJob {
    let delay = Some(Duration { seconds: 3_600, nanos: 0 });
    NewJob {
        r#type: "mail".into(),
        delay,
        payload: Bytes::from_static(payload.as_bytes()),
        ..NewJob::default()
    }
}

#[tokio::test]
async fn payloads_are_checked_and_defaults_filled_in_over_grpc() {
    let server = Server::start(Config::default()).await;
    let definition =
        json!({"schema": {"required": ["to"]}, "defaults": {"queue": "mail", "priority": "high"}});
    let headers = [("content-type", "application/json")];
    server.api.call("PUT", "/v1/types/mail", &headers, definition.to_string()).await;

    let mut jobs = JobsClient::new(server.channel().await);
    let refused = jobs.submit(SubmitRequest { job: Some(mail("{}")) }).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_payload"));
    let taken = jobs.submit(SubmitRequest { job: Some(mail("{\"to\": 1}")) }).await.unwrap().into_inner();
    let job = server.job(&taken.id).await;
    assert_eq!((&job["queue"], &job["priority"]), (&json!("mail"), &json!("high")));

    let mut schedules = SchedulesClient::new(server.channel().await);
    let spec = ScheduleSpec {
        cron_expr: "0 9 * * *".into(),
        r#type: "mail".into(),
        payload: Bytes::from_static(b"{}"),
        ..ScheduleSpec::default()
    };
    let refused = schedules.create(CreateScheduleRequest { schedule: Some(spec) }).await.unwrap_err();
    assert_eq!(code(&refused), "invalid_payload");
}
