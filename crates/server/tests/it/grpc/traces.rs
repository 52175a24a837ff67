//! Trace contexts over gRPC: taken from metadata or from the job, handed to workers.

use bytes::Bytes;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::{GetJobRequest, NewJob, SubmitManyRequest, SubmitRequest};
use tonic::Request;

use crate::grpc::harness::{Server, patient, subscribe};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OWN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn job(payload: &'static [u8], parent: &str) -> NewJob {
    NewJob {
        r#type: "t".into(),
        queue: "q".into(),
        payload: Bytes::from_static(payload),
        traceparent: parent.into(),
        ..NewJob::default()
    }
}

fn traced<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", PARENT.parse().unwrap());
    request.metadata_mut().append("tracestate", "a=1".parse().unwrap());
    request.metadata_mut().append("tracestate", "b=2".parse().unwrap());
    request
}

#[tokio::test]
async fn workers_are_told_the_trace_of_each_job() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let one = SubmitRequest { job: Some(job(b"0", "")) };
    let id = jobs.submit(traced(one)).await.unwrap().into_inner().id;
    let many = SubmitManyRequest { jobs: vec![job(b"1", ""), job(b"2", OWN)], ..Default::default() };
    jobs.submit_many(traced(many)).await.unwrap();
    let plain = SubmitRequest { job: Some(job(b"3", "nonsense")) };
    jobs.submit(plain).await.unwrap();
    let found = jobs.get(GetJobRequest { id }).await.unwrap().into_inner();
    assert_eq!(found.trace_id.as_deref(), Some(TRACE));
    let mut worker = server.worker(subscribe("q", 4)).await;
    for job in worker.jobs(4).await {
        let trace = job.traceparent.split('-').nth(1).unwrap_or_default();
        let expected = match &*job.payload {
            b"0" | b"1" => (TRACE, "a=1,b=2"),
            b"2" => ("0af7651916cd43dd8448eb211c80319c", ""),
            _ => ("", ""),
        };
        assert_eq!((trace, job.tracestate.as_str()), expected);
        assert!(![PARENT, OWN].contains(&job.traceparent.as_str()), "the span is the attempt's");
    }
}
