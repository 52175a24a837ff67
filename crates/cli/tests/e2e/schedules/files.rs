//! Files of schedules and crontabs from outside: planned, applied, exported and imported against a real server.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::Server;

const FILE: &str = r#"
schedules:
  - name: morning-report
    cron_expr: "0 9 * * MON-FRI"
    timezone: America/New_York
    target: {url: "http://127.0.0.1:9/hook", method: put, headers: {X-Team: ops}}
    payload: {team: "no", n: [1, 2.5, null], "": " "}
    labels: {team: ops}
    retry: {base: 5s}
    exclude: {dates: ["2027-01-01", "2026-12-25"], roll: next_business_day}
    note: |
      two
      lines
  - {name: often, every: 90, queue: q, overlap: skip, misfire: fire_all, misfire_cap: 3, window: PT30S, type: probe}
  - {name: paused, cron_expr: "@daily", paused: true, dst: {gap: skip}, max_attempts: 1, timeout: 5m, priority: low}
  - {name: plain, cron_expr: "*/5 * * * *", start_at: 2026-01-01T01:00:00+01:00, end_at: "2036-01-01T00:00:00Z", idempotency_key: k}
"#;

fn write(data: &TempDir, name: &str, text: &str) -> String {
    let path = data.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn cli_json(server: &Server, args: &[&str]) -> Value {
    let output = server.cli(&[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_file_applies_once_and_what_is_exported_applies_to_nothing() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let file = write(&files, "schedules.yaml", FILE);
    let plan = cli_json(&server, &["schedule", "plan", &file]);
    assert_eq!(plan["create"].as_array().unwrap().len(), 4, "{plan:#}");
    assert_eq!(plan["create"][1]["next_after"].as_array().unwrap().len(), 3, "{plan:#}");
    let applied = cli_json(&server, &["schedule", "apply", &file]);
    assert_eq!(applied["created"].as_array().unwrap().len(), 4, "{applied:#}");
    let again = cli_json(&server, &["schedule", "apply", &file]);
    assert_eq!((&again["unchanged"], &again["changed"]), (&json!(4), &json!([])), "{again:#}");

    for format in ["table", "json"] {
        let exported = server.cli(&["schedule", "export", "-o", format]);
        assert!(exported.status.success(), "{exported:?}");
        let file = write(&files, format, std::str::from_utf8(&exported.stdout).unwrap());
        let plan = cli_json(&server, &["schedule", "plan", &file, "--prune"]);
        assert_eq!(plan["unchanged"].as_array().unwrap().len(), 4, "{plan:#}");
        // The same file makes the same schedules elsewhere.
        let elsewhere = TempDir::new().unwrap();
        let other = Server::start(elsewhere.path());
        cli_json(&other, &["schedule", "apply", &file]);
        assert_eq!(other.cli(&["schedule", "export", "-o", format]).stdout, exported.stdout);
    }

    let id = server.get("/v1/schedules?name=morning-report")["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.post(&format!("/v1/schedules/{id}/pause"), &json!({})).status, 200);
    let changed =
        FILE.replace("0 9 * * MON-FRI", "0 10 * * MON-FRI").replace("  - {name: often", "  - {name: oftener");
    let file = write(&files, "changed.yaml", &changed);
    let plan = cli_json(&server, &["schedule", "plan", &file, "--prune"]);
    assert_eq!(plan["create"][0]["name"], "oftener");
    assert_eq!(plan["delete"][0]["name"], "often");
    let change = &plan["change"][0];
    assert_eq!(change["changes"].as_array().unwrap().len(), 1, "{plan:#}");
    assert_eq!(change["changes"][0]["field"], "cron_expr");
    let applied = cli_json(&server, &["schedule", "apply", &file, "--prune", "--yes"]);
    assert_eq!(applied["deleted"][0]["name"], "often", "{applied:#}");
    let shown = server.get(&format!("/v1/schedules/{id}"));
    assert_eq!((&shown["cron_expr"], &shown["state"]), (&json!("0 10 * * MON-FRI"), &json!("paused")));
}

/// What a schedule may not say beside its interval, and the field to blame.
const WRONG: [(&str, &str); 16] = [
    ("paused", r#""paused": "yes""#),
    ("allow_overlap", r#""allow_overlap": 1"#),
    ("timezone", r#""timezone": 5"#),
    ("exclude", r#""exclude": true"#),
    ("labels.team", r#""labels": {"team": 5}"#),
    ("max_attempts", r#""max_attempts": "3""#),
    ("note", r#""note": 7"#),
    ("priority", r#""priority": "urgent""#),
    ("misfire", r#""misfire": "all""#),
    ("misfire_cap", r#""misfire_cap": 3"#),
    ("misfire_grace", r#""misfire_grace": "soon""#),
    ("overlap", r#""overlap": "never""#),
    ("retry.base", r#""retry": {"base": "soon"}"#),
    ("timeout", r#""timeout": "never""#),
    ("type", r#""type": "a b""#),
    ("target_url", r#""target_url": "ftp://example.com/""#),
];

#[test]
fn a_file_with_a_fault_is_refused_as_a_whole_in_the_words_of_the_server() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let mut items = vec![r#"{"name": "good", "every": "5m"}"#.to_owned()];
    let mut told = Vec::new();
    for (field, said) in WRONG {
        let name = format!("wrong-{}", field.replace('.', "-"));
        let path = format!("/v1/schedules/by-name/{name}");
        let answer = server.request("PUT", &path, &format!(r#"{{"every": "5m", {said}}}"#));
        assert_eq!(answer.status, 422, "{said}: {}", answer.text());
        let detail = answer.json()["errors"][0]["detail"].as_str().unwrap().to_owned();
        told.push(format!("{name}: {field}: {detail}"));
        items.push(format!(r#"{{"name": "{name}", "every": "5m", {said}}}"#));
    }
    let file = write(&files, "wrong.json", &format!(r#"{{"schedules": [{}]}}"#, items.join(", ")));
    for verb in ["plan", "apply"] {
        let output = server.cli(&["schedule", verb, &file]);
        assert_eq!(output.status.code(), Some(1), "{verb}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        for fault in &told {
            assert!(stderr.contains(fault), "{verb}: {fault:?} is not in:\n{stderr}");
        }
    }
    assert_eq!(server.get("/v1/schedules")["items"], json!([]), "nothing was created");
}

#[test]
fn a_plan_tells_what_the_minimum_interval_of_the_server_does_not_allow() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let text = "schedules:\n  - {name: fine, every: 5m}\n  - {name: too-often, every: 2s}\n";
    let file = write(&files, "often.yaml", text);
    for verb in ["plan", "apply"] {
        let output = server.cli(&["schedule", verb, &file]);
        assert!(!output.status.success(), "{verb}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains("too-often") && stderr.contains("2s; it must be from 1m"),
            "{verb}: {stderr}"
        );
    }
    assert_eq!(server.get("/v1/schedules")["items"], json!([]), "nothing was created");
}

#[test]
fn a_plan_says_when_a_changed_interval_fires() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let file = |every: &str| {
        write(&files, "every.yaml", &format!("schedules:\n  - {{name: n, every: {every}, queue: q}}\n"))
    };
    cli_json(&server, &["schedule", "apply", &file("6h")]);
    let plan = cli_json(&server, &["schedule", "plan", &file("10h")]);
    cli_json(&server, &["schedule", "apply", &file("10h")]);
    let schedule = &server.get("/v1/schedules?name=n")["items"][0];
    assert_eq!(plan["change"][0]["next_after"][0], schedule["next_fire_at"], "{plan:#}");
}

/// Registers what holds for jobs of two types.
fn register(server: &Server, priority: &str) {
    let mail = json!({"queue": "mail", "priority": priority, "timeout": "5m",
        "retry": {"policy": "fixed", "base": "2h", "max_attempts": 3}});
    let hook = json!({"target_url": "http://127.0.0.1:9/hook"});
    for (kind, defaults) in [("mail", mail), ("hook", hook)] {
        let body = json!({ "defaults": defaults }).to_string();
        let answer = server.request("PUT", &format!("/v1/types/{kind}"), &body);
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    }
}

const TYPED: &str = r#"
schedules:
  - {name: mail, every: 1h}
  - {name: attempts, every: 1h, type: mail, max_attempts: 9}
  - {name: own, every: 1h, type: mail, queue: default, priority: normal, timeout: 30s, retry: {max_attempts: 5}}
  - {name: pushed, every: 1h, type: hook}
  - {name: pulled, every: 1h, type: hook, queue: default}
  - {name: slow, every: 1h, queue: q, retry: {base: 90m}}
  - {name: slower, every: PT1H, queue: q, retry: {base: 7200, max: 3h}, timeout: 0.5m, misfire: fire_all, misfire_cap: 25}
"#;
const TYPED_COUNT: usize = 7;

fn names(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect()
}

#[test]
fn a_file_applies_once_whatever_is_registered_for_its_types() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    register(&server, "low");
    let file = write(&files, "typed.yaml", TYPED);
    let applied = cli_json(&server, &["schedule", "apply", &file]);
    assert_eq!(names(&applied["created"]).len(), TYPED_COUNT, "{applied:#}");
    let shown = &server.get("/v1/schedules?name=mail")["items"][0];
    assert_eq!((&shown["queue"], &shown["priority"]), (&json!("mail"), &json!("low")), "{shown:#}");

    let nothing = |plan: &Value| {
        for steps in ["create", "change", "delete"] {
            assert_eq!(plan[steps], json!([]), "{plan:#}");
        }
        assert_eq!(plan["unchanged"].as_array().unwrap().len(), TYPED_COUNT, "{plan:#}");
    };
    nothing(&cli_json(&server, &["schedule", "plan", &file, "--prune"]));
    let again = cli_json(&server, &["schedule", "apply", &file]);
    assert_eq!((&again["unchanged"], &again["changed"]), (&json!(TYPED_COUNT), &json!([])), "{again:#}");

    let exported = server.cli(&["schedule", "export"]);
    assert!(exported.status.success(), "{exported:?}");
    let export = write(&files, "exported.yaml", std::str::from_utf8(&exported.stdout).unwrap());
    nothing(&cli_json(&server, &["schedule", "plan", &export, "--prune"]));
    let elsewhere = TempDir::new().unwrap();
    let other = Server::start(elsewhere.path());
    register(&other, "low");
    cli_json(&other, &["schedule", "apply", &export]);
    assert_eq!(other.cli(&["schedule", "export"]).stdout, exported.stdout);
    let capped = &other.get("/v1/schedules?name=slower")["items"][0];
    assert_eq!((&capped["misfire"], &capped["misfire_cap"]), (&json!("fire_all"), &json!(25)), "{capped:#}");

    // What is registered now is what a file that does not say means now.
    register(&server, "high");
    let plan = cli_json(&server, &["schedule", "plan", &file]);
    assert_eq!(names(&plan["change"]), ["mail", "attempts"], "{plan:#}");
    let change = json!([{"field": "priority", "before": "low", "after": "high"}]);
    assert_eq!(plan["change"][0]["changes"], change, "{plan:#}");
    cli_json(&server, &["schedule", "apply", &file]);
    nothing(&cli_json(&server, &["schedule", "plan", &file]));
}

#[test]
fn a_plan_says_that_a_paused_schedule_does_not_fire() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let file = |fields: &str| {
        write(&files, "pause.yaml", &format!("schedules:\n  - {{name: n, queue: q, {fields}}}\n"))
    };
    let fires = |plan: &Value, steps: &str, when: &str| plan[steps][0][when].as_array().unwrap().len();
    let plan = cli_json(&server, &["schedule", "plan", &file("every: 6h, paused: true")]);
    assert_eq!(fires(&plan, "create", "next_after"), 0, "{plan:#}");
    cli_json(&server, &["schedule", "apply", &file("every: 6h")]);
    let plan = cli_json(&server, &["schedule", "plan", &file("every: 6h, paused: true")]);
    assert_eq!(
        (fires(&plan, "change", "next_before"), fires(&plan, "change", "next_after")),
        (3, 0),
        "{plan:#}"
    );
    cli_json(&server, &["schedule", "apply", &file("every: 6h, paused: true")]);
    let plan = cli_json(&server, &["schedule", "plan", &file("every: 10h")]);
    assert_eq!(
        (fires(&plan, "change", "next_before"), fires(&plan, "change", "next_after")),
        (0, 0),
        "{plan:#}"
    );
    let go_on = file("every: 6h, paused: false");
    let plan = cli_json(&server, &["schedule", "plan", &go_on]);
    assert_eq!(
        (fires(&plan, "change", "next_before"), fires(&plan, "change", "next_after")),
        (0, 3),
        "{plan:#}"
    );
    cli_json(&server, &["schedule", "apply", &go_on]);
    let schedule = &server.get("/v1/schedules?name=n")["items"][0];
    assert_eq!(plan["change"][0]["next_after"][0], schedule["next_fire_at"], "{plan:#}");
}

#[test]
fn a_crontab_is_imported_and_its_jobs_reach_a_worker() {
    let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let crontab = "SHELL=/bin/bash\n@reboot start\nCRON_TZ=Europe/Berlin\n30 2 * * * backup \"$(date +\\%F)\"\n@hourly tick\n";
    let file = write(&files, "crontab", crontab);
    let import = || {
        let output = server.cli(&["import", "crontab", &file, "-o", "json"]);
        assert_eq!(output.status.code(), Some(1), "@reboot is lost: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let first = import();
    assert_eq!(first["not_carried_over"].as_array().unwrap().len(), 1, "{first:#}");
    assert_eq!(first["not_carried_over"][0]["line"], 2);
    let schedules = first["schedules"].as_array().unwrap();
    assert_eq!(schedules.len(), 2);
    assert!(schedules.iter().all(|s| s["action"] == "created" && s["next_fire_at"].is_string()), "{first:#}");
    let second = import();
    assert!(second["schedules"].as_array().unwrap().iter().all(|s| s["action"] == "unchanged"), "{second:#}");
    let name = schedules[0]["name"].as_str().unwrap();
    let id = server.get(&format!("/v1/schedules?name={name}"))["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.post(&format!("/v1/schedules/{id}/trigger"), &json!({})).status, 201);
    let taken = server.post("/v1/queues/commands/take", &json!({"worker": "w", "wait": "20s"})).json();
    let job = &taken["jobs"][0];
    assert_eq!((&job["type"], &job["timeout"]), (&json!("command"), &json!("1d")), "{taken:#}");
    assert_eq!(job["payload"], json!({"command": "backup \"$(date +%F)\"", "env": {"SHELL": "/bin/bash"}}));
}
