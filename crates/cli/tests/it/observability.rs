//! The alerts, the dashboard and the pages that describe them agree with each other and with what is counted; the compose
//! file is sound.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything in a text that looks like one of our metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("tidewheel_"));
    words.map(str::to_owned).collect()
}

fn documented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let page = read("docs/metrics.md");
    for row in page.lines().filter(|line| line.starts_with("| `tidewheel_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').split('{').next().unwrap();
        if cells[2] == "histogram" {
            names.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        } else {
            names.insert(name.to_owned());
        }
    }
    names
}

fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read("deploy/prometheus/alerts.yaml")).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn alerts() -> Vec<Value> {
    rules().into_iter().filter(|rule| rule["alert"].is_string()).collect()
}

#[test]
fn alerts_name_only_metrics_that_exist() {
    let known = documented();
    assert!(known.len() > 30);
    for rule in rules() {
        let expr = rule["expr"].as_str().unwrap();
        for name in metrics_in(expr) {
            assert!(known.contains(&name), "{name}, in {rule}");
        }
    }
}

#[test]
fn every_alert_has_a_severity_a_summary_and_a_section_in_the_runbook() {
    let runbook = read("docs/runbook.md");
    let sections: BTreeSet<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = alerts();
    let mut named = BTreeSet::new();
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(sections.contains(name), "the runbook has no section on {name}");
        let link = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], link.as_str());
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
        assert!(["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(named.insert(name), "{name} is there twice");
    }
    assert_eq!(named, sections, "sections on alerts that are no more");
}

#[test]
fn every_alert_is_seen_to_fire_in_a_test() {
    let tests = read("deploy/prometheus/alerts_test.yaml");
    for alert in alerts() {
        let expected = format!("{{alertname={}}}", alert["alert"]);
        assert!(tests.contains(&expected), "no test expects {expected}");
    }
}

#[test]
fn every_alert_is_provoked_on_a_real_server() {
    let live = read("deploy/prometheus/live_test.py") + &read("deploy/prometheus/live_trouble_test.py");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(live.contains(&format!("\"{name}\"")), "nothing provokes {name}");
    }
}

#[test]
fn the_dashboard_can_be_narrowed_to_a_tenant() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/tidewheel.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let tenant = variables.iter().find(|variable| variable["name"] == "tenant").unwrap();
    assert!(tenant["query"].to_string().contains(", tenant)"), "{tenant}");
    // Whatever is counted by tenant is shown of the chosen ones.
    let by_tenant: BTreeSet<String> = read("docs/metrics.md")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once("{tenant}")?.0.to_owned()))
        .collect();
    assert!(!by_tenant.is_empty());
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut narrowed = 0;
    for expr in targets.map(|target| target["expr"].as_str().unwrap()) {
        for name in by_tenant.iter().filter(|name| expr.contains(name.as_str())) {
            let uses = expr.matches(name.as_str()).count();
            assert_eq!(expr.matches("tenant=~\"$tenant\"").count(), uses, "{expr}");
            narrowed += 1;
        }
    }
    assert!(narrowed > 5);
}

#[test]
fn the_dashboard_shows_only_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/tidewheel.json")).unwrap();
    let known = documented();
    let mut ids = BTreeSet::new();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id: {panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let names = metrics_in(target["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{target}");
            for name in names {
                assert!(known.contains(&name), "{name}, in {target}");
            }
            queries += 1;
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        for name in metrics_in(&variable["query"].to_string()) {
            assert!(known.contains(&name), "{name}, in {variable}");
        }
    }
    assert!(queries > 10);
}

#[test]
fn the_compose_file_runs_three_nodes_after_migrating() {
    let file: Value = serde_saphyr::from_str(&read("deploy/compose/compose.yaml")).unwrap();
    let mut ports = BTreeSet::new();
    for node in ["node1", "node2", "node3"] {
        let node = &file["services"][node];
        assert_eq!(node["command"][0], "serve");
        assert_eq!(node["depends_on"]["migrate"]["condition"], "service_completed_successfully");
        assert_eq!(node["environment"], file["services"]["migrate"]["environment"]);
        assert!(ports.insert(node["ports"][0].as_str().unwrap().to_owned()));
        assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "only this machine may reach it");
    }
    assert_eq!(file["services"]["migrate"]["depends_on"]["postgres"]["condition"], "service_healthy");
}
