//! `tidewheel.v1.Calendars`: the HTTP API for calendars, call for call.

use http::Method;
use serde_json::json;
use tidewheel_api::proto::v1::calendars_server::Calendars;
use tidewheel_api::proto::v1::{
    Calendar, DeleteCalendarRequest, DeleteCalendarResponse, GetCalendarRequest, ListCalendarsRequest,
    ListCalendarsResponse, PutCalendarRequest,
};
use tonic::{Request, Response, Status};

use super::bridge::{Bridge, Call};

const CALENDARS: &str = "/v1/calendars";

/// The service.
pub(super) struct CalendarsService {
    bridge: Bridge,
}

impl CalendarsService {
    pub(super) const fn new(bridge: Bridge) -> Self {
        Self { bridge }
    }
}

#[tonic::async_trait]
impl Calendars for CalendarsService {
    async fn list(
        &self,
        request: Request<ListCalendarsRequest>,
    ) -> Result<Response<ListCalendarsResponse>, Status> {
        let list = request.get_ref();
        let call = Call::new(request.metadata(), Method::GET, CALENDARS)
            .number("limit", Some(list.limit).filter(|limit| *limit > 0))
            .parameter("cursor", &list.cursor);
        self.bridge.call(call).await.map(Response::new)
    }

    async fn get(&self, request: Request<GetCalendarRequest>) -> Result<Response<Calendar>, Status> {
        let call = Call::new(request.metadata(), Method::GET, CALENDARS).segment(&request.get_ref().name);
        self.bridge.call(call).await.map(Response::new)
    }

    async fn put(&self, request: Request<PutCalendarRequest>) -> Result<Response<Calendar>, Status> {
        let put = request.get_ref();
        let call = Call::new(request.metadata(), Method::PUT, CALENDARS).segment(&put.name);
        self.bridge.call(call.json(&json!({"dates": put.dates}))?).await.map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<DeleteCalendarRequest>,
    ) -> Result<Response<DeleteCalendarResponse>, Status> {
        let call = Call::new(request.metadata(), Method::DELETE, CALENDARS).segment(&request.get_ref().name);
        self.bridge.send(call).await?;
        Ok(Response::new(DeleteCalendarResponse {}))
    }
}
