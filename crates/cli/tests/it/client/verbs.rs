//! The client verbs against a stub on a real socket: what they send, what they print, how they end.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::stub::{Answer, Request, Stub};

const ID: &str = "job_01JDQ5M8ZK0000000000000000";

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn tidewheel(url: &str, args: &[&str]) -> Ended {
    tidewheel_with(url, args, &[], b"")
}

fn tidewheel_with(url: &str, args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidewheel"))
        .args(args)
        .env_clear()
        .env("TIDEWHEEL_URL", url)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_refusal_is_told_with_every_place_and_ends_with_one() {
    let stub = Stub::start(|_| {
        Answer::new(
            422,
            r#"{"title":"The job is not valid","status":422,"detail":"2 fields are wrong","code":"invalid_job",
                "errors":[{"pointer":"/type","detail":"is too long"},{"pointer":"/labels/a","detail":"no\u001b[2J"}]}"#,
        )
    });
    let ended = tidewheel(&stub.url, &["job", "submit", "x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        ended.stderr,
        "error: The job is not valid (invalid_job)\n2 fields are wrong\n  /type: is too long\n  /labels/a: no\u{fffd}[2J\n"
    );
}

#[test]
fn nobody_there_ends_with_three_and_says_what_to_do() {
    let ended = tidewheel("http://127.0.0.1:1", &["job", "get", ID]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    assert!(ended.stderr.contains("no connection to http://127.0.0.1:1"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Start it with `tidewheel serve`"), "{}", ended.stderr);
}

#[test]
fn a_job_is_sent_as_the_flags_say_and_with_key_and_tenant() {
    let stub = Stub::start(|_| {
        Answer::new(201, &format!(r#"{{"id":"{ID}","state":"scheduled","duplicate":false}}"#))
    });
    let args =
        ["job", "submit", "mail", "--payload", "-", "--delay", "5s", "--tenant", "acme", "--label", "a=b"];
    let ended = tidewheel_with(&stub.url, &args, &[("TIDEWHEEL_KEY", "twk_1")], b"{\"n\": 1.50}\n");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(ID) && ended.stderr.is_empty(), "{}{}", ended.stdout, ended.stderr);
    let requests = stub.requests();
    assert_eq!(requests[0].line, "POST /v1/jobs");
    assert_eq!(requests[0].header("authorization"), Some("Bearer twk_1"));
    assert_eq!(requests[0].header("tidewheel-tenant"), Some("acme"));
    assert_eq!(requests[0].body, r#"{"type":"mail","payload":{"n": 1.50},"delay":"5s","labels":{"a":"b"}}"#);
}

#[test]
fn a_submission_without_a_key_is_never_repeated() {
    for (key, tries) in [(&[][..], 1), (&["--idempotency-key", "k"][..], 2)] {
        let count = AtomicUsize::new(0);
        let stub = Stub::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::new(503, r#"{"title":"Busy"}"#).header("retry-after: 0"),
            _ => Answer::new(201, r#"{"id":"x"}"#),
        });
        let ended = tidewheel(&stub.url, &[&["job", "submit", "mail"], key].concat());
        assert_eq!(ended.code, Some(if tries == 1 { 1 } else { 0 }), "{}", ended.stderr);
        assert_eq!(stub.requests().len(), tries);
    }
}

#[test]
fn a_verb_whose_answer_is_lost_is_sent_again_under_its_key() {
    for line in [
        &["job", "retry", "a"][..],
        &["job", "retry", "--type", "t"],
        &["job", "run", "a"],
        &["dlq", "discard", "a"],
        &["dlq", "replay", "a"],
        &["schedule", "trigger", "a"],
        &["schedule", "delete", "a"],
        &["type", "delete", "a"],
        &["key", "create", "--role", "viewer"],
        &["key", "revoke", "a"],
        &["tenant", "secret", "add", "acme"],
        &["tenant", "secret", "remove", "acme", "a"],
    ] {
        let count = AtomicUsize::new(0);
        let stub = Stub::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::hang_up(),
            _ => Answer::new(200, r#"{"id":"a","state":"ready","secret":"s"}"#),
        });
        for _ in 0..2 {
            let ended = tidewheel(&stub.url, line);
            assert_eq!(ended.code, Some(0), "{line:?}: {}", ended.stderr);
        }
        let requests = stub.requests();
        let keys: Vec<_> =
            requests.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
        assert_eq!((keys.len(), keys[0]), (3, keys[1]), "{line:?}");
        assert_ne!(keys[1], keys[2], "another run is another call: {line:?}");
    }
}

#[test]
fn a_refusal_of_one_id_does_not_spare_those_after_it() {
    for line in [&["job", "cancel"][..], &["schedule", "pause"], &["dlq", "discard"], &["key", "revoke"]] {
        let stub = Stub::start(|request| {
            if request.line.contains("gone") {
                Answer::new(
                    404,
                    r#"{"title":"There is none","status":404,"detail":"none","code":"not_found"}"#,
                )
            } else {
                Answer::new(200, "{}")
            }
        });
        let ended = tidewheel(&stub.url, &[line, &["gone", "there"][..]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "there\n"), "{line:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("gone: "), "{line:?}: {}", ended.stderr);
        assert_eq!(stub.requests().len(), 2, "{line:?}");
    }
}

#[test]
fn a_secret_that_was_lost_on_the_way_is_told_with_what_to_do_about_it() {
    for (line, id, remedy) in [
        (&["key", "create", "--role", "viewer"][..], "key_1", "revoke it"),
        (&["tenant", "secret", "add", "acme"][..], "whs_1", "remove it"),
    ] {
        for format in ["table", "json"] {
            let count = AtomicUsize::new(0);
            // What was made at the first try is shown once: at the second it is told without the secret.
            let stub = Stub::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
                0 => Answer::hang_up(),
                _ => Answer::new(200, &format!(r#"{{"id":"{id}","tenant":"acme"}}"#)),
            });
            let ended = tidewheel(&stub.url, &[line, &["-o", format][..]].concat());
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{line:?}: {}", ended.stderr);
            assert!(ended.stderr.contains(id) && ended.stderr.contains(remedy), "{line:?}: {}", ended.stderr);
        }
    }
}

#[test]
fn documents_are_printed_byte_for_byte_or_as_fields() {
    const JOB: &str =
        r#"{"id":"job_1","state":"scheduled","payload":{"b":1.50,"a":1e400},"attempt":0,"worker":null}"#;
    let stub = Stub::start(|_| Answer::new(200, JOB));
    let ended = tidewheel(&stub.url, &["job", "get", "job_1", "-o", "json"]);
    assert_eq!(
        ended.stdout,
        "{\n  \"id\": \"job_1\",\n  \"state\": \"scheduled\",\n  \"payload\": {\n    \"b\": 1.50,\n    \"a\": 1e400\n  },\n  \
         \"attempt\": 0,\n  \"worker\": null\n}\n"
    );
    let ended = tidewheel(&stub.url, &["job", "get", "job_1"]);
    let rows: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["id", "job_1"],
            vec!["state", "scheduled"],
            vec!["payload", "{\"b\":1.50,\"a\":1e400}"],
            vec!["attempt", "0"]
        ]
    );
    assert!(!ended.stdout.contains('\u{1b}'), "colours go to terminals only");
}

/// Three pages, the second empty: a list goes on until it has what was asked for.
fn pages(request: &Request) -> Answer {
    let item =
        |n: u32| format!(r#"{{"id":"job_{n}","state":"dead","type":"t","attempt":1,"max_attempts":5}}"#);
    let (items, next) = match request.line.split("cursor=").nth(1) {
        None => ([item(1), item(2)].join(","), "\"b\""),
        Some("b") => (String::new(), "\"c\""),
        Some(_) => (item(3), "null"),
    };
    Answer::new(200, &format!(r#"{{"items":[{items}],"next_cursor":{next}}}"#))
}

#[test]
fn a_list_goes_through_its_pages() {
    let stub = Stub::start(pages);
    let ended = tidewheel(&stub.url, &["job", "list", "--state", "dead", "--label", "a=b c", "--all"]);
    let rows: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 4, "{}", ended.stdout);
    assert_eq!(rows[0], ["ID", "STATE", "RUN", "AT", "ATTEMPT", "TYPE", "TO"]);
    assert_eq!(rows[3], ["job_3", "dead", "-", "1/5", "t", "-"]);
    let lines: Vec<String> = stub.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(lines[0], "GET /v1/jobs?state=dead&label.a=b%20c&limit=1000");
    assert_eq!(lines[2], "GET /v1/jobs?state=dead&label.a=b%20c&limit=1000&cursor=c");

    let ended = tidewheel(&stub.url, &["dlq", "list", "--limit", "2"]);
    assert_eq!(ended.stdout.lines().count(), 3, "{}", ended.stdout);
    assert!(ended.stderr.contains("--cursor b"), "{}", ended.stderr);

    let ended = tidewheel(&stub.url, &["dlq", "list", "--all", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert!(list["next_cursor"].is_null());
}

fn batch_answer(request: &Request) -> Answer {
    let jobs: Vec<String> =
        request.body.lines().map(|_| format!(r#"{{"id":"{ID}","duplicate":false}}"#)).collect();
    Answer::new(201, &format!(r#"{{"jobs":[{}],"count":{}}}"#, jobs.join(","), jobs.len()))
}

fn file_of(count: usize) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines: String = (0..count).map(|n| format!("{{\"type\":\"t\",\"payload\":{n}}}\n")).collect();
    fs::write(file.path(), lines).unwrap();
    file
}

#[test]
fn a_file_goes_in_batches_and_a_repeated_batch_keeps_its_key() {
    let file = file_of(2_500);
    let path = file.path().to_str().unwrap();
    let count = AtomicUsize::new(0);
    let stub = Stub::start(move |request| match count.fetch_add(1, Ordering::SeqCst) {
        1 => Answer::new(503, r#"{"title":"Busy"}"#).header("retry-after: 0"),
        3 => Answer::hang_up(),
        _ => batch_answer(request),
    });
    let ended = tidewheel(&stub.url, &["job", "submit", "--file", path, "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&summary["submitted"], &summary["duplicates"]), (&2_500.into(), &0.into()));
    let requests = stub.requests();
    let keys: Vec<&str> = requests.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert_eq!(
        requests.iter().map(|r| r.body.lines().count()).collect::<Vec<_>>(),
        [1_000, 1_000, 1_000, 500, 500]
    );
    assert!(requests.iter().all(|request| request.line == "POST /v1/jobs/batch"));
    assert!(keys[1] == keys[2] && keys[3] == keys[4] && keys[0] != keys[1] && keys[1] != keys[3], "{keys:?}");

    let again = Stub::start(batch_answer);
    tidewheel(&again.url, &["job", "submit", "--file", path]);
    assert_eq!(
        again.requests()[0].header("idempotency-key"),
        Some(keys[0]),
        "the same file is the same batches"
    );
    let other = Stub::start(batch_answer);
    tidewheel(&other.url, &["job", "submit", "--file", path, "--run", "second"]);
    assert_ne!(other.requests()[0].header("idempotency-key"), Some(keys[0]));
}

#[test]
fn a_file_whose_jobs_are_all_there_already_has_no_rate() {
    let file = file_of(1_500);
    let path = file.path().to_str().unwrap();
    let stub = Stub::start(|request| {
        let jobs: Vec<String> =
            request.body.lines().map(|_| format!(r#"{{"id":"{ID}","duplicate":true}}"#)).collect();
        Answer::new(200, &format!(r#"{{"jobs":[{}],"count":{}}}"#, jobs.join(","), jobs.len()))
    });
    let ended = tidewheel(&stub.url, &["job", "submit", "--file", path]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.starts_with("0 jobs submitted in ") && !ended.stdout.contains("/s"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("1,500 jobs were there already"), "{}", ended.stdout);
    let ended = tidewheel(&stub.url, &["job", "submit", "--file", path, "-o", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let [submitted, duplicates, per_second] =
        ["submitted", "duplicates", "per_second"].map(|name| summary[name].as_u64());
    assert_eq!((submitted, duplicates, per_second), (Some(0), Some(1_500), Some(0)), "{summary}");
}

#[test]
fn a_refused_line_is_named() {
    let file = file_of(1_500);
    let count = AtomicUsize::new(0);
    let stub = Stub::start(move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => batch_answer(request),
        _ => Answer::new(422, r#"{"title":"No","errors":[{"pointer":"/17/type","detail":"is too long"}]}"#),
    });
    let ended = tidewheel(&stub.url, &["job", "submit", "--file", file.path().to_str().unwrap()]);
    assert_eq!(ended.code, Some(1));
    for part in
        ["line 1018: type: is too long", "Nothing of lines 1001 to 1500", "1,000 jobs were taken in before"]
    {
        assert!(ended.stderr.contains(part), "{part:?}: {}", ended.stderr);
    }
    let stub = Stub::start(batch_answer);
    let ended =
        tidewheel_with(&stub.url, &["job", "submit", "--file", "-"], &[], b"{\"type\":\"a\"}\nnonsense\n");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("error: line 2: is not a JSON object"), "{}", ended.stderr);
    assert_eq!(stub.requests().len(), 1, "what stands before the line is submitted");
}

/// A job that fails once and then ends as `last`.
fn life(last: &'static str) -> impl Fn(&Request) -> Answer + Send + 'static {
    let looks = AtomicUsize::new(0);
    move |request| {
        let at = "2026-01-01T00:00:0";
        let first = format!(
            r#"{{"attempt":1,"state":"failed","started_at":"{at}1.000Z","finished_at":"{at}1.500Z","status_code":500}}"#
        );
        let second = format!(
            r#"{{"attempt":2,"state":"{last}","started_at":"{at}2.000Z","finished_at":"{at}2.500Z"}}"#
        );
        if request.line.ends_with("/attempts") {
            let attempts = match looks.load(Ordering::SeqCst) {
                0 | 1 => String::new(),
                2 => first,
                _ => format!("{first},{second}"),
            };
            return Answer::new(200, &format!(r#"{{"items":[{attempts}],"next_cursor":null}}"#));
        }
        let (state, attempt, finished) = match looks.fetch_add(1, Ordering::SeqCst) {
            0 => ("scheduled", 0, "null".to_owned()),
            1 => ("retrying", 1, "null".to_owned()),
            _ => (if last == "succeeded" { "succeeded" } else { "dead" }, 2, format!("\"{at}2.500Z\"")),
        };
        Answer::new(
            200,
            &format!(
                r#"{{"id":"{ID}","state":"{state}","attempt":{attempt},"max_attempts":2,"created_at":"{at}0.000Z",
                    "run_at":"{at}2.000Z","fire_at":"{at}1.000Z","finished_at":{finished},"last_error":"HTTP 500"}}"#
            ),
        )
    }
}

#[test]
fn a_watched_job_is_told_change_by_change() {
    let stub = Stub::start(life("succeeded"));
    let ended = tidewheel(&stub.url, &["job", "watch", ID]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows: Vec<String> =
        ended.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "2026-01-01T00:00:00.000Z scheduled to run at 2026-01-01T00:00:01.000Z",
            "2026-01-01T00:00:01.000Z running attempt 1 of 2",
            "2026-01-01T00:00:01.500Z failed after 500ms: HTTP 500",
            "2026-01-01T00:00:01.500Z retrying next attempt at 2026-01-01T00:00:02.000Z",
            "2026-01-01T00:00:02.000Z running attempt 2 of 2",
            "2026-01-01T00:00:02.500Z succeeded after 500ms",
        ]
    );
}

#[test]
fn a_watched_job_that_dies_ends_with_one() {
    let stub = Stub::start(life("failed"));
    let ended = tidewheel(&stub.url, &["job", "watch", ID, "-o", "json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let states: Vec<String> = ended
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["state"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(states, ["scheduled", "running", "failed", "retrying", "running", "failed", "dead"]);
}

#[test]
fn many_jobs_are_changed_by_id_or_by_filter() {
    let stub = Stub::start(|request| match request.line.as_str() {
        "POST /v1/jobs/b/cancel" => {
            Answer::new(409, r#"{"title":"The job has ended","code":"job_finished"}"#)
        }
        line if line.ends_with("/cancel") && line != "POST /v1/jobs/cancel" => {
            Answer::new(200, r#"{"id":"x","state":"cancelled"}"#)
        }
        _ if request.body.contains("cursor") => Answer::new(200, r#"{"count":2,"next_cursor":null}"#),
        _ => Answer::new(200, r#"{"count":5,"next_cursor":"c"}"#),
    });
    let ended = tidewheel(&stub.url, &["job", "cancel", "a", "b", "c"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "a  cancelled\nc  cancelled\n"));
    assert!(ended.stderr.contains("b: The job has ended"), "{}", ended.stderr);

    let ended = tidewheel(&stub.url, &["job", "cancel", "--type", "t", "-o", "json"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "{\"count\":7}\n"), "{}", ended.stderr);
    let ended = tidewheel(&stub.url, &["dlq", "replay", "--all", "--rate", "5"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let bodies: Vec<String> = stub.requests().into_iter().skip(3).map(|request| request.body).collect();
    assert_eq!(
        bodies,
        [
            r#"{"filter":{"type":"t"}}"#,
            r#"{"filter":{"type":"t"},"cursor":"c"}"#,
            r#"{"filter":{},"rate":5}"#,
            r#"{"filter":{},"cursor":"c","rate":5,"delay":1.000}"#,
        ]
    );
}

#[test]
fn something_else_on_the_port_is_recognised() {
    let stub = Stub::start(|_| Answer::new(404, "<html>nginx</html>"));
    let ended = tidewheel(&stub.url, &["job", "get", ID]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("is this a Tidewheel server?"), "{}", ended.stderr);
}
