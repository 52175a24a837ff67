//! The page and what it says of itself in `docs/metrics.md`.

use std::collections::{BTreeMap, BTreeSet};

use tidewheel_core::names::Tenant;

use super::names::{QUEUES_NAMED_COUNT_MAX, TENANTS_NAMED_COUNT_MAX};
use tidewheel_store::{Counts, Database};

use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn lags_of(names: impl Iterator<Item = String>) -> Lags {
    let mut lags = Lags::default();
    lags.by_tenant.extend(names.map(|name| (tenant(&name), vec![1_500])));
    lags
}

fn full() -> Metrics {
    let metrics = Metrics::new()
        .measuring_disk(|| Some(DiskSpace { free_bytes: 1, size_bytes: 2 }))
        .serving_tls(&TlsMetrics::default());
    metrics.started(&lags_of(std::iter::once("default".to_owned())));
    metrics.set_backlog(&Counts::default());
    let health = tidewheel_store::Health::Ready;
    metrics.set_databases(&[Database { index: 0, shards: Vec::new(), is_reachable: true, health }]);
    metrics.set_ready(0, 0);
    metrics.set_oldest_ready(0, 0);
    metrics.set_queues(&BTreeMap::from([("default", QueueLevel::default())]));
    metrics
}

/// Name as it is queried, label if there is one, and type.
type Described = BTreeSet<(String, Option<String>, String)>;

fn rendered(text: &str) -> Described {
    let mut found = Described::new();
    for (name, kind) in
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| line.split_once(' ').unwrap())
    {
        let name = match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        };
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.clone() };
        let line = text.lines().find(|line| {
            line.strip_prefix(&*sample).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("{name} has no sample"));
        let label = line.split_once('{').map(|(_, rest)| rest.split('=').next().unwrap().to_owned());
        found.insert((name, label, kind.to_owned()));
    }
    found
}

fn documented(page: &str) -> Described {
    let mut found = Described::new();
    for row in page.lines().filter(|line| line.starts_with("| `tidewheel_")) {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().unwrap().trim_matches('`');
        let kind = cells.next().unwrap().to_owned();
        let (name, label) = match name.split_once('{') {
            Some((name, label)) => (name, Some(label.trim_end_matches('}').to_owned())),
            None => (name, None),
        };
        assert!(found.insert((name.to_owned(), label, kind)), "{name} is there twice");
    }
    found
}

#[test]
fn the_page_on_metrics_names_each_with_its_type_and_label() {
    let page = include_str!("../../../../docs/metrics.md");
    assert_eq!(rendered(&full().render()), documented(page));
}

#[test]
fn names_of_tenants_and_queues_are_bounded() {
    let metrics = Metrics::new();
    metrics.started(&lags_of((0..TENANTS_NAMED_COUNT_MAX + 7).map(|n| format!("t{n}"))));
    let names: Vec<String> = (0..QUEUES_NAMED_COUNT_MAX + 7).map(|n| format!("q{n:03}")).collect();
    let level = QueueLevel { depth: 3, more: true, oldest_age_ms: 2_000, workers: 1 };
    metrics.set_queues(&names.iter().map(|name| (name.as_str(), level)).collect());
    let text = metrics.render();
    let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
    assert_eq!(count("tidewheel_scheduling_lag_seconds_count{"), TENANTS_NAMED_COUNT_MAX + 1);
    assert!(text.contains("tidewheel_scheduling_lag_seconds_count{tenant=\"(other)\"} 7\n"));
    assert_eq!(count("tidewheel_queue_depth{"), QUEUES_NAMED_COUNT_MAX + 1);
    assert!(text.contains("tidewheel_queue_depth{queue=\"(other)\"} 21\n"));
    assert!(text.contains("tidewheel_queue_oldest_age_seconds{queue=\"(other)\"} 2.0\n"));
}

#[test]
fn a_queue_that_is_gone_goes_to_zero() {
    let metrics = Metrics::new();
    let level = QueueLevel { depth: 3, more: true, oldest_age_ms: 2_000, workers: 1 };
    metrics.set_queues(&BTreeMap::from([("mail", level)]));
    assert!(metrics.render().contains("tidewheel_queue_workers{queue=\"mail\"} 1\n"));
    metrics.set_queues(&BTreeMap::new());
    let text = metrics.render();
    for gauge in
        ["depth{queue=\"mail\"} 0\n", "more{queue=\"mail\"} 0\n", "oldest_age_seconds{queue=\"mail\"} 0.0\n"]
    {
        assert!(text.contains(&format!("tidewheel_queue_{gauge}")), "{text}");
    }
}

#[test]
fn requests_are_told_apart_by_what_they_are_for() {
    use http::Method;
    for (method, pattern, call) in [
        (Method::POST, "/v1/jobs", Call::Submit),
        (Method::POST, "/api/v1/jobs/batch", Call::Submit),
        (Method::POST, "/v1/schedules/batch", Call::Change),
        (Method::GET, "/v1/jobs", Call::Read),
        (Method::POST, "/v1/queues/{queue}/take", Call::Take),
        (Method::POST, "/v1/jobs/{id}/outcome", Call::Report),
        (Method::POST, "/v1/jobs/{id}/cancel", Call::Change),
        (Method::GET, "", Call::Read),
    ] {
        assert_eq!(Call::of(&method, pattern), call, "{method} {pattern}");
    }
}

#[test]
fn every_histogram_tells_a_millisecond_from_five_minutes() {
    let text = full().render();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram"));
    let mut count = 0;
    for name in names {
        for bound in ["0.001", "300.0"] {
            let is_bucket = |line: &str| {
                line.starts_with(&format!("{name}_bucket{{")) && line.contains(&format!("le=\"{bound}\""))
            };
            assert!(text.lines().any(is_bucket), "{name} has no bucket {bound}");
        }
        count += 1;
    }
    assert_eq!(count, 4, "{text}");
}
