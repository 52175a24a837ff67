//! What the gRPC API has for many at once, for dead letters and for calendars: the HTTP API, call for call.

use std::collections::HashMap;

use bytes::Bytes;
use prost_types::{Duration, Timestamp};
use serde_json::json;
use tidewheel_api::proto::v1::calendars_client::CalendarsClient;
use tidewheel_api::proto::v1::dead_letters_client::DeadLettersClient;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::schedules_client::SchedulesClient;
use tidewheel_api::proto::v1::{
    BulkAnswer, CancelJobsRequest, CreateSchedulesRequest, DeleteCalendarRequest, DeleteScheduleRequest,
    DiscardDeadLetterRequest, DiscardDeadLettersRequest, Exclude, GetCalendarRequest, JobFilter,
    ListCalendarsRequest, ListDeadLettersRequest, NewJob, PutCalendarRequest, ReplayDeadLetterRequest,
    RetryJobsRequest, ScheduleSpec, SubmitManyRequest, Target,
};
use tonic::{Code, Request};

use crate::grpc::harness::{Server, code, failed, patient, subscribe};

const HOUR: Duration = Duration { seconds: 3_600, nanos: 0 };

fn job(kind: &str) -> NewJob {
    NewJob { r#type: kind.into(), queue: "q".into(), delay: Some(HOUR), ..NewJob::default() }
}

fn of_type(kind: &str) -> Option<JobFilter> {
    Some(JobFilter { r#type: kind.into(), ..JobFilter::default() })
}

fn told(answer: &BulkAnswer) -> (u64, u64, Vec<&str>) {
    let each = |item: &tidewheel_api::proto::v1::BulkItem| item.ok == item.error.is_none();
    assert!(answer.items.iter().all(each), "{answer:?}");
    let words = answer.items.iter().map(|item| match (&item.state, &item.error) {
        (Some(state), None) => state.as_str(),
        (None, Some(error)) => error.code.as_str(),
        other => panic!("{other:?}"),
    });
    (answer.count, answer.refused, words.collect())
}

/// Makes dead letters of a type; returns their ids.
async fn make_dead(server: &Server, kind: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut worker = server.worker(subscribe("q", 0)).await;
    for n in 0..count {
        let job = json!({"type": kind, "queue": "q", "payload": n, "retry": {"max_attempts": 1}});
        ids.push(server.api.submit(&job).await);
        worker.add_credits(1).await;
        let taken = worker.job().await;
        assert_eq!(worker.end(&taken, failed()).await, "accepted");
    }
    ids
}

#[tokio::test]
async fn jobs_are_submitted_together_all_or_none_unless_asked_otherwise() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let wrong = NewJob { priority: "urgent".into(), ..job("b") };
    let many = SubmitManyRequest { jobs: vec![job("a"), wrong], partial: false };
    let refused = jobs.submit_many(many.clone()).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_value"));
    assert_eq!(server.api.get("/v1/jobs/count").await.json()["count"], 0);
    let some = jobs.submit_many(SubmitManyRequest { partial: true, ..many }).await.unwrap().into_inner().jobs;
    assert!(!some[0].id.is_empty() && some[0].error.is_none());
    assert_eq!((some[1].id.as_str(), some[1].error.as_ref().unwrap().code.as_str()), ("", "invalid_value"));

    let all = SubmitManyRequest { jobs: vec![job("a"), job("b")], partial: false };
    let keyed = |many: SubmitManyRequest| {
        let mut request = Request::new(many);
        request.metadata_mut().insert("idempotency-key", "batch-1".parse().unwrap());
        request
    };
    let first = jobs.submit_many(keyed(all.clone())).await.unwrap().into_inner().jobs;
    let again = jobs.submit_many(keyed(all)).await.unwrap().into_inner().jobs;
    assert!(again.iter().all(|answer| answer.duplicate));
    assert!(first.iter().zip(&again).all(|(first, again)| first.id == again.id && !first.duplicate));
}

#[tokio::test]
async fn jobs_are_cancelled_and_retried_by_ids_and_by_filter() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let labelled = NewJob { labels: HashMap::from([("k".to_owned(), "v".to_owned())]), ..job("b") };
    let many = SubmitManyRequest { jobs: vec![job("a"), job("a"), labelled, job("b")], partial: false };
    let made = jobs.submit_many(many).await.unwrap().into_inner().jobs;
    let ids: Vec<String> = made.into_iter().map(|answer| answer.id).collect();

    let nothing = jobs.cancel_many(CancelJobsRequest::default()).await.unwrap_err();
    assert_eq!((nothing.code(), code(&nothing)), (Code::InvalidArgument, "missing_field"));
    let by_ids = CancelJobsRequest {
        ids: vec![ids[0].clone(), "job_00000000000000000000000000".into()],
        ..CancelJobsRequest::default()
    };
    let answer = jobs.cancel_many(by_ids).await.unwrap().into_inner();
    assert_eq!(told(&answer), (1, 1, vec!["cancelled", "job_not_found"]));
    assert_eq!((answer.items[0].id.as_str(), answer.next_cursor), (ids[0].as_str(), None));
    let filter = JobFilter {
        labels: HashMap::from([("k".to_owned(), "v".to_owned())]),
        from: Some(Timestamp { seconds: 1, nanos: 0 }),
        to: Some(Timestamp { seconds: 4_000_000_000, nanos: 0 }),
        queue: "q".into(),
        states: vec!["scheduled".into()],
        ..JobFilter::default()
    };
    let matching = CancelJobsRequest { filter: Some(filter), ..CancelJobsRequest::default() };
    let answer = jobs.cancel_many(matching).await.unwrap().into_inner();
    assert_eq!((told(&answer), answer.items[0].id.as_str()), ((1, 0, vec!["cancelled"]), ids[2].as_str()));
    let rest = CancelJobsRequest { filter: Some(JobFilter::default()), ..CancelJobsRequest::default() };
    assert_eq!(told(&jobs.cancel_many(rest).await.unwrap().into_inner()).0, 2);

    let cancelled = JobFilter { states: vec!["cancelled".into()], ..JobFilter::default() };
    let retry = RetryJobsRequest {
        filter: Some(cancelled),
        rate: Some(1.0),
        delay: Some(HOUR),
        ..RetryJobsRequest::default()
    };
    let answer = jobs.retry_many(retry).await.unwrap().into_inner();
    assert_eq!(told(&answer), (4, 0, vec!["scheduled"; 4]));
    let mut times: Vec<String> = Vec::new();
    for id in &ids {
        times.push(server.job(id).await["run_at"].as_str().unwrap().to_owned());
    }
    times.sort();
    times.dedup();
    assert_eq!(times.len(), 4, "a second apart: {times:?}");
    let dead = RetryJobsRequest { filter: Some(JobFilter::default()), ..RetryJobsRequest::default() };
    assert_eq!(told(&jobs.retry_many(dead).await.unwrap().into_inner()).0, 0, "none is dead");
    let odd = RetryJobsRequest { ids, rate: Some(-1.0), ..RetryJobsRequest::default() };
    assert_eq!(jobs.retry_many(odd).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_discarded() {
    let server = Server::start(patient()).await;
    let mut dead = DeadLettersClient::new(server.channel().await);
    let (ones, others) = (make_dead(&server, "one", 3).await, make_dead(&server, "other", 2).await);

    let list = ListDeadLettersRequest { limit: 3, payload: true, ..ListDeadLettersRequest::default() };
    let first = dead.list(list.clone()).await.unwrap().into_inner();
    assert!(first.items.len() == 3 && first.items.iter().all(|job| job.state == "dead"));
    assert!(first.items.iter().all(|job| !job.payload.is_empty() && job.last_error.is_some()));
    let cursor = first.next_cursor.unwrap();
    let second = dead.list(ListDeadLettersRequest { cursor, ..list.clone() }).await.unwrap().into_inner();
    assert_eq!((second.items.len(), second.next_cursor), (2, None));
    let some = ListDeadLettersRequest { filter: of_type("other"), ..ListDeadLettersRequest::default() };
    assert_eq!(dead.list(some).await.unwrap().into_inner().items.len(), 2);
    let stated = JobFilter { states: vec!["dead".into()], ..JobFilter::default() };
    let stated = ListDeadLettersRequest { filter: Some(stated), ..list };
    assert_eq!(code(&dead.list(stated).await.unwrap_err()), "unknown_parameter");

    let replay = ReplayDeadLetterRequest {
        id: ones[0].clone(),
        delay: Some(HOUR),
        payload: Bytes::from_static(b"{\"mended\" : true}"),
        target: Some(Target { url: "https://example.com/x".into(), ..Target::default() }),
        ..ReplayDeadLetterRequest::default()
    };
    let replayed = dead.replay(replay.clone()).await.unwrap().into_inner();
    assert_eq!((replayed.state.as_str(), replayed.id.as_str()), ("scheduled", ones[0].as_str()));
    let shown = server.job(&ones[0]).await;
    assert_eq!(shown["payload"], json!({"mended": true}));
    assert_eq!(shown["target"]["url"], "https://example.com/x");
    let refused = dead.replay(replay).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::FailedPrecondition, "not_a_dead_letter"));

    let many = RetryJobsRequest { filter: of_type("one"), delay: Some(HOUR), ..RetryJobsRequest::default() };
    assert_eq!(told(&dead.replay_many(many).await.unwrap().into_inner()), (2, 0, vec!["scheduled"; 2]));
    dead.discard(DiscardDeadLetterRequest { id: others[0].clone() }).await.unwrap();
    let gone = dead.discard(DiscardDeadLetterRequest { id: others[0].clone() }).await.unwrap_err();
    assert_eq!((gone.code(), code(&gone)), (Code::NotFound, "job_not_found"));
    let unsaid = dead.discard_many(DiscardDeadLettersRequest::default()).await.unwrap_err();
    assert_eq!((unsaid.code(), code(&unsaid)), (Code::InvalidArgument, "invalid_parameter"));
    let none = DiscardDeadLettersRequest { filter: of_type("one"), ..DiscardDeadLettersRequest::default() };
    assert_eq!(dead.discard_many(none).await.unwrap().into_inner().count, 0);
    let all = DiscardDeadLettersRequest { all: true, ..DiscardDeadLettersRequest::default() };
    let discarded = dead.discard_many(all).await.unwrap().into_inner();
    assert_eq!((discarded.count, discarded.items[0].id.as_str()), (1, others[1].as_str()));
    assert!(dead.list(ListDeadLettersRequest::default()).await.unwrap().into_inner().items.is_empty());
}

#[tokio::test]
async fn calendars_are_made_read_and_deleted_unless_a_schedule_names_them() {
    let server = Server::start(patient()).await;
    let mut calendars = CalendarsClient::new(server.channel().await);
    let mut schedules = SchedulesClient::new(server.channel().await);
    for (name, dates) in [("b:days", vec!["2099-12-25".to_owned(), "2099-01-01".to_owned()]), ("a", vec![])] {
        let put = PutCalendarRequest { name: name.into(), dates };
        assert_eq!(calendars.put(put).await.unwrap().into_inner().name, name);
    }
    let shown = calendars.get(GetCalendarRequest { name: "b:days".into() }).await.unwrap().into_inner();
    assert_eq!(shown.dates, ["2099-01-01", "2099-12-25"]);
    let list = ListCalendarsRequest { limit: 1, ..ListCalendarsRequest::default() };
    let first = calendars.list(list.clone()).await.unwrap().into_inner();
    assert_eq!(first.items[0].name, "a");
    let cursor = first.next_cursor.unwrap();
    let second = calendars.list(ListCalendarsRequest { cursor, ..list }).await.unwrap().into_inner();
    assert_eq!((second.items[0].name.as_str(), second.next_cursor), ("b:days", None));
    let bad = PutCalendarRequest { name: "a".into(), dates: vec!["2099-02-30".into()] };
    assert_eq!(calendars.put(bad).await.unwrap_err().code(), Code::InvalidArgument);

    let excluding = Exclude { calendar: Some("b:days".into()), roll: "none".into(), ..Exclude::default() };
    let spec = ScheduleSpec {
        cron_expr: "0 9 * * *".into(),
        queue: "q".into(),
        exclude: Some(excluding),
        ..ScheduleSpec::default()
    };
    let made = CreateSchedulesRequest { schedules: vec![spec], partial: false };
    let made = schedules.create_many(made).await.unwrap().into_inner();
    let delete = DeleteCalendarRequest { name: "b:days".into() };
    let used = calendars.delete(delete.clone()).await.unwrap_err();
    assert_eq!((used.code(), code(&used)), (Code::FailedPrecondition, "calendar_in_use"));
    let id = made.schedules[0].id.clone();
    schedules.delete(DeleteScheduleRequest { id, if_version: None }).await.unwrap();
    calendars.delete(delete).await.unwrap();
    let gone = calendars.get(GetCalendarRequest { name: "b:days".into() }).await.unwrap_err();
    assert_eq!((gone.code(), code(&gone)), (Code::NotFound, "calendar_not_found"));
}

#[tokio::test]
async fn schedules_are_created_together_all_or_none_unless_asked_otherwise() {
    let server = Server::start(patient()).await;
    let mut schedules = SchedulesClient::new(server.channel().await);
    let spec = |name: &str, cron: &str| ScheduleSpec {
        name: name.into(),
        cron_expr: cron.into(),
        queue: "q".into(),
        ..ScheduleSpec::default()
    };
    let many = CreateSchedulesRequest {
        schedules: vec![spec("one", "0 9 * * *"), spec("two", "0 0 31 2 *")],
        partial: false,
    };
    let refused = schedules.create_many(many.clone()).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_cron"));
    let made = CreateSchedulesRequest { partial: true, ..many };
    let made = schedules.create_many(made).await.unwrap().into_inner();
    assert_eq!((made.count, made.refused), (1, 1));
    assert!(made.schedules[0].id.starts_with("sch_") && made.schedules[0].error.is_none());
    assert_eq!(made.schedules[1].error.as_ref().unwrap().code, "invalid_cron");
}
