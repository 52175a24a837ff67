//! `tidewheel top` against a real server: on a real terminal, as text and as JSON.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, TIDEWHEEL, request, until};
use crate::pty::Terminal;

fn with_backlog(data: &TempDir) -> Server {
    let server = Server::start(data.path());
    for _ in 0..3 {
        server.submit(&json!({"type": "a", "queue": "reports"}));
    }
    server.submit(&json!({"type": "a", "delay": "1h"}));
    until("the queue to be seen", || {
        let overview = server.get("/v1/overview");
        (overview["lanes"][0]["depth"] == 3).then_some(())
    });
    server
}

#[test]
fn on_a_terminal_it_shows_the_backlog_and_leaves_it_as_it_was() {
    let data = TempDir::new().unwrap();
    let server = with_backlog(&data);
    for leave in [&b"q"[..], b"\x03"] {
        let mut command = Command::new(TIDEWHEEL);
        command.args(["top", "--interval", "200ms"]).env_clear();
        command.env("TIDEWHEEL_URL", server.url()).env("TERM", "xterm-256color");
        let mut terminal = Terminal::start(&mut command, 80, 24);
        until("the backlog to be drawn", || {
            // The last line is drawn last: what stands above it is whole.
            let text = terminal.text();
            text.contains("q leave").then_some(())?;
            // Numbers of all tenants follow a moment later than those of one.
            let mut rows = text.lines().filter(|line| line.starts_with("reports "));
            rows.any(|row| {
                let words: Vec<&str> = row.split_whitespace().collect();
                words.get(1) == Some(&"3") && words.last() == Some(&"no_worker")
            })
            .then_some(())
        });
        assert!(!terminal.is_as_it_was(), "it was taken, or keys would need Enter");
        assert!(terminal.text().lines().all(|line| line.chars().count() <= 80), "{}", terminal.text());
        // What was submitted meanwhile comes with one of the next looks.
        server.submit(&json!({"type": "a", "queue": "reports"}));
        let seen = terminal.raw().len();
        until("another look", || (terminal.raw().len() > seen + 1_000).then_some(()));
        terminal.press(leave);
        assert_eq!(terminal.end().code(), Some(0));
        assert!(terminal.is_as_it_was());
        until("the screen to be given back", || {
            let raw = terminal.raw();
            let (left, shown) = (raw.rfind("\u{1b}[?1049l")?, raw.rfind("\u{1b}[?25h")?);
            (left > raw.find("\u{1b}[?1049h")? && shown > raw.find("\u{1b}[?25l")?).then_some(())
        });
        // The next look of the next terminal finds three again.
        let jobs = server.get("/v1/jobs?queue=reports&limit=1");
        let id = jobs["items"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(server.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).status, 200);
        until("it to be gone", || (server.get("/v1/overview")["lanes"][0]["depth"] == 3).then_some(()));
    }
}

#[test]
fn without_a_terminal_one_look_is_printed_as_text_or_as_json() {
    let data = TempDir::new().unwrap();
    let server = with_backlog(&data);
    // Numbers of all tenants follow a moment later than those of one.
    until("the backlog to be told of", || {
        let look: Value = serde_json::from_slice(&server.cli(&["top", "-o", "json"]).stdout).unwrap();
        (look["lanes"][0]["due"] == 3 && look["tenants"][0]["jobs"]["scheduled"] == 4).then_some(())
    });
    let plain = server.cli(&["top"]);
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.status.success());
    assert!(text.starts_with("tidewheel top  http://") && !text.contains('\u{1b}'), "{text}");
    for part in ["TENANT", "default", "QUEUE OR TARGET", "reports", "no_worker", "NODE", "local", "serving"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let look: Value = serde_json::from_slice(&server.cli(&["top", "-o", "json"]).stdout).unwrap();
    assert_eq!((&look["lanes"][0]["name"], &look["lanes"][0]["due"]), (&json!("reports"), &json!(3)));
    assert_eq!(
        (&look["tenants"][0]["name"], &look["tenants"][0]["jobs"]["scheduled"]),
        (&json!("default"), &json!(4))
    );
    assert_eq!((&look["nodes"][0]["shards"], &look["not_shown"]), (&json!(64), &json!([])));
}

#[test]
fn a_tenant_whose_jobs_have_never_started_is_listed_with_what_waits_of_it() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let submit = |tenant: &str, job: Value, count: usize| {
        let jobs = json!(vec![job; count]).to_string();
        let headers = [("tidewheel-tenant", tenant)];
        let answer = request(server.address, "POST", "/v1/jobs/batch", &headers, jobs.as_bytes()).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    };
    submit("quiet", json!({"type": "a", "delay": "2h"}), 50);
    submit("small", json!({"type": "a", "queue": "nobody"}), 2);
    // Numbers of all tenants follow a moment later than those of one.
    let look: Value = until("the queue that nobody serves", || {
        let look: Value = serde_json::from_slice(&server.cli(&["top", "-o", "json"]).stdout).unwrap();
        (look["lanes"][0]["due"] == 2).then_some(look)
    });
    let tenants: Vec<_> = look["tenants"].as_array().unwrap().iter().collect();
    let rows = tenants.iter().map(|row| (row["name"].as_str().unwrap(), row["jobs"]["scheduled"].as_u64()));
    assert_eq!(rows.collect::<Vec<_>>(), [("quiet", Some(50)), ("small", Some(2)), ("default", Some(0))]);
    let lane = &look["lanes"][0];
    assert_eq!((&lane["name"], &lane["waits_for"]), (&json!("nobody"), &json!("no_worker")), "{lane}");
    let text = String::from_utf8(server.cli(&["top", "--once"]).stdout).unwrap();
    let words = |name: &str| {
        let row = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("quiet ").get(1).map(String::as_str), Some("50"), "{text}");
    assert_eq!(words("nobody ").last().map(String::as_str), Some("no_worker"), "{text}");
}

#[test]
fn what_a_key_may_not_see_is_named_and_one_that_sees_nothing_is_refused() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("admin.key");
    let server = Server::start_with(&data.path().join("data"), &["--admin-key-file", file.to_str().unwrap()]);
    let admin = std::fs::read_to_string(&file).unwrap();
    let as_key = |key: &str, args: &[&str]| {
        let mut command = Command::new(TIDEWHEEL);
        command.args(args).env_clear().env("TIDEWHEEL_URL", server.url()).env("TIDEWHEEL_KEY", key.trim());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let key_of = |role: &str| as_key(&admin, &["key", "create", "--role", role, "--tenant", "acme"]).1;
    let (code, text) = as_key(&admin, &["top", "--once"]);
    assert_eq!(code, Some(0));
    assert!(!text.contains("acme") && !text.contains("Not shown"), "{text}");
    let (code, text) = as_key(&key_of("viewer"), &["top", "--once"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("Not shown for lack of a role: other tenants and their queues (admin)"), "{text}");
    assert!(text.contains("of acme"), "{text}");
    assert_eq!(as_key(&key_of("worker"), &["top", "--once"]).0, Some(1));
    let (_, text) = as_key(&admin, &["top", "--once"]);
    assert!(text.contains("acme"), "a tenant with a key is known: {text}");
}
