use proptest::prelude::*;
use tidewheel_core::job::{Command, Failure, Finding, transition};

use super::*;

fn spec(payload: &[u8]) -> Spec {
    Spec {
        kind: "send_email".into(),
        payload: Bytes::copy_from_slice(payload),
        destination: Destination::Queue("default".into()),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: Timestamp::from_ms(1_796_118_890_000),
    }
}

fn job(spec: Spec) -> Job {
    Job::new(Tenant::default(), spec, Timestamp::from_ms(1_796_118_896_000), 7)
}

fn traced() -> TraceContext {
    TraceContext::read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1").unwrap()
}

fn unusual() -> Spec {
    Spec {
        destination: Destination::Target(Arc::new(Target {
            url: "https://example.com/x".into(),
            method: "PUT".into(),
            headers: vec![("x-a".into(), "1".into())],
        })),
        priority: Priority::Critical,
        retry: RetryPolicy {
            max_attempts: 2,
            backoff: Backoff::Fixed,
            base_ms: 5,
            multiplier: 1.5,
            max_ms: 9,
        },
        timeout_ms: 1,
        expires_at: Some(Timestamp::from_ms(1_796_200_000_000)),
        idempotency_key: Some("order-7".into()),
        labels: vec![("team".into(), "a".into()), ("x".into(), String::new().into())],
        occurrence: Some(Occurrence {
            schedule_id: ScheduleId::from_bytes([1; 16]),
            fire_at: Timestamp::from_ms(1_796_118_000_000),
            catch_up: true,
        }),
        trace: Some(Box::new(traced())),
        ..spec(b"{}")
    }
}

fn changed(job: &Job, command: &Command, now_ms: i64) -> Job {
    let change = transition(job, command, Timestamp::from_ms(now_ms)).unwrap();
    let tidewheel_core::job::Change::To(next) = change else { panic!("{change:?}") };
    next
}

fn failed(job: &Job) -> Job {
    let now = 1_796_118_897_000;
    let claim = Command::Claim { epoch: 3, worker: "w-1".into(), lease_ms: 5_000, detached: false };
    let running = changed(job, &claim, now);
    let finding = Finding { status_code: Some(500), detail: "no".into() };
    let failure = Failure { finding, retryable: true, timed_out: false, retry_after_ms: None, jitter: 9 };
    changed(&running, &Command::Fail { token: running.status.token, failure }, now + 40)
}

fn survives(job: &Job) {
    assert_eq!(decode(&job.tenant, job.id, &encode(job)).as_ref(), Ok(job));
}

/// Changing any of these bytes makes stores that exist unreadable: make a new version instead.
#[test]
fn the_bytes_of_version_1_never_change() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(encode(&job(spec(b"{}")))), "01000a73656e645f656d61696c0764656661756c74df5d027b7d");
    assert_eq!(
        hex(encode(&failed(&job(spec(b"{}"))))),
        "01020a73656e645f656d61696c0764656661756c74df5d027b7d0288180101008180c0010001018180c00103772d31d00f500101\
         f403026e6f00"
    );
}

/// What a trace adds, between the parts that were there before.
#[test]
fn a_trace_is_a_part_of_its_own() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let job = job(Spec { trace: Some(Box::new(traced())), ..spec(b"{}") });
    survives(&job);
    survives(&failed(&job));
    assert_eq!(
        hex(encode(&job)),
        "01080a73656e645f656d61696c0764656661756c74df5d027b7d\
         b68eb9f0d0d3a4e7a3cdb69afbaecd97f99701b785a4dda0f599780103613d31"
    );
    let mut untraced = job.clone();
    Arc::make_mut(&mut untraced.spec).trace = None;
    assert_eq!(decode(&job.tenant, job.id, &encode(&untraced)).as_ref(), Ok(&untraced));
}

#[test]
fn jobs_survive_whatever_happened_to_them() {
    for job in [job(spec(b"")), job(spec(&[0xff; 300])), job(unusual())] {
        survives(&job);
        let retrying = failed(&job);
        survives(&retrying);
        survives(&changed(&retrying, &Command::Cancel, 1_796_118_999_000));
        assert_eq!(attempt_of(&job.tenant, job.id, &encode(&job)), Ok(0));
        assert_eq!(attempt_of(&job.tenant, job.id, &encode(&retrying)), Ok(1));
    }
}

#[test]
fn a_waiting_job_costs_little_more_than_what_it_says() {
    let job = job(spec(&[b'x'; 128]));
    let said = "send_email".len() + "default".len() + 128;
    assert!(encode(&job).len() <= said + 10, "{}", encode(&job).len());
}

#[test]
fn what_cannot_be_read_is_told() {
    let whole = encode(&failed(&job(unusual())));
    let id = job(unusual()).id;
    let tenant = Tenant::default();
    assert_eq!(decode(&tenant, id, &[]).unwrap_err(), Unreadable::Nonsense("empty"));
    assert_eq!(decode(&tenant, id, &[2, 0]).unwrap_err(), Unreadable::Version(2));
    assert_eq!(decode(&tenant, id, &[1, 0x80]).unwrap_err(), Unreadable::Nonsense("unknown flags"));
    for length in 0..whole.len() {
        assert!(decode(&tenant, id, &whole[..length]).is_err(), "{length}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let id = JobId::from_bytes([9; 16]);
        if let Ok(job) = decode(&Tenant::default(), id, &bytes) {
            prop_assert_eq!(job.id, id);
        }
    }
}
