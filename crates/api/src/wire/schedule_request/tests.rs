//! What a schedule may and may not look like, table by table.

use tidewheel_core::cron::{Dst, Fold, Gap};
use tidewheel_core::job::Destination;
use tidewheel_core::limits::{DAY_MS, HOUR_MS, MINUTE_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{MisfirePolicy, NewSchedule, Overlap, Roll, ScheduleId, Timing, create};

use super::*;

/// 2026-11-15T03:00:00Z.
const NOW: Timestamp = Timestamp::from_ms(1_794_711_600_000);

struct Rules;

impl TargetRules for Rules {
    fn check_url(&self, url: &str) -> Result<(), String> {
        if url.starts_with("http") { Ok(()) } else { Err("not a URL".to_owned()) }
    }

    fn check_method(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn check_headers(&self, _: &[(Box<str>, Box<str>)]) -> Result<(), String> {
        Ok(())
    }
}

type Found = Result<ScheduleRequest, Vec<(Code, String, String)>>;

fn with_reader(
    read: impl FnOnce(&ScheduleReader<'_, Rules>, &mut Faults) -> Option<ScheduleRequest>,
) -> Found {
    let mut faults = Faults::default();
    let zones = Zones::bundled();
    let request = read(&ScheduleReader { now: NOW, rules: &Rules, zones: &zones }, &mut faults);
    let list: Vec<_> = faults.into_list().into_iter().map(|f| (f.code, f.pointer, f.detail)).collect();
    assert_eq!(request.is_some(), list.is_empty(), "either a schedule or faults: {list:?}");
    request.ok_or(list)
}

fn read(text: &str) -> Found {
    with_reader(|reader, faults| reader.read(text, &At::ROOT, faults))
}

fn change(current: &Schedule, text: &str) -> Found {
    with_reader(|reader, faults| reader.change(text, current, faults))
}

fn made(text: &str) -> Schedule {
    let ScheduleRequest { name, definition, .. } = read(text).unwrap();
    let id = ScheduleId::from_bytes([7; 16]);
    let new = NewSchedule { id, tenant: Tenant::default(), name, definition, paused: false };
    create(new, None, NOW).schedule
}

/// A schedule with this after its beat.
fn with(fields: &str) -> String {
    format!("{{\"cron_expr\":\"@daily\",{fields}}}")
}

#[test]
fn the_smallest_schedule() {
    let request = read(r#"{"cron_expr":"0 9 * * MON-FRI"}"#).unwrap();
    assert_eq!((request.name, request.paused), (None, None));
    let definition = request.definition;
    assert_eq!((definition.window_ms, definition.overlap), (0, Overlap::Allow));
    assert_eq!(
        (definition.misfire.policy, definition.misfire.grace_ms),
        (MisfirePolicy::FireLatest, MINUTE_MS)
    );
    assert_eq!((definition.rule.zone.name(), definition.rule.dst), ("UTC", Dst::default()));
    let template = definition.template;
    assert_eq!((&*template.kind, &template.payload[..]), (TYPE_DEFAULT, &b"null"[..]));
    assert_eq!(template.destination, Destination::Queue("default".into()));
    assert_eq!(&*read(r#"{"every":"5m","name":"n"}"#).unwrap().definition.template.kind, "n");
}

#[test]
fn the_fullest_schedule() {
    let request = read(
        r#"{"name":"a.b","every":"PT15M","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"},
            "start_at":"2026-12-01T00:00:00Z","end_at":"2027-12-01T00:00:00Z",
            "exclude":{"dates":["2026-12-26","2026-12-25"],"calendar":"de","roll":"next_business_day"},
            "window":"10m","misfire":"fire_all","misfire_cap":3,"misfire_grace":"2m","overlap":"buffer_one",
            "type":"t","payload":{"a" : 1},"target":{"url":"http://a/","timeout":5},"priority":"low",
            "retry":{"max_attempts":2,"policy":"fixed"},"labels":{"b":"2","a":"1"},"idempotency_key":"k",
            "note":"of\nmany lines","paused":true}"#,
    )
    .unwrap();
    assert_eq!((request.name.as_deref(), request.paused), (Some("a.b"), Some(true)));
    let definition = request.definition;
    let rule = &definition.rule;
    let start = rule.start_at.unwrap();
    assert_eq!(rule.timing, Timing::Every { interval_ms: 15 * MINUTE_MS, anchor: start });
    assert_eq!((rule.zone.name(), rule.dst), ("Europe/Berlin", Dst { gap: Gap::Skip, fold: Fold::Both }));
    assert_eq!(
        rule.exclude.dates.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["2026-12-25", "2026-12-26"]
    );
    assert_eq!((rule.exclude.calendar.as_deref(), rule.exclude.roll), (Some("de"), Roll::NextBusinessDay));
    assert_eq!((definition.window_ms, definition.overlap), (10 * MINUTE_MS, Overlap::BufferOne));
    assert_eq!(definition.misfire.policy, MisfirePolicy::FireAll { cap: 3 });
    assert_eq!(definition.misfire.grace_ms, 2 * MINUTE_MS);
    let template = &definition.template;
    assert_eq!((template.timeout_ms, template.retry.max_attempts), (5_000, 2));
    assert_eq!(template.labels, [("a".into(), "1".into()), ("b".into(), "2".into())]);
    assert_eq!(&template.payload[..], br#"{"a" : 1}"#, "byte for byte");
    assert_eq!(definition.note.as_deref(), Some("of\nmany lines"));
}

#[test]
fn short_forms() {
    let exclude = |text: &str| read(&with(text)).unwrap().definition.rule.exclude.clone();
    assert_eq!(exclude(r#""exclude":["2026-12-25"]"#).dates.as_slice().len(), 1);
    assert_eq!(exclude(r#""exclude":"holidays""#).calendar.as_deref(), Some("holidays"));
    let overlap = |text: &str| read(&with(text)).unwrap().definition.overlap;
    assert_eq!(overlap(r#""allow_overlap":false"#), Overlap::Skip);
    assert_eq!(overlap(r#""allow_overlap":true"#), Overlap::Allow);
    let target = read(&with(r#""target_url":"http://a/""#)).unwrap().definition.template.destination;
    assert!(matches!(target, Destination::Target(_)));
    let policy = read(&with(r#""misfire":"fire_all""#)).unwrap().definition.misfire.policy;
    assert_eq!(policy, MisfirePolicy::FIRE_ALL);
}

#[test]
fn one_fault_at_a_time() {
    use Code::*;
    for (text, code, pointer, word) in [
        ("{}".to_owned(), MissingField, "/cron_expr", "every"),
        (r#"{"cron_expr":"61 * * * *"}"#.to_owned(), InvalidCron, "/cron_expr", "byte 0"),
        (r#"{"cron_expr":"0 0 30 2 *"}"#.to_owned(), InvalidCron, "/cron_expr", ""),
        (r#"{"cron_expr":"0 9 * * *\u0000"}"#.to_owned(), InvalidCron, "/cron_expr", ""),
        (r#"{"cron_expr":7}"#.to_owned(), WrongType, "/cron_expr", ""),
        (r#"{"cron_expr":"@daily","every":"1h"}"#.to_owned(), ConflictingFields, "/every", ""),
        (r#"{"every":"soon"}"#.to_owned(), InvalidDuration, "/every", ""),
        (r#"{"every":0}"#.to_owned(), InvalidValue, "/every", ""),
        (with(r#""cron":"x""#), UnknownField, "/cron", "cron_expr"),
        (with(r#""timezone":"Europe/Berln""#), InvalidTimezone, "/timezone", "Europe/Berlin"),
        (with(r#""timezone":"america/new_york""#), InvalidTimezone, "/timezone", "America/New_York"),
        (with(r#""timezone":"""#), InvalidTimezone, "/timezone", ""),
        (with(r#""dst":{"gap":"jump"}"#), InvalidValue, "/dst/gap", "skip"),
        (with(r#""dst":{"fol":"both"}"#), UnknownField, "/dst/fol", "fold"),
        (with(r#""start_at":"soon""#), InvalidTime, "/start_at", ""),
        (with(r#""start_at":"9999-12-31T23:59:59Z""#), InvalidValue, "/start_at", "9999-12-30T22:00:00.000Z"),
        (with(r#""end_at":"9999-12-31T23:59:59Z""#), InvalidValue, "/end_at", "9999-12-30T22:00:00.000Z"),
        (with(r#""tz":"UTC""#), UnknownField, "/tz", "nearest known one is `timezone`"),
        (with(r#""colour":"red""#), UnknownField, "/colour", "the known ones are name, cron_expr, "),
        (r#"{"cron_expr":"0 0 29W * *"}"#.to_owned(), InvalidCron, "/cron_expr", "1W to 28W"),
        (
            with(r#""start_at":"2027-01-02T00:00:00Z","end_at":"2027-01-01T00:00:00Z""#),
            InvalidValue,
            "/end_at",
            "before",
        ),
        (with(r#""exclude":["2026-02-30"]"#), InvalidValue, "/exclude/0", "2026-12-25"),
        (with(r#""exclude":["20261225"]"#), InvalidValue, "/exclude/0", "2026-12-25"),
        (with(r#""exclude":{"dates":["x"]}"#), InvalidValue, "/exclude/dates/0", ""),
        (with(r#""exclude":{"calendar":"a b"}"#), InvalidValue, "/exclude/calendar", ""),
        (with(r#""exclude":{"roll":"next"}"#), InvalidValue, "/exclude/roll", "next_business_day"),
        (with(r#""exclude":5"#), WrongType, "/exclude", ""),
        (with(r#""window":"25h""#), InvalidValue, "/window", ""),
        (with(r#""misfire":"fire_every""#), InvalidValue, "/misfire", "fire_all"),
        (with(r#""misfire_cap":3"#), ConflictingFields, "/misfire_cap", "fire_all"),
        (with(r#""misfire":"fire_all","misfire_cap":0"#), InvalidValue, "/misfire_cap", "1000"),
        (with(r#""misfire_grace":"0.5s""#), InvalidValue, "/misfire_grace", "1s"),
        (with(r#""overlap":"never""#), InvalidValue, "/overlap", "allow"),
        (with(r#""overlap":"skip","allow_overlap":false"#), ConflictingFields, "/allow_overlap", ""),
        (with(r#""queue":"q","target_url":"http://a/""#), ConflictingFields, "/queue", ""),
        (with(r#""target_url":"ftp://a/""#), InvalidTarget, "/target_url", ""),
        (with(r#""name":"a b""#), InvalidValue, "/name", ""),
        (with(r#""type":"a b""#), InvalidValue, "/type", ""),
        (with(r#""paused":"yes""#), WrongType, "/paused", ""),
        (with(&format!(r#""note":"{}""#, "x".repeat(1_025))), InvalidValue, "/note", "1024"),
        (
            with(&format!(r#""idempotency_key":"{}""#, "k".repeat(223))),
            InvalidValue,
            "/idempotency_key",
            "222",
        ),
    ] {
        let faults = read(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert_eq!((faults[0].0, faults[0].1.as_str()), (code, pointer), "{text}: {faults:?}");
        assert!(faults[0].2.contains(word), "{text}: {faults:?}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let faults =
        read(r#"{"cron_expr":"x","timezone":"Mars/Base","misfire":"no","overlap":"no","queue":"","nam":1}"#)
            .unwrap_err();
    let pointers: Vec<_> = faults.iter().map(|fault| fault.1.as_str()).collect();
    assert_eq!(pointers, ["/nam", "/timezone", "/cron_expr", "/misfire", "/overlap", "/queue"]);
}

#[test]
fn a_change_keeps_what_it_does_not_name_and_null_goes_back_to_the_default() {
    let current = made(
        r#"{"cron_expr":"0 9 * * *","name":"n","timezone":"Europe/Berlin","misfire":"fire_all","misfire_cap":3,
            "target":{"url":"http://a/","timeout":5},"retry":{"max_attempts":2,"policy":"fixed"},"note":"x",
            "exclude":"c","end_at":"2027-12-01T00:00:00Z","payload":{"a":1},"overlap":"skip"}"#,
    );
    let same = change(&current, "{}").unwrap();
    assert_eq!((&same.definition, &same.name), (&*current.definition, &current.name));

    let other =
        change(&current, r#"{"cron_expr":"0 10 * * *","max_attempts":9,"misfire_cap":4,"payload":null}"#);
    let other = other.unwrap().definition;
    assert_eq!(other.rule.zone.name(), "Europe/Berlin");
    assert_eq!(other.rule.exclude, current.definition.rule.exclude);
    assert_eq!(
        (other.template.retry.max_attempts, other.template.retry.backoff),
        (9, current.definition.template.retry.backoff)
    );
    assert_eq!(
        (other.misfire.policy, &other.template.payload[..]),
        (MisfirePolicy::FireAll { cap: 4 }, &b"null"[..])
    );
    assert_eq!(other.template.timeout_ms, 5_000);

    let policy = |text: &str| change(&current, text).unwrap().definition.misfire.policy;
    let capped = MisfirePolicy::FireAll { cap: 3 };
    assert_eq!(policy(r#"{"misfire":"fire_all"}"#), capped, "the cap is not named");
    assert_eq!(policy(r#"{"misfire":"fire_all","misfire_cap":null}"#), MisfirePolicy::FIRE_ALL);
    let skipping = made(r#"{"cron_expr":"0 9 * * *","misfire":"skip"}"#);
    let policy = change(&skipping, r#"{"misfire":"fire_all"}"#).unwrap().definition.misfire.policy;
    assert_eq!(policy, MisfirePolicy::FIRE_ALL, "there was none");

    let reset = change(
        &current,
        r#"{"name":null,"timezone":null,"misfire":null,"target":null,"retry":null,"note":null,"exclude":null,
            "end_at":null,"overlap":null,"timeout":null,"payload":2}"#,
    )
    .unwrap();
    assert_eq!(reset.name, None);
    let (reset, fresh) =
        (reset.definition, read(r#"{"cron_expr":"0 9 * * *","type":"n","payload":2}"#).unwrap().definition);
    assert_eq!(reset, fresh);

    let every = change(&current, r#"{"every":"1h"}"#).unwrap().definition;
    assert_eq!(every.rule.timing, Timing::Every { interval_ms: HOUR_MS, anchor: NOW });
    let queued = change(&current, r#"{"queue":"q"}"#).unwrap().definition.template;
    assert_eq!((queued.destination, queued.timeout_ms), (Destination::Queue("q".into()), 5_000));
    assert_eq!(change(&current, r#"{"cron_expr":null}"#).unwrap_err()[0].0, Code::MissingField);
    assert_eq!(
        change(&current, r#"{"misfire":"skip","misfire_cap":2}"#).unwrap_err()[0].0,
        Code::ConflictingFields
    );
}

#[test]
fn an_interval_keeps_counting_from_where_it_did() {
    let mut current = made(r#"{"every":"1h"}"#);
    current.created_at = NOW;
    let zones = Zones::bundled();
    let later = ScheduleReader { now: NOW.plus_ms(DAY_MS + 1), rules: &Rules, zones: &zones };
    let changed = later.change(r#"{"every":"2h"}"#, &current, &mut Faults::default()).unwrap();
    assert_eq!(changed.definition.rule.timing, Timing::Every { interval_ms: 2 * HOUR_MS, anchor: NOW });
}

#[test]
fn a_name_in_the_address_and_another_in_the_body_exclude_each_other() {
    let named = |text: &str| with_reader(|reader, faults| reader.read_named(text, &Arc::from("n"), faults));
    assert_eq!(named(&with(r#""name":"n""#)).unwrap().name.as_deref(), Some("n"));
    assert_eq!(&*named(r#"{"every":"1h"}"#).unwrap().definition.template.kind, "n");
    assert_eq!(named(&with(r#""name":"m""#)).unwrap_err()[0].0, Code::ConflictingFields);
}

#[test]
fn a_backfill_lies_in_the_past() {
    let read = |text: &str| {
        let mut faults = Faults::default();
        let request = BackfillRequest::read(text, NOW, &mut faults);
        let codes: Vec<_> = faults.into_list().into_iter().map(|fault| (fault.code, fault.pointer)).collect();
        (request, codes)
    };
    let (request, codes) = read(r#"{"from":"2026-11-14T00:00:00Z","rate":4}"#);
    let request = request.unwrap();
    assert_eq!((request.to, codes.len()), (NOW, 0));
    assert_eq!(request.start_of(2, NOW), NOW.plus_ms(500));
    assert_eq!(read("{}").1, [(Code::MissingField, "/from".to_owned())]);
    let future = read(r#"{"from":"2026-11-14T00:00:00Z","to":"2026-11-16T00:00:00Z"}"#);
    assert_eq!(future.1, [(Code::InvalidValue, "/to".to_owned())]);
    let turned = read(r#"{"from":"2026-11-14T00:00:00Z","to":"2026-11-13T00:00:00Z"}"#);
    assert_eq!(turned.1, [(Code::InvalidValue, "/from".to_owned())]);
}

proptest::proptest! {
    // A zone that is not known is compared with all that are.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_makes_the_reader_panic(cron in "\\PC{0,40}", zone in "\\PC{0,40}", date in "[0-9-]{0,12}", any in "\\PC{0,80}") {
        let body = serde_json::json!({"cron_expr": cron, "timezone": zone, "exclude": [date], "every": any, "name": any});
        drop(read(&body.to_string()));
        drop(read(&any));
        drop(change(&made(r#"{"every":"1h"}"#), &body.to_string()));
    }
}
