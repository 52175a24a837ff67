//! Looks at canned answers, to the letter.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::top::exposition::Metrics;
use crate::top::frame::{Answers, Starts};

const METRICS: &str = "\
tidewheel_jobs{state=\"scheduled\"} 1234567
tidewheel_jobs{state=\"running\"} 42
tidewheel_jobs{state=\"retrying\"} 3
tidewheel_jobs{state=\"dead\"} 17
tidewheel_scheduling_lag_seconds_count{tenant=\"acme\"} 5000
tidewheel_scheduling_lag_seconds_count{tenant=\"default\"} 1000
tidewheel_queue_depth{queue=\"mail\"} 1250
tidewheel_queue_oldest_age_seconds{queue=\"mail\"} 723.4
tidewheel_queue_workers{queue=\"mail\"} 2
tidewheel_queue_depth{queue=\"reports\"} 3
tidewheel_queue_oldest_age_seconds{queue=\"reports\"} 31
tidewheel_queue_workers{queue=\"reports\"} 0
";

fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn worker(name: &str, queue: &str) -> serde_json::Value {
    json!({"id": "wrk_1", "name": name, "queues": [queue], "connected": true, "draining": false,
        "last_heard_at": "2026-11-15T04:18:20.000Z", "credits": 8, "in_flight": 4})
}

fn busy() -> Answers {
    let history: Vec<_> = (0..100).map(|n| json!({"started": f64::from(n % 20) * 10.0})).collect();
    let counts = |scheduled: u64, dead: u64| {
        BTreeMap::from([
            ("scheduled".to_owned(), scheduled),
            ("running".to_owned(), 21),
            ("dead".to_owned(), dead),
        ])
    };
    Answers {
        url: "http://127.0.0.1:7400".to_owned(),
        own: "default".to_owned(),
        overview: read(json!({
            "now": "2026-11-15T04:18:22.028Z",
            "jobs": {"scheduled": 17, "running": 0, "retrying": 3, "dead": 0},
            "lag": {"window": "5m", "count": 35940, "p50_ms": 1.2, "p95_ms": 14.0, "p99_ms": 1250.5, "p999_ms": 61000.0},
            "rates": {"window": "1m", "submitted": 1250.4, "started": 119.83, "succeeded": 98.5, "failed": 0.25},
            "memory": {"held": 16384, "in_flight": 42, "leases": 42},
            "backlog_age_ms": 1500,
            "lanes": [
                {"kind": "queue", "name": "reports", "depth": 3, "more": false,
                    "oldest_at": "2026-11-15T04:17:51.028Z", "waits_for": "no_worker"},
                {"kind": "push", "name": "https://hooks.example.com", "depth": 12, "more": true,
                    "oldest_at": "2026-11-15T04:18:20.028Z", "waits_for": null},
            ],
            "history": history,
        })),
        cluster: read(json!({"store": "embedded", "shards": 64, "nodes": [
            {"id": "local", "version": "0.1.0", "state": "serving", "shards": 64, "lag_ms": 1500,
                "leases": [{"first_shard": 0, "last_shard": 63, "epoch": 3}]},
        ]})),
        workers: read(
            json!({"items": [worker("mailer-1", "mail"), worker("mailer-2", "mail")], "next_cursor": null}),
        ),
        tenants: read(json!({"items": [{"id": "acme", "weight": 3}, {"id": "default", "weight": 1}]})),
        metrics: Metrics::read(METRICS),
        counts: BTreeMap::from([
            ("acme".to_owned(), counts(1_234_550, 17)),
            ("tiny".to_owned(), counts(0, 0)),
        ]),
        uncounted: 0,
        absent: Vec::new(),
    }
}

fn frame(answers: Answers) -> Frame {
    let starts = |at_ms, acme| Starts {
        at_ms,
        by_tenant: BTreeMap::from([("acme".to_owned(), acme)]),
        of_others: false,
    };
    answers.into_frame(Some(&starts(0, 4_760)), &starts(2_000, 5_000))
}

fn drawn(frame: &Frame, columns: usize, rows: usize) -> String {
    let lines = look(frame, Size { columns, rows });
    assert!(lines.len() <= rows, "{} lines", lines.len());
    let lines: Vec<String> = lines.iter().map(|line| line.plain().trim_end().to_owned()).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= columns));
    lines.join("\n")
}

#[test]
fn a_busy_server_at_80_by_24() {
    insta::assert_snapshot!("top_80x24", drawn(&frame(busy()), 80, 23));
}

#[test]
fn a_wide_terminal_shows_every_column_and_row() {
    insta::assert_snapshot!("top_140", drawn(&frame(busy()), 140, usize::MAX));
}

#[test]
fn a_key_that_sees_little_is_told_what_is_missing() {
    let answers = Answers {
        own: "acme".to_owned(),
        metrics: Metrics::default(),
        counts: BTreeMap::new(),
        absent: vec!["other tenants and their queues (admin)"],
        ..busy()
    };
    insta::assert_snapshot!("top_viewer", drawn(&frame(answers), 80, 23));
}

#[test]
fn a_server_that_just_started_has_dashes() {
    let answers = Answers { url: "http://a".to_owned(), own: "default".to_owned(), ..Answers::default() };
    insta::assert_snapshot!("top_new", drawn(&frame(answers), 80, 23));
}

#[test]
fn a_hostile_name_cannot_steer_the_terminal() {
    let hostile = "a\u{1b}[2J\rb";
    let mut answers = busy();
    answers.own = hostile.to_owned();
    answers.cluster.nodes.iter_mut().for_each(|node| node.id = hostile.to_owned());
    answers.workers.items.iter_mut().for_each(|worker| worker.name = hostile.to_owned());
    answers.overview.lanes.iter_mut().for_each(|lane| lane.name = hostile.to_owned());
    let text = drawn(&frame(answers), 80, 50);
    assert!(text.contains("a\u{fffd}[2J\u{fffd}b") && !text.contains(['\u{1b}', '\r']), "{text}");
}

#[test]
fn a_queue_of_another_tenant_without_a_worker_says_so() {
    let mut answers = busy();
    answers.overview.lanes.clear();
    let frame = frame(answers);
    let lanes: Vec<_> =
        frame.lanes.iter().map(|lane| (lane.name.as_str(), lane.waits_for.as_deref())).collect();
    assert_eq!(lanes, [("mail", None), ("reports", Some("no_worker"))]);
}

#[test]
fn an_empty_queue_without_a_worker_waits_for_nothing() {
    let metrics = "tidewheel_queue_depth{queue=\"a\"} 0\ntidewheel_queue_workers{queue=\"a\"} 1\n\
                   tidewheel_queue_depth{queue=\"b\"} 0\ntidewheel_queue_workers{queue=\"b\"} 0\n";
    let frame = frame(Answers { metrics: Metrics::read(metrics), ..Answers::default() });
    let lanes: Vec<_> =
        frame.lanes.iter().map(|lane| (lane.name.as_str(), lane.waits_for.as_deref())).collect();
    assert_eq!(lanes, [("a", None)]);
}

#[test]
fn more_tenants_than_the_server_names_are_told_of() {
    let with = |named: usize, waiting: u64| {
        let backlogs: Vec<_> = (0..named).map(|n| json!({"id": format!("t{n}"), "waiting": 1})).collect();
        let count = BTreeMap::from([("scheduled".to_owned(), 1)]);
        frame(Answers {
            own: "t0".to_owned(),
            overview: read(json!({"jobs": {"scheduled": 1}, "tenants": backlogs})),
            metrics: Metrics::read(&format!("tidewheel_jobs{{state=\"scheduled\"}} {waiting}\n")),
            counts: (1..named).map(|n| (format!("t{n}"), count.clone())).collect(),
            ..Answers::default()
        })
    };
    let cut = with(20, 21);
    assert!(
        cut.tenants_more && drawn(&cut, 80, 50).contains("TENANT (20 of 20+)"),
        "{}",
        drawn(&cut, 80, 50)
    );
    let whole = with(20, 20);
    assert!(!whole.tenants_more && !drawn(&whole, 80, 50).contains("TENANT ("));
    assert!(!with(19, 21).tenants_more, "the numbers of all are only a moment old");
}

#[test]
fn a_rate_that_is_not_counted_by_itself_is_not_told() {
    let starts = |at_ms, acme| Starts {
        at_ms,
        by_tenant: BTreeMap::from([("acme".to_owned(), acme)]),
        of_others: true,
    };
    let frame = busy().into_frame(Some(&starts(0, 4_760)), &starts(2_000, 5_000));
    let told: Vec<_> =
        frame.tenants.iter().map(|row| (row.name.as_str(), row.started_per_s.is_some())).collect();
    assert_eq!(told, [("acme", true), ("tiny", false), ("default", false)]);
}

#[test]
fn every_size_fits() {
    let frame = frame(busy());
    for columns in [1, 10, 20, 40, 79, 80, 81, 200] {
        for rows in [1, 5, 10, 15, 24, 50] {
            drawn(&frame, columns, rows);
        }
    }
}

#[test]
fn ages_and_rates_read_well() {
    assert_eq!([999, 61_500, 3_723_000, 100_000_000].map(age), ["999ms", "1m1s", "1h2m", "1d3h"]);
    assert_eq!([1.25, 14.0, 1_250.5, 61_000.0].map(millis), ["1.2ms", "14ms", "1.3s", "1.0m"]);
    assert_eq!([0.0, 99.96, 1_250.4].map(per_second), ["0.0", "100.0", "1,250"]);
}
