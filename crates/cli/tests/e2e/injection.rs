//! Text that looks like something else: like another header, another line of the log, a piece of SQL. It stays text.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::postgres::Postgres;
use crate::harness::target::{Hit, Target};
use crate::harness::{Server, request, until_served};

/// Ends a line, or would if it were taken as it is.
const LINE_BREAKS: [&str; 6] =
    ["\r\nX-Evil: y", "\nX-Evil: y", "\rX-Evil: y", "\0", "\r\n\tfolded", "\u{85}X-Evil: y"];

fn header_names(hit: &Hit) -> BTreeSet<String> {
    hit.headers.keys().cloned().collect()
}

#[test]
fn a_job_cannot_add_a_header_to_its_own_request() {
    let (data, target) = (TempDir::new().unwrap(), Target::ok());
    let server = Server::start(data.path());
    let url = target.url("/");
    server.submit(&json!({"type": "t", "target_url": url, "idempotency_key": "plain"}));
    let plain = header_names(&target.until_hits(1)[0]);

    for broken in LINE_BREAKS {
        let text = format!("a{broken}");
        for body in [
            json!({"type": text, "target_url": url}),
            json!({"type": "t", "target_url": url, "idempotency_key": text}),
            json!({"type": "t", "target_url": format!("{url}{broken}")}),
            json!({"type": "t", "target": {"url": url, "method": format!("GET / HTTP/1.1{broken}")}}),
            json!({"type": "t", "target": {"url": url, "headers": {"X-A": text}}}),
            json!({"type": "t", "target": {"url": url, "headers": {text.clone(): "a"}}}),
        ] {
            let answer = server.post("/v1/jobs", &body);
            assert!(matches!(answer.status, 400 | 422), "{body}: {} {}", answer.status, answer.text());
        }
    }
    // What belongs to the connection, to the request or to the server is not for a job to set.
    for name in
        ["Content-Length", "Transfer-Encoding", "Host", "Connection", "Tidewheel-Job-Id", "webhook-signature"]
    {
        let body = json!({"type": "t", "target": {"url": url, "headers": {name: "1"}}});
        assert_eq!(server.post("/v1/jobs", &body).status, 422, "{name}");
    }

    // What is only odd arrives, in the header it was meant for and in no other.
    let odd = json!({"type": "a:b", "target": {"url": url, "headers": {"X-A": "b: c; X-Evil: y"}},
        "idempotency_key": "X-Evil: y", "labels": {"X-Evil": "y"}});
    server.submit(&odd);
    let hit = &target.until_hits(2)[1];
    let mut expected = plain;
    expected.insert("x-a".to_owned());
    assert_eq!(header_names(hit), expected);
    assert_eq!((hit.header("x-a"), hit.header("tidewheel-type")), ("b: c; X-Evil: y", "a:b"));
    assert_eq!(target.count(), 2, "nothing that was refused was ever sent");
}

/// Texts that end an event, forge another, or speak to the terminal of whoever reads the log.
const FORGED: [&str; 4] = [
    "a\n2026-01-01T00:00:00Z ERROR forged: all is lost",
    "a\r\n{\"level\":\"ERROR\",\"message\":\"forged\"}",
    "\",\"level\":\"ERROR\",\"message\":\"forged",
    "\u{1b}[2J\u{1b}]0;forged\u{7}",
];

/// Has the server log as much as it can of the texts above.
fn provoke(server: &Server) {
    for text in FORGED {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for path in
            [format!("/v1/jobs/{encoded}"), format!("/{encoded}"), format!("/v1/jobs?state={encoded}")]
        {
            let answer = server.request("GET", &path, "");
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        }
        for body in [json!({"type": text}), json!({"type": "t", "payload": text, "labels": {"l": text}})] {
            assert!(server.post("/v1/jobs", &body).status < 500);
        }
        let take = json!({"worker": text, "max": 1, "wait": "0s"});
        assert!(server.post(&format!("/v1/queues/{encoded}/take"), &take).status < 500);
        let headers =
            [("user-agent", "\",\"level\":\"ERROR"), ("authorization", "Bearer \",\"level\":\"ERROR")];
        assert!(request(server.address, "GET", "/v1/jobs", &headers, b"").unwrap().status < 500);
    }
}

#[test]
fn every_event_is_one_line_of_the_log_whatever_it_is_about() {
    for format in ["json", "text"] {
        let data = TempDir::new().unwrap();
        let server = Server::start_with(data.path(), &["--log-format", format, "--log-level", "debug"]);
        provoke(&server);
        let (code, lines) = server.terminate();
        assert_eq!(code, Some(0), "{lines:#?}");
        let events: Vec<&String> = lines.iter().filter(|line| line.contains("tidewheel::access")).collect();
        assert!(events.len() >= 6 * FORGED.len(), "the requests are in the log: {lines:#?}");
        for line in &lines {
            assert!(!line.contains(['\u{1b}', '\r', '\u{7}']), "{line:?}");
            if format == "json" && line.starts_with('{') {
                let event: Value =
                    serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
                assert_ne!(event["level"], "ERROR", "{line}");
            }
            // A line that begins with what was sent would be an event of the sender's.
            assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{line}");
            assert!(!line.starts_with("{\"level\":\"ERROR\""), "{line}");
        }
    }
}

/// Each would change the statement it stood in, or keep it busy for an hour.
const SQL: [&str; 6] = [
    "'; select pg_sleep(3600)--",
    "' or pg_sleep(3600) is null or '1'='1",
    "x'); drop schema tidewheel cascade; --",
    "\\'; drop schema tidewheel cascade; --",
    "$$; select pg_sleep(3600); $$",
    "%_%' escape '\\",
];

#[test]
fn what_looks_like_sql_is_text() {
    let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
    let server = Server::start_with(data.path(), &["--store", &postgres.url()]);
    for (index, text) in SQL.iter().enumerate() {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let name = format!("{text}{index}");
        let job = json!({"type": "t", "delay": "1h", "payload": text, "labels": {"l": text}, "idempotency_key": name});
        let taken = until_served(text, || server.post("/v1/jobs", &job));
        assert!(matches!(taken.status, 200 | 201), "{text}: {}", taken.text());
        let id = taken.json()["id"].as_str().unwrap().to_owned();
        let stored = server.get(&format!("/v1/jobs/{id}"));
        assert_eq!(
            (&stored["payload"], &stored["labels"]["l"], &stored["idempotency_key"]),
            (&json!(text), &json!(text), &json!(name))
        );
        let mut schedule =
            json!({"name": format!("s{index}"), "every": "1h", "type": "s", "payload": text, "note": text});
        let (key, body) = (format!("schedule-{index}"), schedule.to_string());
        let made = until_served(text, || {
            let headers = [("idempotency-key", key.as_str())];
            request(server.address, "POST", "/v1/schedules", &headers, body.as_bytes()).unwrap()
        });
        assert!(matches!(made.status, 200 | 201), "{text}: {}", made.text());
        schedule["name"] = json!(name);
        let refused = until_served(text, || server.post("/v1/schedules", &schedule));
        assert_eq!(refused.status, 422, "no name of a schedule: {text}");
        for field in ["type", "queue", "target_url", "priority", "run_at"] {
            let mut body = json!({"type": "t", "delay": "1h"});
            body[field] = json!(text);
            assert!(until_served(text, || server.post("/v1/jobs", &body)).status < 500, "{field} {text}");
        }
        // Found by exactly this label, and by no pattern in it.
        assert_eq!(server.get(&format!("/v1/jobs?label.l={encoded}"))["items"].as_array().unwrap().len(), 1);
        for path in [
            "/v1/jobs?type=",
            "/v1/jobs?queue=",
            "/v1/jobs?state=",
            "/v1/jobs?cursor=",
            "/v1/jobs?limit=",
            "/v1/jobs?from=",
            "/v1/jobs?schedule=",
            "/v1/jobs?order=",
            "/v1/jobs?sort=",
            "/v1/jobs/",
            "/v1/schedules?name=",
            "/v1/schedules?type=",
            "/v1/schedules?cursor=",
            "/v1/schedules/",
            "/v1/calendars/",
            "/v1/types/",
            "/v1/tenants/",
            "/v1/keys/",
            "/v1/dead-letters?type=",
        ] {
            let answer = until_served(path, || server.request("GET", &format!("{path}{encoded}"), ""));
            assert!(answer.status < 500, "{path}{text}: {} {}", answer.status, answer.text());
        }
        let headers = [("idempotency-key", *text), ("tidewheel-tenant", *text)];
        let answer = until_served(text, || {
            request(server.address, "POST", "/v1/jobs", &headers, b"{\"type\": \"t\"}").unwrap()
        });
        assert!(answer.status < 500, "{text}: {}", answer.text());
    }
    let tables = "SELECT count(*) > 5 FROM pg_tables WHERE schemaname = 'tidewheel'";
    assert_eq!(postgres.ask(tables), "t", "they are still there");
    assert_eq!(server.get("/v1/schedules")["items"].as_array().unwrap().len(), SQL.len());
}
