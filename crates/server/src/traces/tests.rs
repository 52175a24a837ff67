//! Which trace and span a job's attempt is in, and what is recorded of it.

use bytes::Bytes;
use tidewheel_core::job::{
    Change, Command, Destination, Failure, Finding, Occurrence, Priority, Spec, Target, transition,
};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::ScheduleId;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const AT: Timestamp = Timestamp::from_ms(1_796_118_896_000);

fn job(trace: Option<&str>) -> Job {
    let target = Target { url: "http://a.example/x?secret=1".into(), method: "POST".into(), headers: vec![] };
    let spec = Spec {
        kind: "t".into(),
        payload: Bytes::new(),
        destination: Destination::Target(Arc::new(target)),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: trace.and_then(|parent| TraceContext::read(parent, "a=1")).map(Box::new),
        created_at: AT.plus_ms(-5_000),
    };
    Job::new(Tenant::default(), spec, AT, 7)
}

fn changed(job: &Job, command: &Command, now: Timestamp) -> Job {
    let Ok(Change::To(next)) = transition(job, command, now) else { panic!("not granted") };
    next
}

fn claimed(job: &Job, late_ms: i64) -> Job {
    let claim = Command::Claim { epoch: 3, worker: "push".into(), lease_ms: 5_000, detached: false };
    changed(job, &claim, job.status.due_at.plus_ms(late_ms))
}

fn failed(job: &Job) -> Job {
    let finding = Finding { status_code: Some(500), detail: "no".into() };
    let failure = Failure { finding, retryable: true, timed_out: false, retry_after_ms: None, jitter: 0 };
    changed(job, &Command::Fail { token: job.status.token, failure }, AT.plus_ms(90))
}

fn on(ratio: f64, room: usize) -> (Traces, mpsc::Receiver<Span>, Metrics) {
    let (spans, queue) = mpsc::channel(room);
    let metrics = Metrics::new();
    let counts = metrics.spans().clone();
    let recorder = Recorder { sampled_below: ids::share(ratio), spans, counts };
    (Traces(Some(Arc::new(recorder))), queue, metrics)
}

fn submitted(traces: &Traces, job: &Job) {
    let submission = Submission { job: job.clone(), key: None, fresh: true };
    let spans = traces.submitting(&[submission]);
    traces.submitted(spans.into_iter().map(|(_, span)| span), AT);
}

#[test]
fn a_kept_context_is_handed_on_as_a_child_whether_spans_are_wanted_or_not() {
    let running = claimed(&job(Some(PARENT)), 10);
    let (recording, _queue, _) = on(0.0, 1);
    for traces in [Traces::default(), recording] {
        let child = traces.handed_on(&running).unwrap();
        assert_eq!(child.trace_id.to_string(), &PARENT[3..35]);
        assert_ne!(child.span_id.to_string(), &PARENT[36..52]);
        assert!(child.is_sampled());
        assert_eq!(child.state(), "a=1");
        assert_eq!(traces.trace_id_of(&running), Some(child.trace_id));
    }
}

#[test]
fn a_job_without_one_gets_one_only_if_there_is_somebody_to_tell() {
    let running = claimed(&job(None), 10);
    assert_eq!(Traces::default().handed_on(&running), None);
    assert_eq!(Traces::default().trace_id_of(&running), None);
    let (all, _queue, _) = on(1.0, 1);
    let (none, _queue, _) = on(0.0, 1);
    let recorded = all.handed_on(&running).unwrap();
    assert!(recorded.is_sampled());
    assert!(!none.handed_on(&running).unwrap().is_sampled());
    // Spans of one job are made years apart, by programs that must agree.
    assert_eq!(recorded.parent(), "00-aa1be0cab2ff9f35c94299c04de44c41-37403c404da5bc99-01");
}

#[test]
fn a_life_is_told_in_spans_that_hang_together() {
    let (traces, mut queue, _) = on(0.0, 16);
    let new = job(Some(PARENT));
    submitted(&traces, &new);
    let running = claimed(&new, 10);
    traces.started(&running);
    let retrying = failed(&running);
    traces.attempt_ended(&retrying);
    let again = claimed(&retrying, 1);
    traces.started(&again);
    let spans: Vec<Span> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
    let [submit, wait, attempt, second_wait] = &spans[..] else { panic!("{spans:#?}") };
    assert!(spans.iter().all(|span| span.trace_id.to_string() == PARENT[3..35] && &*span.state == "a=1"));
    assert_eq!(submit.parent.unwrap().to_string(), &PARENT[36..52]);
    for child in [wait, attempt, second_wait] {
        assert_eq!(child.parent, Some(submit.span_id));
    }
    assert_eq!((submit.start, submit.end), (AT.plus_ms(-5_000), AT));
    assert_eq!((wait.start, wait.end), (AT.plus_ms(-5_000), AT.plus_ms(10)));
    assert_eq!((attempt.start, attempt.end), (AT.plus_ms(10), AT.plus_ms(90)));
    assert_eq!(second_wait.start, attempt.end);
    assert_ne!(wait.span_id, second_wait.span_id);
    assert_eq!(attempt.span_id, traces.handed_on(&running).unwrap().span_id);
    assert_eq!(attempt.error, Some("failed"));
    assert!(!format!("{spans:?}").contains("secret"));
    assert!(attempt.attributes.contains(&("http.response.status_code", span::Value::Number(500))));
}

#[test]
fn the_first_wait_of_an_occurrence_stands_for_its_submission() {
    let (traces, mut queue, _) = on(1.0, 16);
    let mut new = job(None);
    let occurrence =
        Occurrence { schedule_id: ScheduleId::from_bytes([1; 16]), fire_at: AT, catch_up: false };
    Arc::make_mut(&mut new.spec).occurrence = Some(occurrence);
    let running = claimed(&new, 10);
    traces.started(&running);
    traces.attempt_ended(&failed(&running));
    let (wait, attempt) = (queue.try_recv().unwrap(), queue.try_recv().unwrap());
    assert_eq!((wait.parent, attempt.parent), (None, Some(wait.span_id)));
}

#[test]
fn whoever_began_a_trace_decides_and_of_the_others_a_share_is_recorded() {
    let (traces, mut queue, _) = on(1.0, 16);
    let unsampled = PARENT.replace("-01", "-00");
    submitted(&traces, &job(Some(&unsampled)));
    traces.started(&claimed(&job(Some(&unsampled)), 0));
    assert!(queue.try_recv().is_err());
    let (half, _queue, _) = on(0.5, 1);
    let jobs = (0..1_000).map(|tail| Job::new(Tenant::default(), (*job(None).spec).clone(), AT, tail));
    let recorded = jobs.filter(|job| half.handed_on(job).unwrap().is_sampled()).count();
    assert!((400..600).contains(&recorded), "{recorded}");
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted() {
    let (traces, _queue, metrics) = on(1.0, 1);
    for _ in 0..3 {
        submitted(&traces, &job(None));
    }
    assert!(metrics.render().contains("tidewheel_spans_dropped_total{reason=\"queue_full\"} 2\n"));
}
