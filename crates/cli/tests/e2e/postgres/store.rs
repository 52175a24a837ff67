//! A server on PostgreSQL, from outside: kill -9 of the server and of the database lose nothing, and what the database
//! does not take is refused in a way that a client can repeat.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::postgres::Postgres;
use crate::harness::target::Target;
use crate::harness::{Answer, Server, TIDEWHEEL, instant, request, until};

fn start(postgres: &Postgres, data: &TempDir) -> Server {
    Server::start_with(data.path(), &["--store", &postgres.url()])
}

fn job(target: &Target, number: usize, delay_ms: i64) -> Value {
    json!({
        "type": "t", "target_url": target.url("/"), "run_at": instant(delay_ms), "payload": {"n": number},
        "idempotency_key": format!("key-{number}"),
    })
}

/// Submits until the server takes it, as a careful client does; gives the id.
fn insist(server: &Server, body: &Value, refused: &mut Vec<Answer>) -> String {
    until("a submission to be taken", || {
        let answer = request(server.address, "POST", "/v1/jobs", &[], body.to_string().as_bytes()).ok()?;
        if answer.status < 300 {
            return Some(answer.json()["id"].as_str().unwrap().to_owned());
        }
        refused.push(answer);
        None
    })
}

fn runs_of(target: &Target) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for hit in target.hits() {
        *runs.entry(hit.header("tidewheel-job-id").to_owned()).or_default() += 1;
    }
    runs
}

#[test]
fn a_killed_server_loses_nothing() {
    let (postgres, data, target) = (Postgres::start(), TempDir::new().unwrap(), Target::ok());
    let mut ids = Vec::new();
    for round in 0..3 {
        let server = start(&postgres, &data);
        for number in 0..40 {
            let body = job(&target, round * 40 + number, [0, 20, 300, 1_500][number % 4]);
            ids.push(insist(&server, &body, &mut Vec::new()));
        }
        let seen = target.count();
        until("some work to be done", || (target.count() >= seen.min(20)).then_some(()));
        server.kill();
    }
    let server = start(&postgres, &data);
    for id in &ids {
        server.until_state(id, "succeeded");
    }
    let runs = runs_of(&target);
    assert!(ids.iter().all(|id| runs.contains_key(id)));
    assert_eq!(server.get("/v1/cluster")["store"], "postgres");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log:#?}");
}

#[test]
fn a_database_that_crashes_is_ridden_out() {
    let (postgres, data, target) = (Postgres::start(), TempDir::new().unwrap(), Target::ok());
    let server = start(&postgres, &data);
    let mut ids = Vec::new();
    for number in 0..30 {
        ids.push(insist(&server, &job(&target, number, [0, 2_000][number % 2]), &mut Vec::new()));
    }
    postgres.crash();
    let refused = until("a submission to be refused", || {
        let body = job(&target, 1_000, 0).to_string();
        let answer = request(server.address, "POST", "/v1/jobs", &[], body.as_bytes()).ok()?;
        (answer.status == 503).then_some(answer)
    });
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    let ready = |wanted: u16| {
        until("readiness", || {
            let answer = request(server.address, "GET", "/readyz", &[], b"").ok()?;
            (answer.status == wanted).then_some(())
        });
    };
    ready(503);
    postgres.begin();
    ready(200);
    for number in 30..60 {
        ids.push(insist(&server, &job(&target, number, 0), &mut Vec::new()));
    }
    for id in &ids {
        server.until_state(id, "succeeded");
    }
}

#[test]
fn a_schema_of_another_program_is_refused() {
    let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
    let migrate = |flags: &[&str]| {
        let output = Command::new(TIDEWHEEL)
            .args(["migrate", "--store", &postgres.url()])
            .args(flags)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = migrate(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("had schema 0, and has 5 now"), "{said}");
    assert!(migrate(&[]).1.contains("has schema 5 already"));
    postgres.ask("INSERT INTO tidewheel.migrations (number, name) VALUES (99, 'of a newer program')");
    let serve = || {
        Command::new(TIDEWHEEL)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &postgres.url(), "--data"])
            .arg(data.path())
            .output()
            .unwrap()
    };
    let refused = serve();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("has schema 99") && said.contains("newer"), "{said}");
    assert!(migrate(&[]).1.contains("has schema 99"));
    postgres.ask("UPDATE tidewheel.migrations SET number = 0 WHERE number = 4");
    postgres.ask("DELETE FROM tidewheel.migrations WHERE number = 99");
    postgres.ask("DROP SCHEMA tidewheel CASCADE");
    assert_eq!(migrate(&["--to", "1"]).0, Some(0));
    assert_eq!(migrate(&["--to", "0"]).0, Some(0));
    assert_eq!(postgres.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'tidewheel'"), "0");
}

#[test]
fn a_call_for_many_is_taken_under_any_key() {
    let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
    let server = start(&postgres, &data);
    let waiting = json!({"type": "t", "queue": "q", "delay": "1h"});
    let ids: Vec<String> = (0..2).map(|_| server.submit(&waiting)).collect();
    let body = json!({"ids": ids}).to_string();
    for key in ["many", "k".repeat(255).as_str()] {
        let headers = [("idempotency-key", key)];
        let answer = request(server.address, "POST", "/v1/jobs/cancel", &headers, body.as_bytes()).unwrap();
        assert_eq!((answer.status, &answer.json()["count"]), (200, &json!(2)), "{}", answer.text());
    }
}
