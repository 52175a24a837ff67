//! `schedule` and `import` against a stub that keeps schedules by name: what they send, what they print, how they end.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::stub::{Answer, Request, Stub};

const FIRES: &str = r#"{"fires":[{"fire_at":"2027-01-01T09:00:00.000Z","run_at":"2027-01-01T09:00:07.000Z","note":"dst_gap"},
    {"fire_at":"2027-01-02T09:00:00.000Z","run_at":"2027-01-02T09:00:03.000Z","note":null}]}"#;

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr))
    }
}

fn tidewheel(stub: &Stub, args: &[&str], stdin: &str) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidewheel"))
        .args(args)
        .env_clear()
        .env("TIDEWHEEL_URL", &stub.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

type Kept = Arc<Mutex<BTreeMap<String, Value>>>;

/// Keeps schedules by name; shows each with a few fields at their defaults, as the server does.
fn keeper() -> (Stub, Kept) {
    let kept: Kept = Arc::default();
    let held = Arc::clone(&kept);
    (Stub::start(move |request| answer(request, &mut held.lock().unwrap())), kept)
}

fn answer(request: &Request, kept: &mut BTreeMap<String, Value>) -> Answer {
    let (method, path) = request.line.split_once(' ').unwrap();
    let path = path.split('?').next().unwrap();
    if path == "/v1/types" {
        return Answer::new(200, r#"{"items":[],"next_cursor":null}"#);
    }
    match (method, path.strip_prefix("/v1/schedules").unwrap()) {
        ("GET", "") => {
            assert!(request.line.contains("payload=true"), "without it, every payload would look changed");
            // One page each, to be sure that pages are followed.
            let page: usize =
                request.line.split("cursor=").nth(1).map_or(0, |cursor| cursor.parse().unwrap());
            let items: Vec<&Value> = kept.values().skip(page).take(1).collect();
            let next = (page + 1 < kept.len()).then(|| (page + 1).to_string());
            Answer::new(200, &json!({"items": items, "next_cursor": next}).to_string())
        }
        ("POST", "/preview") if request.body.contains("Mars") => {
            Answer::new(422, r#"{"title":"Unknown zone","code":"invalid_timezone"}"#)
        }
        ("POST", "/preview") => Answer::new(200, FIRES),
        ("GET", path) if path.ends_with("/next") => {
            let name = path.strip_prefix("/sch_").unwrap().strip_suffix("/next").unwrap();
            Answer::new(200, if kept[name]["paused"] == true { r#"{"fires":[]}"# } else { FIRES })
        }
        ("PUT", path) => {
            let name = path.strip_prefix("/by-name/").unwrap();
            let mut shown = json!({
                "id": format!("sch_{name}"), "name": name, "type": name, "timezone": "UTC", "window": "0s", "payload": null,
                "queue": "default", "dst": {"gap": "next_valid", "fold": "first"}, "misfire": "fire_latest",
                "misfire_cap": null, "misfire_grace": "1m", "overlap": "allow", "state": "active", "paused": false,
                "labels": {}, "next_fire_at": "2027-01-01T09:00:00.000Z",
            });
            for (field, value) in serde_json::from_str::<Value>(&request.body).unwrap().as_object().unwrap() {
                shown[field] = value.clone();
            }
            if let Some(url) = shown.as_object_mut().unwrap().remove("target_url") {
                shown["target"] = json!({"url": url, "method": "POST", "headers": {}});
                shown["queue"] = Value::Null;
            }
            let new = kept.insert(name.to_owned(), shown.clone()).is_none();
            Answer::new(if new { 201 } else { 200 }, &shown.to_string())
        }
        ("DELETE", path) => {
            kept.remove(path.strip_prefix("/sch_").unwrap()).unwrap();
            Answer::new(204, "")
        }
        (method, path) => panic!("{method} {path}"),
    }
}

const FILE: &str = "\
schedules:
  - name: morning
    cron_expr: \"0 9 * * MON-FRI\"
    timezone: America/New_York
    target_url: https://acme.com/hook
    payload: {team: ops, \"no\": \"1.0\"}
  - name: often
    every: 300
    queue: q
";

#[test]
fn a_file_is_planned_applied_exported_and_then_changes_nothing() {
    let (stub, kept) = keeper();
    let plan = tidewheel(&stub, &["schedule", "plan", "-"], FILE);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    assert_eq!(
        plan.stdout,
        "+ morning\n    next: 2027-01-01T09:00:00.000Z, 2027-01-02T09:00:00.000Z\n\
         + often\n    next: 2027-01-01T09:00:00.000Z, 2027-01-02T09:00:00.000Z\n\
         2 to create, 0 to change, 0 to delete, 0 unchanged\n"
    );
    assert!(kept.lock().unwrap().is_empty(), "a plan changes nothing");
    let applied = tidewheel(&stub, &["schedule", "apply", "-"], FILE);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert!(applied.stdout.ends_with("2 created, 0 changed, 0 deleted, 0 unchanged\n"), "{}", applied.stdout);

    let puts = |stub: &Stub| stub.requests().iter().filter(|r| r.line.starts_with("PUT")).count();
    let again = tidewheel(&stub, &["schedule", "apply", "-", "-o", "json"], FILE).json();
    assert_eq!((&again["unchanged"], &again["changed"], puts(&stub)), (&json!(2), &json!([]), 2));

    for format in ["table", "json"] {
        let file = tidewheel(&stub, &["schedule", "export", "-o", format], "");
        assert_eq!(file.code, Some(0), "{}", file.stderr);
        let plan = tidewheel(&stub, &["schedule", "plan", "-", "--prune", "-o", "json"], &file.stdout).json();
        let expected = json!({
            "create": [], "change": [], "delete": [], "unchanged": ["morning", "often"], "not_in_file": [],
        });
        assert_eq!(plan, expected, "{}", file.stdout);
    }
}

#[test]
fn changes_are_told_field_by_field_and_deletion_is_asked_for() {
    let (stub, kept) = keeper();
    tidewheel(&stub, &["schedule", "apply", "-"], FILE);
    let file =
        FILE.replace("America/New_York", "Europe/Paris").split("  - name: often").next().unwrap().to_owned();
    let plan = tidewheel(&stub, &["schedule", "plan", "-"], &file);
    assert!(
        plan.stdout.contains(
            "~ morning\n    timezone: \"America/New_York\" -> \"Europe/Paris\"\n    next before: 2027"
        ),
        "{}",
        plan.stdout
    );
    assert!(plan.stdout.ends_with("0 to create, 1 to change, 0 to delete, 0 unchanged\n"), "{}", plan.stdout);
    assert!(plan.stderr.contains("--prune deletes them: often"), "{}", plan.stderr);

    let refused = tidewheel(&stub, &["schedule", "apply", "-", "--prune"], &file);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("--yes") && refused.stderr.contains("often"), "{}", refused.stderr);
    assert_eq!(kept.lock().unwrap()["morning"]["timezone"], "America/New_York", "nothing was changed");

    let applied = tidewheel(&stub, &["schedule", "apply", "-", "--prune", "--yes"], &file);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert!(applied.stdout.ends_with("0 created, 1 changed, 1 deleted, 0 unchanged\n"), "{}", applied.stdout);
    assert_eq!(kept.lock().unwrap().keys().collect::<Vec<_>>(), ["morning"]);
}

#[test]
fn a_plan_says_what_a_pause_does() {
    let (stub, _kept) = keeper();
    let plan = |file: &str| {
        let ended = tidewheel(&stub, &["schedule", "plan", "-"], file);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    let file = |more: &str| format!("schedules:\n  - {{name: often, every: 300, queue: q{more}}}\n");
    let (paused, fires) = ("none, it is paused\n", "2027-01-01T09:00:00.000Z, 2027-01-02T09:00:00.000Z\n");
    let expect =
        |said: &str, wanted: &str| assert!(said.starts_with(wanted), "{wanted:?} does not begin:\n{said}");
    expect(&plan(&file(", paused: true")), &format!("+ often\n    next: {paused}"));
    tidewheel(&stub, &["schedule", "apply", "-"], &file(""));
    let said = plan(&file(", paused: true"));
    expect(
        &said,
        &format!("~ often\n    paused: (default) -> true\n    next before: {fires}    next after:  {paused}"),
    );
    tidewheel(&stub, &["schedule", "apply", "-"], &file(", paused: true"));
    // Nobody says that it goes on.
    let said = plan(&file(", window: 5m"));
    expect(
        &said,
        &format!(
            "~ often\n    window: (default) -> \"5m\"\n    next before: {paused}    next after:  {paused}"
        ),
    );
    let said = plan(&file(", paused: false"));
    expect(
        &said,
        &format!("~ often\n    paused: true -> (default)\n    next before: {paused}    next after:  {fires}"),
    );
    expect(&plan(&file(", paused: null")), "0 to create, 0 to change");
}

#[test]
fn a_file_with_faults_is_not_applied_even_in_part() {
    let (stub, kept) = keeper();
    let wrong = FILE.replace("every: 300", "evry: 300");
    let ended = tidewheel(&stub, &["schedule", "apply", "-"], &wrong);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("often: evry: there is no field \"evry\"; the nearest known one is `every`"),
        "{}",
        ended.stderr
    );
    let wrong = FILE.replace("America/New_York", "Mars/Base");
    let ended = tidewheel(&stub, &["schedule", "apply", "-"], &wrong);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("morning: Unknown zone"), "{}", ended.stderr);
    assert!(kept.lock().unwrap().is_empty());
}

#[test]
fn a_pause_that_is_neither_true_nor_false_is_refused_whether_the_schedule_exists_or_not() {
    let (stub, kept) = keeper();
    let file = |paused: &str| {
        format!(
            "schedules:\n  - {{name: new, every: 300}}\n  - {{name: often, every: 300, queue: q, paused: {paused}}}\n"
        )
    };
    let refused = |stub: &Stub| {
        for (paused, found) in [
            ("yes", "a string (\"yes\")"),
            ("off", "a string (\"off\")"),
            ("\"true\"", "a string (\"true\")"),
            ("1", "a number (1)"),
        ] {
            for verb in ["plan", "apply"] {
                let ended = tidewheel(stub, &["schedule", verb, "-"], &file(paused));
                assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{verb}: {}", ended.stderr);
                let wanted = format!(
                    "often: paused: expected true or false, found {found}; write paused: true or paused: false"
                );
                assert!(ended.stderr.contains(&wanted), "{verb}: {}", ended.stderr);
            }
        }
    };
    refused(&stub);
    assert!(stub.requests().is_empty(), "nothing is asked of the server");
    tidewheel(&stub, &["schedule", "apply", "-"], "schedules:\n  - {name: often, every: 300, queue: q}\n");
    refused(&stub);
    assert_eq!(kept.lock().unwrap().keys().collect::<Vec<_>>(), ["often"], "nothing was created");
}

#[test]
fn fires_to_come_are_listed_with_their_notes() {
    let stub = Stub::start(|_| Answer::new(200, FIRES));
    for (args, line) in [
        (&["schedule", "next", "sch_1", "--count", "2"][..], "GET /v1/schedules/sch_1/next?count=2"),
        (&["schedule", "preview", "--every", "5m"], "POST /v1/schedules/preview"),
    ] {
        let ended = tidewheel(&stub, args, "");
        let rows: Vec<Vec<&str>> =
            ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["FIRE", "AT", "RUN", "AT", "NOTE"]);
        assert_eq!(rows[1], ["2027-01-01T09:00:00.000Z", "2027-01-01T09:00:07.000Z", "dst_gap"]);
        assert_eq!(stub.requests().last().unwrap().line, line);
    }
}

#[test]
fn a_backfill_goes_on_where_a_step_ended() {
    let stub = Stub::start(|request| match request.body.contains("2026-11-05") {
        false => Answer::new(200, r#"{"count":4,"duplicates":1,"next_from":"2026-11-05T00:00:00.000Z"}"#),
        true => Answer::new(200, r#"{"count":2,"duplicates":0,"next_from":null}"#),
    });
    let line =
        ["schedule", "backfill", "sch_1", "--from", "2026-11-01T00:00:00Z", "--to", "2026-11-08T00:00:00Z"];
    let ended = tidewheel(&stub, &[&line[..], &["-o", "json"]].concat(), "");
    assert_eq!(
        (ended.code, ended.json()),
        (Some(0), json!({"count": 6, "duplicates": 1})),
        "{}",
        ended.stderr
    );
    let bodies: Vec<String> = stub.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(
        bodies,
        [
            r#"{"from":"2026-11-01T00:00:00Z","to":"2026-11-08T00:00:00Z"}"#,
            r#"{"from":"2026-11-05T00:00:00.000Z","to":"2026-11-08T00:00:00Z"}"#,
        ]
    );
}

const CRONTAB: &str = "\
# nightly things
PATH=/usr/bin
0 1 * * * /opt/backup --all
CRON_TZ=America/New_York
0 9 * * 1-5 /opt/report
";

#[test]
fn a_crontab_is_imported_once_and_changed_by_its_commands() {
    let (stub, kept) = keeper();
    let import = |flags: &[&str], text: &str| {
        let args = [&["import", "crontab", "-", "--timezone", "Europe/Berlin", "-o", "json"], flags].concat();
        let ended = tidewheel(&stub, &args, text);
        let actions: Vec<String> = ended.json()["schedules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|schedule| schedule["action"].as_str().unwrap().to_owned())
            .collect();
        (ended.code, actions)
    };
    let of = |action: &str| (Some(0), vec![action.to_owned(); 2]);
    assert_eq!(import(&["--dry-run"], CRONTAB), of("would be created"));
    assert!(kept.lock().unwrap().is_empty());
    assert_eq!(import(&[], CRONTAB), of("created"));
    assert_eq!(import(&[], CRONTAB), of("unchanged"));
    let schedules: Vec<Value> = kept.lock().unwrap().values().cloned().collect();
    assert_eq!(schedules[0]["payload"], json!({"command": "/opt/backup --all", "env": {"PATH": "/usr/bin"}}));
    assert_eq!(
        (&schedules[0]["timezone"], &schedules[0]["queue"]),
        (&json!("Europe/Berlin"), &json!("commands"))
    );
    assert_eq!(schedules[1]["timezone"], "America/New_York");
    assert!(
        schedules.iter().all(|schedule| schedule["timeout"] == "1d"),
        "cron has no bound: {schedules:#?}"
    );
    // Another time for a command is a change of its schedule.
    let (code, actions) = import(&[], &CRONTAB.replace("0 1 *", "0 2 *"));
    assert_eq!((code, actions), (Some(0), vec!["changed".to_owned(), "unchanged".to_owned()]));
    assert_eq!(kept.lock().unwrap().len(), 2);
}

#[test]
fn what_a_crontab_loses_is_told_line_by_line_and_ends_with_one() {
    let (stub, kept) = keeper();
    let text = format!("@reboot start\nMAILTO=ops@example.com\n{CRONTAB}CRON_TZ=Mars/Base\n0 1 * * * lost\n");
    let args = ["import", "crontab", "-", "--target-template", "https://runner/{name}", "--prefix", "ours"];
    let ended = tidewheel(&stub, &args, &text);
    assert_eq!(ended.code, Some(1));
    for part in [
        "line 1 is not carried over: @reboot start",
        "line 2 is not carried over: MAILTO=ops@example.com",
        "line 9: 0 1 * * * lost\n  Unknown zone",
        "Times are taken as UTC",
    ] {
        assert!(ended.stderr.contains(part), "{part:?} is not in:\n{}", ended.stderr);
    }
    assert!(ended.stdout.contains("2027-01-01T09:00:00.000Z"), "the next fire is shown: {}", ended.stdout);
    let kept = kept.lock().unwrap();
    assert_eq!(kept.len(), 2, "the rest is imported");
    let (name, schedule) = kept.iter().next().unwrap();
    assert!(name.starts_with("ours-backup-"), "{name}");
    assert_eq!(schedule["target"]["url"], format!("https://runner/{name}"));
    assert!(schedule.get("timeout").is_none(), "a push has the usual one: {schedule:#}");
}
