//! `tidewheel.v1.Jobs`: the HTTP API for jobs, call for call.

use http::Method;
use tidewheel_api::proto::v1::jobs_server::Jobs;
use tidewheel_api::proto::v1::{
    BulkAnswer, CancelJobRequest, CancelJobsRequest, CountJobsRequest, CountJobsResponse, ExplainJobRequest,
    GetJobRequest, Job, JobExplanation, JobFilter, ListAttemptsRequest, ListAttemptsResponse,
    ListJobsRequest, ListJobsResponse, PatchJobRequest, RetryJobRequest, RetryJobsRequest, RunJobRequest,
    SubmitBatch, SubmitBatchAnswer, SubmitManyRequest, SubmitRequest, SubmitResponse,
};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::bridge::{Bridge, Call, SUBMIT as JOBS};
use super::instant::time;
use super::submit_stream::{Answers, answer_batches};

/// The service.
pub(super) struct JobsService {
    bridge: Bridge,
}

impl JobsService {
    pub(super) const fn new(bridge: Bridge) -> Self {
        Self { bridge }
    }

    async fn job(&self, metadata: &MetadataMap, id: &str, what: &str) -> Result<Response<Job>, Status> {
        let method = if what.is_empty() { Method::GET } else { Method::POST };
        let call = Call::new(metadata, method, JOBS).segment(id).then(what);
        self.bridge.call(call).await.map(Response::new)
    }
}

/// Adds what a filter says to the address.
pub(super) fn filtered(mut call: Call, filter: &JobFilter) -> Call {
    let instant =
        |at: &Option<prost_types::Timestamp>| at.as_ref().map(|at| time(at).to_string()).unwrap_or_default();
    call = call
        .parameter("state", &filter.states.join(","))
        .parameter("type", &filter.r#type)
        .parameter("queue", &filter.queue)
        .parameter("schedule", &filter.schedule)
        .parameter("from", &instant(&filter.from))
        .parameter("to", &instant(&filter.to));
    let mut labels: Vec<_> = filter.labels.iter().collect();
    labels.sort_unstable();
    labels.into_iter().fold(call, |call, (key, value)| call.parameter(&format!("label.{key}"), value))
}

#[tonic::async_trait]
impl Jobs for JobsService {
    async fn submit(&self, request: Request<SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        let call = Call::new(request.metadata(), Method::POST, JOBS);
        let call = call.json(&request.into_inner().job.unwrap_or_default())?;
        self.bridge.submit(call).await.map(Response::new)
    }

    type SubmitStreamStream = Answers;

    async fn submit_stream(
        &self,
        request: Request<Streaming<SubmitBatch>>,
    ) -> Result<Response<Answers>, Status> {
        let (metadata, _, batches) = request.into_parts();
        Ok(Response::new(answer_batches(self.bridge.clone(), metadata, batches)))
    }

    async fn get(&self, request: Request<GetJobRequest>) -> Result<Response<Job>, Status> {
        self.job(request.metadata(), &request.get_ref().id, "").await
    }

    async fn list(&self, request: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        let call = Call::new(request.metadata(), Method::GET, JOBS);
        let list = request.into_inner();
        let call = filtered(call, &list.filter.unwrap_or_default())
            .number("limit", Some(list.limit).filter(|limit| *limit > 0))
            .parameter("cursor", &list.cursor)
            .parameter("payload", if list.payload { "true" } else { "" });
        self.bridge.page(call).await
    }

    async fn count(&self, request: Request<CountJobsRequest>) -> Result<Response<CountJobsResponse>, Status> {
        let call = Call::new(request.metadata(), Method::GET, JOBS).then("/count");
        let call = filtered(call, &request.into_inner().filter.unwrap_or_default());
        self.bridge.call(call).await.map(Response::new)
    }

    async fn cancel(&self, request: Request<CancelJobRequest>) -> Result<Response<Job>, Status> {
        self.job(request.metadata(), &request.get_ref().id, "/cancel").await
    }

    async fn run(&self, request: Request<RunJobRequest>) -> Result<Response<Job>, Status> {
        self.job(request.metadata(), &request.get_ref().id, "/run").await
    }

    async fn retry(&self, request: Request<RetryJobRequest>) -> Result<Response<Job>, Status> {
        let again = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, JOBS).segment(&again.id).then("/retry");
        self.bridge.call(call.json(again)?).await.map(Response::new)
    }

    async fn patch(&self, request: Request<PatchJobRequest>) -> Result<Response<Job>, Status> {
        let patch = request.get_ref();
        let call = Call::new(request.metadata(), Method::PATCH, JOBS).segment(&patch.id);
        self.bridge.call(call.json(patch)?).await.map(Response::new)
    }

    async fn explain(&self, request: Request<ExplainJobRequest>) -> Result<Response<JobExplanation>, Status> {
        let call = Call::new(request.metadata(), Method::GET, JOBS);
        let call = call.segment(&request.get_ref().id).then("/explain");
        self.bridge.call(call).await.map(Response::new)
    }

    async fn list_attempts(
        &self,
        request: Request<ListAttemptsRequest>,
    ) -> Result<Response<ListAttemptsResponse>, Status> {
        let call = Call::new(request.metadata(), Method::GET, JOBS);
        let call = call.segment(&request.get_ref().id).then("/attempts");
        self.bridge.call(call).await.map(Response::new)
    }

    async fn submit_many(
        &self,
        request: Request<SubmitManyRequest>,
    ) -> Result<Response<SubmitBatchAnswer>, Status> {
        let many = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, JOBS).then("/batch");
        let call = call.parameter("partial", if many.partial { "true" } else { "" });
        self.bridge.call(call.json(&many.jobs)?).await.map(Response::new)
    }

    async fn cancel_many(&self, request: Request<CancelJobsRequest>) -> Result<Response<BulkAnswer>, Status> {
        let call = Call::new(request.metadata(), Method::POST, JOBS).then("/cancel");
        self.bridge.call(call.json(request.get_ref())?).await.map(Response::new)
    }

    async fn retry_many(&self, request: Request<RetryJobsRequest>) -> Result<Response<BulkAnswer>, Status> {
        let call = Call::new(request.metadata(), Method::POST, JOBS).then("/retry");
        self.bridge.call(call.json(request.get_ref())?).await.map(Response::new)
    }
}
