//! `tidewheel.v1.Schedules`: the HTTP API for schedules, call for call.

use http::Method;
use serde_json::Value;
use tidewheel_api::proto::v1::schedules_server::Schedules;
use tidewheel_api::proto::v1::{
    BackfillScheduleRequest, BackfillScheduleResponse, CreateScheduleRequest, CreateSchedulesRequest,
    CreateSchedulesResponse, DeleteScheduleRequest, DeleteScheduleResponse, Fires, GetScheduleRequest,
    ListFiringsRequest, ListFiringsResponse, ListSchedulesRequest, ListSchedulesResponse, NextFiresRequest,
    PauseScheduleRequest, PreviewScheduleRequest, PutScheduleRequest, ResumeScheduleRequest, Schedule,
    ScheduleSpec, TriggerScheduleRequest, TriggerScheduleResponse, UpdateScheduleRequest,
};
use tidewheel_api::wire::fault::Code;
use tonic::{Request, Response, Status};

use super::bridge::{Bridge, Call, as_json};
use super::status::status;

const SCHEDULES: &str = "/v1/schedules";

/// The service.
pub(super) struct SchedulesService {
    bridge: Bridge,
}

impl SchedulesService {
    pub(super) const fn new(bridge: Bridge) -> Self {
        Self { bridge }
    }
}

/// A change as JSON: what is set, and `null` for what goes back to its default.
fn changes(spec: &ScheduleSpec, clear: &[String]) -> Result<Vec<u8>, Status> {
    let mut body = as_json(spec)?;
    if clear.is_empty() {
        return Ok(body);
    }
    let is_empty = body == b"{}";
    body.pop();
    for (index, name) in clear.iter().enumerate() {
        if index > 0 || !is_empty {
            body.push(b',');
        }
        let name = Value::String(name.clone());
        let written = serde_json::to_writer(&mut body, &name);
        written.map_err(|fault| status(Code::InvalidValue, fault.to_string()))?;
        body.extend_from_slice(b":null");
    }
    body.push(b'}');
    Ok(body)
}

#[tonic::async_trait]
impl Schedules for SchedulesService {
    async fn create(&self, request: Request<CreateScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES);
        let call = call.json(&request.get_ref().schedule.clone().unwrap_or_default())?;
        self.bridge.call(call).await.map(Response::new)
    }

    async fn put(&self, request: Request<PutScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let put = request.get_ref();
        let call = Call::new(request.metadata(), Method::PUT, SCHEDULES).then("/by-name").segment(&put.name);
        let call = call.if_version(put.if_version).json(&put.schedule.clone().unwrap_or_default())?;
        self.bridge.call(call).await.map(Response::new)
    }

    async fn get(&self, request: Request<GetScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let call = Call::new(request.metadata(), Method::GET, SCHEDULES).segment(&request.get_ref().id);
        self.bridge.call(call).await.map(Response::new)
    }

    async fn list(
        &self,
        request: Request<ListSchedulesRequest>,
    ) -> Result<Response<ListSchedulesResponse>, Status> {
        let list = request.get_ref();
        let call = Call::new(request.metadata(), Method::GET, SCHEDULES)
            .parameter("state", &list.states.join(","))
            .parameter("type", &list.r#type)
            .parameter("name", &list.name)
            .parameter("calendar", &list.calendar)
            .number("limit", Some(list.limit).filter(|limit| *limit > 0))
            .parameter("cursor", &list.cursor);
        self.bridge.page(call).await
    }

    async fn update(&self, request: Request<UpdateScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let update = request.get_ref();
        let body = changes(&update.schedule.clone().unwrap_or_default(), &update.clear)?;
        let call = Call::new(request.metadata(), Method::PATCH, SCHEDULES).segment(&update.id);
        self.bridge.call(call.if_version(update.if_version).body(body)).await.map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<DeleteScheduleRequest>,
    ) -> Result<Response<DeleteScheduleResponse>, Status> {
        let delete = request.get_ref();
        let call = Call::new(request.metadata(), Method::DELETE, SCHEDULES).segment(&delete.id);
        self.bridge.send(call.if_version(delete.if_version)).await?;
        Ok(Response::new(DeleteScheduleResponse {}))
    }

    async fn pause(&self, request: Request<PauseScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let pause = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES).segment(&pause.id).then("/pause");
        self.bridge.call(call.if_version(pause.if_version)).await.map(Response::new)
    }

    async fn resume(&self, request: Request<ResumeScheduleRequest>) -> Result<Response<Schedule>, Status> {
        let resume = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES).segment(&resume.id).then("/resume");
        self.bridge.call(call.if_version(resume.if_version)).await.map(Response::new)
    }

    async fn trigger(
        &self,
        request: Request<TriggerScheduleRequest>,
    ) -> Result<Response<TriggerScheduleResponse>, Status> {
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES);
        let call = call.segment(&request.get_ref().id).then("/trigger");
        self.bridge.call(call).await.map(Response::new)
    }

    async fn backfill(
        &self,
        request: Request<BackfillScheduleRequest>,
    ) -> Result<Response<BackfillScheduleResponse>, Status> {
        let backfill = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES);
        let call = call.segment(&backfill.id).then("/backfill").json(backfill)?;
        self.bridge.call(call).await.map(Response::new)
    }

    async fn preview(&self, request: Request<PreviewScheduleRequest>) -> Result<Response<Fires>, Status> {
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES).then("/preview");
        self.bridge.call(call.json(request.get_ref())?).await.map(Response::new)
    }

    async fn next(&self, request: Request<NextFiresRequest>) -> Result<Response<Fires>, Status> {
        let next = request.get_ref();
        let call = Call::new(request.metadata(), Method::GET, SCHEDULES).segment(&next.id).then("/next");
        self.bridge.call(call.number("count", next.count)).await.map(Response::new)
    }

    async fn list_firings(
        &self,
        request: Request<ListFiringsRequest>,
    ) -> Result<Response<ListFiringsResponse>, Status> {
        let list = request.get_ref();
        let call = Call::new(request.metadata(), Method::GET, SCHEDULES)
            .segment(&list.id)
            .then("/firings")
            .number("limit", Some(list.limit).filter(|limit| *limit > 0))
            .parameter("cursor", &list.cursor);
        self.bridge.page(call).await
    }

    async fn create_many(
        &self,
        request: Request<CreateSchedulesRequest>,
    ) -> Result<Response<CreateSchedulesResponse>, Status> {
        let many = request.get_ref();
        let call = Call::new(request.metadata(), Method::POST, SCHEDULES).then("/batch");
        let call = call.parameter("partial", if many.partial { "true" } else { "" });
        self.bridge.call(call.json(&many.schedules)?).await.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_cleared_is_null() {
        let text = |spec: &ScheduleSpec, clear: &[&str]| {
            let clear: Vec<String> = clear.iter().map(|name| (*name).to_owned()).collect();
            String::from_utf8(changes(spec, &clear).unwrap()).unwrap()
        };
        let noted = ScheduleSpec { note: "n".into(), ..ScheduleSpec::default() };
        assert_eq!(text(&noted, &[]), r#"{"note":"n"}"#);
        assert_eq!(text(&noted, &["end_at", "a\"b"]), r#"{"note":"n","end_at":null,"a\"b":null}"#);
        assert_eq!(text(&ScheduleSpec::default(), &["note"]), r#"{"note":null}"#);
    }
}
