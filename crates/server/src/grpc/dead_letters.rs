//! `tidewheel.v1.DeadLetters`: the HTTP API for dead letters, call for call.

use http::Method;
use tidewheel_api::proto::v1::dead_letters_server::DeadLetters;
use tidewheel_api::proto::v1::{
    BulkAnswer, DiscardDeadLetterRequest, DiscardDeadLetterResponse, DiscardDeadLettersRequest, Job,
    ListDeadLettersRequest, ListJobsResponse, ReplayDeadLetterRequest, RetryJobsRequest,
};
use tonic::{Request, Response, Status};

use super::bridge::{Bridge, Call};
use super::jobs::filtered;

const DEAD_LETTERS: &str = "/v1/dead-letters";

/// The service.
pub(super) struct DeadLettersService {
    bridge: Bridge,
}

impl DeadLettersService {
    pub(super) const fn new(bridge: Bridge) -> Self {
        Self { bridge }
    }
}

#[tonic::async_trait]
impl DeadLetters for DeadLettersService {
    async fn list(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let call = Call::new(request.metadata(), Method::GET, DEAD_LETTERS);
        let list = request.into_inner();
        let call = filtered(call, &list.filter.unwrap_or_default())
            .number("limit", Some(list.limit).filter(|limit| *limit > 0))
            .parameter("cursor", &list.cursor)
            .parameter("payload", if list.payload { "true" } else { "" });
        self.bridge.page(call).await
    }

    async fn replay(&self, request: Request<ReplayDeadLetterRequest>) -> Result<Response<Job>, Status> {
        let again = request.get_ref();
        let call =
            Call::new(request.metadata(), Method::POST, DEAD_LETTERS).segment(&again.id).then("/replay");
        self.bridge.call(call.json(again)?).await.map(Response::new)
    }

    async fn replay_many(&self, request: Request<RetryJobsRequest>) -> Result<Response<BulkAnswer>, Status> {
        let call = Call::new(request.metadata(), Method::POST, DEAD_LETTERS).then("/replay");
        self.bridge.call(call.json(request.get_ref())?).await.map(Response::new)
    }

    async fn discard(
        &self,
        request: Request<DiscardDeadLetterRequest>,
    ) -> Result<Response<DiscardDeadLetterResponse>, Status> {
        let call = Call::new(request.metadata(), Method::DELETE, DEAD_LETTERS).segment(&request.get_ref().id);
        self.bridge.send(call).await?;
        Ok(Response::new(DiscardDeadLetterResponse {}))
    }

    async fn discard_many(
        &self,
        request: Request<DiscardDeadLettersRequest>,
    ) -> Result<Response<BulkAnswer>, Status> {
        let call = Call::new(request.metadata(), Method::DELETE, DEAD_LETTERS);
        let discard = request.into_inner();
        let call = filtered(call, &discard.filter.unwrap_or_default())
            .parameter("cursor", &discard.cursor)
            .parameter("all", if discard.all { "true" } else { "" });
        self.bridge.call(call).await.map(Response::new)
    }
}
