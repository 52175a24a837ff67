//! What a job may and may not look like, table by table.

use tidewheel_core::limits::{DAY_MS, HOUR_MS, RUN_AT_AHEAD_MS_MAX, RUN_AT_PAST_MS_MAX};
use tidewheel_core::retry::Backoff;

use super::*;

/// 2026-11-15T03:00:00Z.
const NOW: Timestamp = Timestamp::from_ms(1_794_711_600_000);

struct Rules;

impl TargetRules for Rules {
    fn check_url(&self, url: &str) -> Result<(), String> {
        if url.starts_with("http") { Ok(()) } else { Err("not a URL".to_owned()) }
    }

    fn check_method(&self, method: &str) -> Result<(), String> {
        if method == "CONNECT" { Err("not a method".to_owned()) } else { Ok(()) }
    }

    fn check_headers(&self, headers: &[(Box<str>, Box<str>)]) -> Result<(), String> {
        if headers.iter().any(|(name, _)| &**name == "Host") { Err("reserved".to_owned()) } else { Ok(()) }
    }
}

fn read(text: &str) -> Result<JobRequest, Vec<(Code, String, String)>> {
    let mut faults = Faults::default();
    let request = JobReader::new(NOW, &Rules).read(text, &At::ROOT, &mut faults);
    let list: Vec<_> = faults.into_list().into_iter().map(|f| (f.code, f.pointer, f.detail)).collect();
    assert_eq!(request.is_some(), list.is_empty(), "{text}: either a job or faults: {list:?}");
    request.ok_or(list)
}

/// A job with this after its type.
fn with(fields: &str) -> String {
    format!("{{\"type\":\"t\",{fields}}}")
}

#[test]
fn the_smallest_job() {
    let job = read("{\"type\":\"t\"}").unwrap();
    assert_eq!(&*job.kind, "t");
    assert_eq!(&job.payload[..], b"null");
    assert_eq!(job.start, Start::Now);
    assert_eq!(job.destination, Destination::Queue("default".into()));
    assert_eq!(
        (job.priority, job.timeout_ms, job.retry),
        (Priority::Normal, TIMEOUT_MS_DEFAULT, RetryPolicy::default())
    );
    assert_eq!((job.expires_at, job.idempotency_key, job.labels), (None, None, vec![]));
}

#[test]
fn the_fullest_job() {
    let job = read(
        r#" { "type": "send-email", "payload": {"to" : [1.50, "\u00e9"]}, "delay": "1h30m",
          "target": {"url": "https://example.com/x", "method": "put", "headers": {"b": "2", "a": "1"}, "timeout": 5},
          "priority": "high", "retry": {"max_attempts": 7, "policy": "fixed", "base": "2s", "multiplier": 1.5, "max": "PT1M"},
          "timeout": "5s", "expires_at": "2026-11-16T00:00:00+01:00", "idempotency_key": "k \u00e9", "labels": {"z": "1", "a": ""} } "#,
    )
    .unwrap();
    assert_eq!(&job.payload[..], br#"{"to" : [1.50, "\u00e9"]}"#, "byte for byte");
    assert_eq!(job.start, Start::After(90 * 60_000));
    let Destination::Target(target) = &job.destination else { panic!("{:?}", job.destination) };
    assert_eq!((&*target.url, &*target.method), ("https://example.com/x", "PUT"));
    assert_eq!(target.headers, [("a".into(), "1".into()), ("b".into(), "2".into())]);
    assert_eq!((job.priority, job.timeout_ms), (Priority::High, 5_000));
    let retry = job.retry;
    assert_eq!(
        (retry.max_attempts, retry.backoff, retry.base_ms, retry.max_ms),
        (7, Backoff::Fixed, 2_000, 60_000)
    );
    assert_eq!(job.expires_at.unwrap().to_string(), "2026-11-15T23:00:00.000Z");
    assert_eq!(job.idempotency_key.as_deref(), Some("k é"));
    assert_eq!(job.labels, [("a".into(), "".into()), ("z".into(), "1".into())]);
}

#[test]
fn short_forms_and_nulls() {
    let job =
        read(&with(r#""target_url":"http://a/","max_attempts":1,"queue":null,"payload":null,"delay":0.5"#))
            .unwrap();
    assert!(matches!(&job.destination, Destination::Target(target) if &*target.method == "POST"));
    assert_eq!((job.retry.max_attempts, job.start, &job.payload[..]), (1, Start::After(500), &b"null"[..]));
    let patient = read(&with(r#""retry":{"base":"2h"}"#)).unwrap().retry;
    assert_eq!((patient.base_ms, patient.max_ms), (2 * HOUR_MS, 2 * HOUR_MS));
}

fn one_fault_each(cases: &[(&str, Code, &str)]) {
    for (fields, code, pointer) in cases {
        let faults = read(&with(fields)).unwrap_err();
        assert_eq!(faults.len(), 1, "{fields}: {faults:?}");
        assert_eq!((faults[0].0, faults[0].1.as_str()), (*code, *pointer), "{fields}: {faults:?}");
    }
}

#[test]
fn one_fault_at_a_time_in_when_and_where() {
    use Code::*;
    one_fault_each(&[
        (r#""runAt":1"#, UnknownField, "/runAt"),
        (r#""type":"u""#, DuplicateField, "/type"),
        (r#""typ\u0065":"u""#, DuplicateField, "/type"),
        (r#""run_at":5"#, WrongType, "/run_at"),
        (r#""run_at":"tomorrow""#, InvalidTime, "/run_at"),
        (r#""run_at":"2016-12-31T23:59:60Z""#, InvalidTime, "/run_at"),
        (r#""run_at":"2026-12-01T09:00:00""#, InvalidTime, "/run_at"),
        (r#""run_at":"1999-01-01T00:00:00Z""#, RunAtOutOfRange, "/run_at"),
        (r#""run_at":"2126-01-01T00:00:00Z""#, RunAtOutOfRange, "/run_at"),
        (r#""run_at":"9999-12-31T23:59:59Z""#, RunAtOutOfRange, "/run_at"),
        (r#""run_at":"9999-12-31T23:59:60Z""#, InvalidTime, "/run_at"),
        (r#""expires_at":"9999-12-31T23:59:59Z""#, InvalidValue, "/expires_at"),
        (r#""delay":"100000d""#, RunAtOutOfRange, "/delay"),
        (r#""delay":-1"#, InvalidDuration, "/delay"),
        (r#""delay":1e400"#, InvalidDuration, "/delay"),
        (r#""delay":-1e-9"#, InvalidDuration, "/delay"),
        (r#""delay":"soon""#, InvalidDuration, "/delay"),
        (r#""delay":[]"#, WrongType, "/delay"),
        (r#""delay":1,"run_at":"2026-12-01T09:00:00Z""#, ConflictingFields, "/delay"),
        (r#""queue":"""#, InvalidValue, "/queue"),
        (r#""queue":"a b""#, InvalidValue, "/queue"),
        (r#""queue":7"#, WrongType, "/queue"),
        (r#""queue":"q","target_url":"http://a/""#, ConflictingFields, "/queue"),
        (r#""target":{"url":"http://a/"},"target_url":"http://a/""#, ConflictingFields, "/target_url"),
        (r#""target":"http://a/""#, WrongType, "/target"),
        (r#""target":{}"#, MissingField, "/target/url"),
        (r#""target":{"url":"ftp://a/"}"#, InvalidTarget, "/target/url"),
        (r#""target":{"url":"http://a/","method":"connect"}"#, InvalidTarget, "/target/method"),
        (r#""target":{"url":"http://a/","headers":{"Host":"x"}}"#, InvalidTarget, "/target/headers"),
        (
            r#""target":{"url":"http://a/","headers":{"X":"a\r\nY: b"}}"#,
            ControlCharacter,
            "/target/headers/X",
        ),
        (r#""target":{"url":"http://a/","headers":{"X\r\nY":"b"}}"#, ControlCharacter, "/target/headers"),
        (r#""target":{"url":"http://a/","headers":{"X":1}}"#, WrongType, "/target/headers/X"),
        (r#""target":{"url":"http://a/","headers":[]}"#, WrongType, "/target/headers"),
        (r#""target":{"url":"http://a/","port":1}"#, UnknownField, "/target/port"),
        (r#""target":{"url":"http://a/","timeout":1},"timeout":2"#, ConflictingFields, "/timeout"),
    ]);
}

#[test]
fn one_fault_at_a_time_in_the_rest() {
    use Code::*;
    one_fault_each(&[
        (r#""priority":"urgent""#, InvalidValue, "/priority"),
        (r#""priority":1"#, WrongType, "/priority"),
        (r#""max_attempts":0"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":101"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":1.5"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":-1"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":1e-1"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":1e3"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":"5""#, WrongType, "/max_attempts"),
        (r#""max_attempts":99999999999999999999999"#, InvalidValue, "/max_attempts"),
        (r#""max_attempts":3,"retry":{"max_attempts":3}"#, ConflictingFields, "/retry/max_attempts"),
        (r#""retry":{"policy":"linear"}"#, InvalidValue, "/retry/policy"),
        (r#""retry":{"multiplier":0.5}"#, InvalidValue, "/retry/multiplier"),
        (r#""retry":{"multiplier":1e400}"#, InvalidValue, "/retry/multiplier"),
        (r#""retry":{"multiplier":"2"}"#, WrongType, "/retry/multiplier"),
        (r#""retry":{"base":"10s","max":"1s"}"#, InvalidValue, "/retry/max"),
        (r#""retry":{"base":"8d"}"#, InvalidValue, "/retry/base"),
        (r#""retry":3"#, WrongType, "/retry"),
        (r#""timeout":0"#, InvalidValue, "/timeout"),
        (r#""timeout":"25h""#, InvalidValue, "/timeout"),
        (r#""expires_at":"2026-11-15T02:00:00Z""#, InvalidValue, "/expires_at"),
        (r#""delay":"2h","expires_at":"2026-11-15T04:00:00Z""#, InvalidValue, "/expires_at"),
        (r#""idempotency_key":"""#, InvalidValue, "/idempotency_key"),
        (r#""idempotency_key":"a\nb""#, ControlCharacter, "/idempotency_key"),
        (r#""idempotency_key":"\u0000""#, ControlCharacter, "/idempotency_key"),
        (r#""idempotency_key":"\ud800""#, MalformedJson, "/idempotency_key"),
        (r#""labels":{"a":1}"#, WrongType, "/labels/a"),
        (r#""labels":{"":"x"}"#, InvalidValue, "/labels/"),
        (r#""labels":{"a":"1","a":"2"}"#, DuplicateField, "/labels/a"),
        (r#""labels":{"a":"\u001b[2J"}"#, ControlCharacter, "/labels/a"),
        (r#""labels":["a"]"#, WrongType, "/labels"),
    ]);
}

#[test]
fn a_body_that_is_no_job_at_all() {
    use Code::{MalformedJson, MissingField, WrongType};
    for (text, code) in [
        ("", MalformedJson),
        (" \n", MalformedJson),
        ("{", MalformedJson),
        ("{\"type\":\"t\"", MalformedJson),
        ("{\"type\":\"t\",}", MalformedJson),
        ("{\"type\":\"t\"} x", MalformedJson),
        ("{'type':'t'}", MalformedJson),
        ("{\"type\":\"a\nb\"}", MalformedJson),
        ("{\"payload\":{\"a\":01}}", MalformedJson),
        ("nonsense", MalformedJson),
        ("[]", WrongType),
        ("5", WrongType),
        ("null", WrongType),
        ("{}", MissingField),
        ("{\"type\":null}", MissingField),
    ] {
        let faults = read(text).unwrap_err();
        assert_eq!((faults.len(), faults[0].0), (1, code), "{text}: {faults:?}");
    }
}

#[test]
fn all_faults_are_told_at_once_and_the_nearest_field_is_named() {
    let faults =
        read(r#"{"tpye":"t","payload":1,"delay":"x","queue":"","retry":{"polcy":"fixed"}}"#).unwrap_err();
    let pointers: Vec<_> = faults.iter().map(|fault| fault.1.as_str()).collect();
    assert_eq!(pointers, ["/tpye", "/type", "/delay", "/queue", "/retry/polcy"]);
    assert!(faults[0].2.contains("`type`") && faults[4].2.contains("`policy`"), "{faults:?}");
}

#[test]
fn sizes_at_their_limits() {
    let payload = |bytes: usize| with(&format!("\"payload\":\"{}\"", "x".repeat(bytes - 2)));
    assert_eq!(read(&payload(PAYLOAD_BYTES_MAX)).unwrap().payload.len(), PAYLOAD_BYTES_MAX);
    assert_eq!(read(&payload(PAYLOAD_BYTES_MAX + 1)).unwrap_err()[0].0, Code::PayloadTooLarge);

    let nested = |levels: usize| with(&format!("\"payload\":{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert!(read(&nested(PAYLOAD_DEPTH_MAX)).is_ok());
    assert_eq!(read(&nested(PAYLOAD_DEPTH_MAX + 1)).unwrap_err()[0].0, Code::PayloadTooDeep);
    assert_eq!(read(&nested(30_000)).unwrap_err()[0].0, Code::PayloadTooDeep);
    assert_eq!(read(&nested(100_000)).unwrap_err()[0].0, Code::PayloadTooLarge);
    assert_eq!(depth(r#"["[[[\"{{", {"a]": []}]"#), 3);

    let kind = |bytes: usize| format!("{{\"type\":\"{}\"}}", "t".repeat(bytes));
    assert!(read(&kind(128)).is_ok() && read(&kind(129)).is_err() && read(&kind(0)).is_err());
    let key = |chars: usize| with(&format!("\"idempotency_key\":\"{}\"", "é".repeat(chars)));
    assert!(read(&key(255)).is_ok() && read(&key(256)).is_err());
    let labels = |count: usize| {
        let pairs: Vec<_> = (0..count).map(|n| format!("\"k{n}\":\"v\"")).collect();
        with(&format!("\"labels\":{{{}}}", pairs.join(",")))
    };
    assert!(read(&labels(LABELS_COUNT_MAX)).is_ok() && read(&labels(LABELS_COUNT_MAX + 1)).is_err());
}

#[test]
fn times_at_their_limits() {
    let at = |ms: i64| read(&with(&format!("\"run_at\":\"{}\"", NOW.plus_ms(ms))));
    assert!(at(-RUN_AT_PAST_MS_MAX).is_ok() && at(-RUN_AT_PAST_MS_MAX - 1).is_err());
    assert!(at(RUN_AT_AHEAD_MS_MAX).is_ok());
    let faults = at(RUN_AT_AHEAD_MS_MAX + 1).unwrap_err();
    assert!(faults[0].2.contains("3653d"), "the limit is named: {faults:?}");
    assert!(read(&with(&format!("\"delay\":{}", RUN_AT_AHEAD_MS_MAX / DAY_MS * 86_400))).is_ok());
}

#[test]
fn a_number_is_the_same_however_it_is_written() {
    for (given, plain) in [
        (r#""delay":1e3"#, r#""delay":1000"#),
        (r#""delay":1.5e0"#, r#""delay":"1.5s""#),
        (r#""delay":0.1000000000000000055"#, r#""delay":"100ms""#),
        (r#""delay":5.0"#, r#""delay":5"#),
        (r#""timeout":25e-1"#, r#""timeout":"2.5s""#),
        (r#""max_attempts":5.0"#, r#""max_attempts":5"#),
        (r#""max_attempts":1e2"#, r#""max_attempts":100"#),
        (
            r#""retry":{"base":1e-1,"multiplier":15e-1,"max":6e1}"#,
            r#""retry":{"base":"100ms","multiplier":1.5,"max":"1m"}"#,
        ),
    ] {
        assert_eq!(read(&with(given)), read(&with(plain)), "{given}");
        assert!(read(&with(given)).is_ok(), "{given}");
    }
}

#[test]
fn jobs_of_one_batch_share_what_they_have_in_common() {
    let mut reader = JobReader::new(NOW, &Rules);
    let mut faults = Faults::default();
    let mut next = |text: &str| reader.read(text, &At::ROOT, &mut faults).unwrap();
    let (a, b) =
        (next(r#"{"type":"t","target_url":"http://a/"}"#), next(r#"{"type":"t","target_url":"http://a/"}"#));
    assert!(Arc::ptr_eq(&a.kind, &b.kind));
    match (&a.destination, &b.destination) {
        (Destination::Target(a), Destination::Target(b)) => assert!(Arc::ptr_eq(a, b)),
        other => panic!("{other:?}"),
    }
    let c = next(r#"{"type":"u","target_url":"http://b/"}"#);
    assert_eq!((&*c.kind, c.destination == a.destination), ("u", false));
    assert_eq!(next(r#"{"type":"t","queue":"q"}"#).destination, Destination::Queue("q".into()));
}
