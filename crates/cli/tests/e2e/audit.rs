//! The audit trail from outside: a real server, and `tidewheel audit`.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::Server;

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ran(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn what_was_done_is_listed_exported_and_checked() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let job = server.submit(&json!({"type": "t", "queue": "q", "delay": "1h"}));
    ran(&server.cli(&["job", "cancel", &job]));
    ran(&server.cli(&["tenant", "set", "acme", "--weight", "3"]));
    let table = ran(&server.cli(&["audit", "list"]));
    for word in ["jobs.cancel", "tenants.put", "anonymous", "127.0.0.1", "acme", "scheduled to cancelled"] {
        assert!(table.contains(word), "{word} is not in\n{table}");
    }
    let cancels = ran(&server.cli(&["audit", "list", "--action", "jobs.cancel", "-o", "json"]));
    let cancels: Value = serde_json::from_str(&cancels).unwrap();
    assert_eq!(cancels["items"].as_array().unwrap().len(), 1);
    assert_eq!(cancels["items"][0]["object"], job.as_str());

    let export = data.path().join("export.ndjson");
    let lines = ran(&server.cli(&["audit", "export"]));
    std::fs::write(&export, &lines).unwrap();
    let file = export.to_str().unwrap();
    assert!(ran(&server.cli(&["audit", "verify"])).contains("sound"));
    assert!(ran(&server.cli(&["audit", "verify", "--file", file])).contains("sound"));
    let json = ran(&server.cli(&["audit", "verify", "--file", file, "-o", "json"]));
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&told["sound"], &told["ends_checked"]), (&json!(true), &json!(true)), "{told}");
    let told: Value = serde_json::from_str(&ran(&server.cli(&["audit", "verify", "-o", "json"]))).unwrap();
    assert_eq!(told["sound"], true, "{told}");

    // What is taken from an end leaves no broken link behind.
    let all: Vec<&str> = lines.lines().collect();
    let records = all.len() - 1;
    let without = |index: usize| [&all[..index], &all[index + 1..]].concat().join("\n");
    for (cut, word) in [
        (without(0), "chain"),
        (without(records - 1), "chain"),
        (without(records), "no end line"),
        (all[records].to_owned(), "none of it"),
        (String::new(), "no end line"),
        (format!("{lines}{}", all[0]), "more after"),
    ] {
        std::fs::write(&export, cut).unwrap();
        let output = server.cli(&["audit", "verify", "--file", file, "-o", "json"]);
        assert_eq!(output.status.code(), Some(1), "{word}: {output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["sound"], false);
        assert!(told["fault"].as_str().unwrap().contains(word), "{told}");
    }
    std::fs::write(&export, without(records)).unwrap();
    let old = server.cli(&["audit", "verify", "--file", file, "--without-end"]);
    assert!(old.status.success() && said(&old).contains("cannot be checked"), "{old:?}");

    let altered = lines.replacen("\"weight\"", "\"nothing\"", 1);
    assert_ne!(altered, lines);
    std::fs::write(&export, altered).unwrap();
    let output = server.cli(&["audit", "verify", "--file", file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("was altered"), "{output:?}");
}

#[test]
fn changes_of_jobs_can_be_left_out_and_acts_cannot() {
    let data = TempDir::new().unwrap();
    let server = Server::start_with(data.path(), &["--audit", "admin"]);
    let job = server.submit(&json!({"type": "t", "queue": "q", "delay": "1h"}));
    assert_eq!(server.request("POST", &format!("/v1/jobs/{job}/cancel"), "").status, 200);
    let found = server.get("/v1/audit");
    let found = found["items"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["action"], "jobs.cancel");
    assert_eq!(found[0]["address"], "127.0.0.1");
}

#[test]
fn calls_of_the_last_second_are_recorded_before_a_server_stops() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    server.submit(&json!({"type": "t", "queue": "q", "delay": "1h"}));
    assert_eq!(server.terminate().0, Some(0));
    let server = Server::start(data.path());
    let found = ran(&server.cli(&["audit", "list", "--action", "jobs.create", "-o", "json"]));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["items"][0]["count"], 1, "{found}");
}
