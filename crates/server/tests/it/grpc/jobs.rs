//! `tidewheel.v1.Jobs` and `tidewheel.v1.Schedules`: the HTTP API, call for call.

use std::collections::HashMap;

use bytes::Bytes;
use prost_types::{Duration, Timestamp};
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_api::proto::v1::schedules_client::SchedulesClient;
use tidewheel_api::proto::v1::{
    BackfillScheduleRequest, CancelJobRequest, CountJobsRequest, CreateScheduleRequest,
    DeleteScheduleRequest, DstRule, Exclude, ExplainJobRequest, GetJobRequest, GetScheduleRequest, JobFilter,
    ListAttemptsRequest, ListFiringsRequest, ListJobsRequest, ListSchedulesRequest, NewJob, NextFiresRequest,
    PatchJobRequest, PauseScheduleRequest, PreviewScheduleRequest, PutScheduleRequest, ResumeScheduleRequest,
    Retry, RetryJobRequest, RunJobRequest, ScheduleSpec, SubmitBatch, SubmitRequest, TriggerScheduleRequest,
    UpdateScheduleRequest,
};
use tokio::sync::mpsc;
use tonic::{Code, Request};

use crate::grpc::harness::{Server, code, patient, subscribe, succeeded};

const FAR: Timestamp = Timestamp { seconds: 4_000_000_000, nanos: 5_000_000 };

fn later() -> Option<Duration> {
    Some(Duration { seconds: 3_600, nanos: 0 })
}

fn job(kind: &str) -> NewJob {
    NewJob { r#type: kind.into(), queue: "q".into(), delay: later(), ..NewJob::default() }
}

fn submit(job: NewJob) -> SubmitRequest {
    SubmitRequest { job: Some(job) }
}

#[tokio::test]
async fn a_job_is_submitted_read_changed_and_run() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let asked = NewJob {
        payload: Bytes::from_static(b"{\"n\" : 1}"),
        priority: "high".into(),
        retry: Some(Retry { max_attempts: Some(7), ..Retry::default() }),
        timeout: Some(Duration { seconds: 90, nanos: 0 }),
        idempotency_key: "k1".into(),
        labels: HashMap::from([("team".to_owned(), "ops & co".to_owned())]),
        ..job("mail")
    };
    let first = jobs.submit(submit(asked.clone())).await.unwrap().into_inner();
    assert!(!first.duplicate && first.state.as_deref() == Some("scheduled"));
    let again = jobs.submit(submit(asked.clone())).await.unwrap().into_inner();
    assert!(again.duplicate && again.id == first.id);
    let other = jobs.submit(submit(NewJob { priority: "low".into(), ..asked })).await.unwrap_err();
    assert_eq!((other.code(), code(&other)), (Code::AlreadyExists, "idempotency_conflict"));

    let id = first.id;
    let found = jobs.get(GetJobRequest { id: id.clone() }).await.unwrap().into_inner();
    assert_eq!((found.payload.as_ref(), found.max_attempts), (b"{\"n\" : 1}".as_slice(), 7));
    assert_eq!(
        (found.queue.as_deref(), found.priority.as_str(), found.tenant.as_str()),
        (Some("q"), "high", "default")
    );
    assert_eq!(found.timeout, Some(Duration { seconds: 90, nanos: 0 }));
    assert!(found.worker.is_none() && found.lease_until.is_none() && found.result.is_empty());

    let filter = JobFilter {
        states: vec!["scheduled".into(), "running".into()],
        labels: HashMap::from([("team".to_owned(), "ops & co".to_owned())]),
        ..JobFilter::default()
    };
    let list = ListJobsRequest { filter: Some(filter.clone()), limit: 10, ..ListJobsRequest::default() };
    let listed = jobs.list(list).await.unwrap().into_inner();
    assert_eq!((listed.items.len(), listed.next_cursor), (1, None));
    assert!(listed.items[0].payload.is_empty());
    let count = jobs.count(CountJobsRequest { filter: Some(filter) }).await.unwrap().into_inner();
    assert!(count.count == 1 && count.complete);
    let all = jobs.count(CountJobsRequest::default()).await.unwrap().into_inner();
    assert_eq!((all.count, all.counts["scheduled"]), (1, 1));

    let explained = jobs.explain(ExplainJobRequest { id: id.clone() }).await.unwrap().into_inner();
    assert_eq!(explained.waits_for.as_deref(), Some("time"));
    let moved = PatchJobRequest {
        id: id.clone(),
        run_at: Some(Timestamp { seconds: 0, ..FAR }),
        ..Default::default()
    };
    assert_eq!(jobs.patch(moved).await.unwrap_err().code(), Code::InvalidArgument);
    let patch = PatchJobRequest { id: id.clone(), priority: "low".into(), ..PatchJobRequest::default() };
    assert_eq!(jobs.patch(patch).await.unwrap().into_inner().priority, "low");
    jobs.run(RunJobRequest { id: id.clone() }).await.unwrap();
    let mut worker = server.worker(subscribe("q", 1)).await;
    let taken = worker.job().await;
    assert_eq!(worker.end(&taken, succeeded()).await, "accepted");
    let done = jobs.get(GetJobRequest { id: id.clone() }).await.unwrap().into_inner();
    assert_eq!((done.state.as_str(), done.result.as_ref()), ("succeeded", b"{\"ok\": 1}".as_slice()));
    let attempts = jobs.list_attempts(ListAttemptsRequest { id: id.clone() }).await.unwrap().into_inner();
    assert_eq!((attempts.items.len(), attempts.items[0].state.as_str()), (1, "succeeded"));
    let refused = jobs.cancel(CancelJobRequest { id: id.clone() }).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::FailedPrecondition, "job_finished"));
    let retry = RetryJobRequest { id: id.clone(), delay: later(), ..RetryJobRequest::default() };
    assert_eq!(jobs.retry(retry).await.unwrap().into_inner().state, "scheduled");
    assert_eq!(jobs.cancel(CancelJobRequest { id }).await.unwrap().into_inner().state, "cancelled");
}

#[tokio::test]
async fn refusals_name_their_code_and_every_fault() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let refused = jobs.get(GetJobRequest { id: "../schedules".into() }).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::NotFound, "job_not_found"));
    let bad = NewJob { r#type: String::new(), priority: "urgent".into(), ..job("t") };
    let refused = jobs.submit(submit(bad)).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_request"));
    let document = refused.metadata().get_bin("tidewheel-problem-bin").unwrap().to_bytes().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["errors"].as_array().unwrap().len(), 2, "{document}");
    let bad = NewJob { payload: Bytes::from_static(b"{"), ..job("t") };
    let refused = jobs.submit(submit(bad)).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "malformed_json"));
    let mut foreign = Request::new(submit(job("t")));
    foreign.metadata_mut().insert("tidewheel-tenant", "no tenant".parse().unwrap());
    assert_eq!(code(&jobs.submit(foreign).await.unwrap_err()), "invalid_tenant");
}

#[tokio::test]
async fn a_stream_of_batches_is_answered_item_by_item() {
    let server = Server::start(patient()).await;
    let mut jobs = JobsClient::new(server.channel().await);
    let (say, mut said) = mpsc::channel::<SubmitBatch>(4);
    let words = futures_util::stream::poll_fn(move |context| said.poll_recv(context));
    let mut request = Request::new(words);
    request.metadata_mut().insert("tidewheel-tenant", "acme".parse().unwrap());
    let mut answers = jobs.submit_stream(request).await.unwrap().into_inner();
    let keyed = NewJob { idempotency_key: "k".into(), ..job("a") };
    let broken = NewJob { payload: Bytes::from_static(b"nope"), ..job("b") };
    let wrong = NewJob { priority: "urgent".into(), ..job("c") };
    say.send(SubmitBatch { jobs: vec![keyed.clone(), broken, wrong, job("d")] }).await.unwrap();
    let first = answers.message().await.unwrap().unwrap().jobs;
    let codes: Vec<&str> =
        first.iter().map(|answer| answer.error.as_ref().map_or("", |error| error.code.as_str())).collect();
    assert_eq!(codes, ["", "malformed_json", "invalid_value", ""]);
    assert!(!first[0].id.is_empty() && first[1].id.is_empty() && !first[3].id.is_empty());
    say.send(SubmitBatch { jobs: vec![keyed] }).await.unwrap();
    let second = answers.message().await.unwrap().unwrap().jobs;
    assert!(second[0].duplicate && second[0].id == first[0].id);
    say.send(SubmitBatch::default()).await.unwrap();
    assert!(answers.message().await.unwrap().unwrap().jobs.is_empty());
    drop(say);
    assert!(answers.message().await.unwrap().is_none());
    let count = server.api.as_tenant("acme").get("/v1/jobs/count").await.json();
    assert_eq!(count["count"], 2);
}

#[tokio::test]
async fn a_schedule_lives_its_life() {
    let server = Server::start(patient()).await;
    let mut schedules = SchedulesClient::new(server.channel().await);
    let spec = ScheduleSpec {
        name: "morning".into(),
        cron_expr: "0 9 * * MON-FRI".into(),
        timezone: "America/New_York".into(),
        dst: Some(DstRule { gap: "skip".into(), fold: "first".into() }),
        exclude: Some(Exclude { dates: vec!["2099-12-24".into()], calendar: None, roll: "none".into() }),
        window: Some(Duration { seconds: 60, nanos: 0 }),
        payload: Bytes::from_static(b"[1]"),
        queue: "q".into(),
        note: "hello".into(),
        ..ScheduleSpec::default()
    };
    let made =
        schedules.create(CreateScheduleRequest { schedule: Some(spec.clone()) }).await.unwrap().into_inner();
    assert_eq!((made.state.as_str(), made.name.as_deref(), made.version), ("active", Some("morning"), 1));
    assert!(made.next_fire_at.is_some() && made.payload == b"[1]".as_slice());
    assert_eq!(made.exclude.as_ref().unwrap().dates, ["2099-12-24"]);
    let taken = schedules.create(CreateScheduleRequest { schedule: Some(spec.clone()) }).await.unwrap_err();
    assert_eq!((taken.code(), code(&taken)), (Code::AlreadyExists, "name_taken"));
    let id = made.id.clone();

    let change = ScheduleSpec { timezone: "UTC".into(), ..ScheduleSpec::default() };
    let update = UpdateScheduleRequest {
        id: id.clone(),
        schedule: Some(change),
        clear: vec!["note".into(), "exclude".into()],
        if_version: Some(1),
    };
    let updated = schedules.update(update.clone()).await.unwrap().into_inner();
    assert_eq!((updated.timezone.as_str(), updated.note, updated.exclude), ("UTC", None, None));
    let stale = schedules.update(update).await.unwrap_err();
    assert_eq!((stale.code(), code(&stale)), (Code::Aborted, "stale_version"));
    let pause = PauseScheduleRequest { id: id.clone(), if_version: None };
    assert!(schedules.pause(pause).await.unwrap().into_inner().paused);
    let resume = ResumeScheduleRequest { id: id.clone(), if_version: None };
    assert!(!schedules.resume(resume).await.unwrap().into_inner().paused);
    let triggered = schedules.trigger(TriggerScheduleRequest { id: id.clone() }).await.unwrap().into_inner();
    assert!(triggered.job_id.starts_with("job_") && triggered.schedule_id == id);
    let next =
        schedules.next(NextFiresRequest { id: id.clone(), count: Some(3) }).await.unwrap().into_inner();
    assert_eq!(next.fires.len(), 3);
    let firings = ListFiringsRequest { id: id.clone(), limit: 10, ..ListFiringsRequest::default() };
    let firings = schedules.list_firings(firings).await.unwrap().into_inner();
    assert_eq!((firings.items.len(), firings.items[0].outcome.as_str()), (1, "triggered"));
    let now = made.created_at.unwrap();
    let from = Some(Timestamp { seconds: now.seconds - 8 * 86_400, nanos: 0 });
    let backfill = BackfillScheduleRequest { id: id.clone(), from, ..BackfillScheduleRequest::default() };
    let backfilled = schedules.backfill(backfill).await.unwrap().into_inner();
    assert!(backfilled.count >= 5 && backfilled.next_from.is_none(), "{backfilled:?}");
    let put = PutScheduleRequest {
        name: "morning".into(),
        schedule: Some(ScheduleSpec { name: String::new(), ..spec }),
        if_version: None,
    };
    assert_eq!(schedules.put(put).await.unwrap().into_inner().id, id);
    let list = ListSchedulesRequest { name: "morning".into(), ..ListSchedulesRequest::default() };
    assert_eq!(schedules.list(list).await.unwrap().into_inner().items.len(), 1);
    let delete = DeleteScheduleRequest { id: id.clone(), if_version: None };
    schedules.delete(delete).await.unwrap();
    let gone = schedules.get(GetScheduleRequest { id }).await.unwrap_err();
    assert_eq!((gone.code(), code(&gone)), (Code::NotFound, "schedule_not_found"));
}

#[tokio::test]
async fn a_preview_creates_nothing() {
    let server = Server::start(patient()).await;
    let mut schedules = SchedulesClient::new(server.channel().await);
    let preview = PreviewScheduleRequest {
        cron_expr: "30 2 * * *".into(),
        timezone: "America/New_York".into(),
        from: Some(Timestamp { seconds: 1_772_928_000, nanos: 0 }),
        count: Some(2),
        ..PreviewScheduleRequest::default()
    };
    let fires = schedules.preview(preview.clone()).await.unwrap().into_inner().fires;
    assert_eq!(fires.len(), 2);
    assert_eq!(fires[0].note.as_deref(), Some("dst_gap"), "{fires:?}");
    let bad = PreviewScheduleRequest { cron_expr: "0 0 31 2 *".into(), ..preview };
    let refused = schedules.preview(bad).await.unwrap_err();
    assert_eq!((refused.code(), code(&refused)), (Code::InvalidArgument, "invalid_cron"));
    assert!(schedules.list(ListSchedulesRequest::default()).await.unwrap().into_inner().items.is_empty());
}
