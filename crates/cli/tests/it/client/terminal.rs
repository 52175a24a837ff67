//! What the client verbs do on a terminal and what they leave out elsewhere: fitting tables, colours, `--watch`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::stub::{Answer, Request, Stub};
use crate::harness::{self, TIDEWHEEL, until};
use crate::pty::{self, Terminal};

fn tidewheel(url: &str, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(TIDEWHEEL);
    command.args(args).env_clear().env("TIDEWHEEL_URL", url).env("TERM", "xterm-256color");
    command.envs(env.iter().copied());
    command
}

fn jobs(_: &Request) -> Answer {
    let job = |n: u32, state: &str| {
        format!(
            r#"{{"id":"job_01M7EPTYPCA8ASPMREFWWW29F{n}","state":"{state}","run_at":"2026-11-15T04:18:22.028Z","attempt":1,
            "max_attempts":5,"type":"send-email-to-everybody","target":{{"url":"https://hooks.example.com/mail/send"}}}}"#
        )
    };
    let items = [job(1, "dead"), job(2, "succeeded"), job(3, "scheduled")].join(",");
    Answer::new(200, &format!(r#"{{"items":[{items}],"next_cursor":null}}"#))
}

fn listed(width: u16, env: &[(&str, &str)]) -> String {
    let stub = Stub::start(jobs);
    let mut terminal = Terminal::start(&mut tidewheel(&stub.url, &["job", "list"], env), width, 24);
    assert_eq!(terminal.end().code(), Some(0));
    until("the last row", || {
        let raw = terminal.raw();
        raw.contains("29F3").then(|| raw.lines().count() >= 4)?.then_some(raw)
    })
}

#[test]
fn tables_fit_the_terminal_and_states_are_coloured_there() {
    for width in [60, 80, 100, 160] {
        let raw = listed(width, &[]);
        let text = pty::without_codes(&raw);
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= usize::from(width), "{width}: {line:?}");
        }
        assert!(text.contains("send-em") && text.contains("STATE"), "{width}: {text}");
        assert_eq!(text.contains("2026-11-15T04:18:22.028Z"), width >= 100, "{width}: {text}");
        assert!(raw.contains("\u{1b}[31m") || raw.contains("\u{1b}[38;5;9m"), "dead is red: {raw:?}");
    }
    let plain = listed(80, &[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
}

/// A job that starts after the first look, and ends after the second.
fn life() -> impl Fn(&Request) -> Answer + Send + 'static {
    let looks = AtomicUsize::new(0);
    move |request| {
        if request.line.ends_with("/attempts") {
            return Answer::new(200, r#"{"items":[],"next_cursor":null}"#);
        }
        // Twice the same: what has not changed is not printed again.
        let state = match looks.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => "scheduled",
            2 | 3 => "running",
            _ => "succeeded",
        };
        Answer::new(200, &format!(r#"{{"id":"job_1","state":"{state}","attempt":0}}"#))
    }
}

#[test]
fn without_a_terminal_a_watched_document_is_printed_when_it_changes() {
    for (format, lines) in [
        (
            "json",
            [
                r#"{"id":"job_1","state":"scheduled","attempt":0}"#,
                r#"{"id":"job_1","state":"running","attempt":0}"#,
            ],
        ),
        ("table", ["state scheduled", "state running"]),
    ] {
        let stub = Stub::start(life());
        let args = ["job", "get", "job_1", "--watch=200ms", "-o", format];
        let mut child = tidewheel(&stub.url, &args, &[]).stdout(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let told = printed.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let states: Vec<String> = told.filter(|line| line.contains("state")).take(3).collect();
        assert_eq!(states[..2], lines);
        assert!(states[2].contains("succeeded"), "{states:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn on_a_terminal_a_watched_list_is_drawn_in_place() {
    let stub = Stub::start(jobs);
    let args = ["job", "list", "--watch=200ms"];
    let terminal = Terminal::start(&mut tidewheel(&stub.url, &args, &[]), 80, 24);
    let raw = until("the second picture", || {
        let raw = terminal.raw();
        raw.contains("\u{1b}[4A\r").then_some(raw)
    });
    assert!(raw.starts_with("\u{1b}[?7l"), "long lines must not break: {raw:?}");
    assert!(!raw.contains("\u{1b}[?1049h"), "the screen is not taken");
}

#[test]
fn a_server_says_at_its_start_where_to_look_and_who_may() {
    let data = tempfile::TempDir::new().unwrap();
    let server = harness::Server::start(data.path());
    let pages = format!("web pages at http://{0}/, the API's docs at http://{0}/docs", server.address);
    let (code, said) = server.terminate();
    assert_eq!(code, Some(0));
    for part in [pages.as_str(), "no keys: open on loopback only"] {
        assert!(said.iter().any(|line| line.contains(part)), "{part}: {said:#?}");
    }
}

#[test]
fn completions_and_the_manual_know_every_verb() {
    let folder = tempfile::TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = tidewheel("http://127.0.0.1:1", &["completions", shell], &[]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && script.contains("schedule") && script.contains("watch"),
            "{shell}"
        );
    }
    let pages = folder.path().join("man1");
    let output = tidewheel("http://127.0.0.1:1", &["man", pages.to_str().unwrap()], &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (page, parts) in [
        ("tidewheel.1", &["tidewheel\\-job", "Examples:", "Exit codes"][..]),
        ("tidewheel-job-submit.1", &["\\-\\-idempotency\\-key", "Examples:", "generate\\-jobs"]),
        ("tidewheel-top.1", &["\\-\\-interval", ".SH NOTES AND EXAMPLES", "Examples:"]),
        ("tidewheel-schedule-backfill.1", &["\\-\\-rate"]),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        for part in parts {
            assert!(text.contains(part), "{page} lacks {part}:\n{text}");
        }
    }
}
