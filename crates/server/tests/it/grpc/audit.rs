//! The audit trail of calls over gRPC.

use prost_types::Duration;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::{CancelJobRequest, NewJob, SubmitRequest};
use tidewheel_server::engine::Config;
use tonic::Request;

use crate::grpc::harness::{Server, subscribe};

#[tokio::test]
async fn calls_over_grpc_are_recorded_with_their_address() {
    let server = Server::start(Config::default()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let delay = Some(Duration { seconds: 3_600, nanos: 0 });
    let job = NewJob { r#type: "t".into(), queue: "q".into(), delay, ..NewJob::default() };
    let id = jobs.submit(SubmitRequest { job: Some(job) }).await.unwrap().into_inner().id;
    let mut cancel = Request::new(CancelJobRequest { id: id.clone() });
    // Where a call comes from is not for the caller to say.
    cancel.metadata_mut().insert("tidewheel-origin", "192.0.2.9".parse().unwrap());
    cancel.metadata_mut().insert("x-request-id", "r-7".parse().unwrap());
    jobs.cancel(cancel).await.unwrap();
    let found = server.api.get("/v1/audit?action=jobs.cancel").await.json();
    let found = found["items"].as_array().unwrap();
    assert_eq!(found.len(), 1, "once, not for each of the two APIs: {found:?}");
    assert_eq!((&found[0]["object"], &found[0]["address"]), (&id.into(), &"127.0.0.1".into()));
    assert_eq!((&found[0]["request_id"], &found[0]["status"]), (&"r-7".into(), &200.into()));
    let submitted = server.api.get("/v1/audit?action=jobs.create").await.json();
    assert_eq!(submitted["items"][0]["address"], "127.0.0.1");
}

#[tokio::test]
async fn a_workers_stream_is_counted() {
    let server = Server::start(Config::default()).await;
    let worker = server.worker(subscribe("q", 1)).await;
    drop(worker);
    let found = server.api.get("/v1/audit?action=Worker").await.json();
    assert_eq!(found["items"][0]["action"], "Worker.Work");
}
