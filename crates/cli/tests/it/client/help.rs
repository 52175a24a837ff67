//! The help of every verb, to the letter: it is what users read first.

use std::process::{Command, Stdio};

const VERBS: &[&str] = &[
    "",
    "serve",
    "migrate",
    "top",
    "completions",
    "man",
    "job",
    "job submit",
    "job get",
    "job list",
    "job cancel",
    "job run",
    "job retry",
    "job explain",
    "job watch",
    "schedule",
    "schedule create",
    "schedule get",
    "schedule list",
    "schedule next",
    "schedule preview",
    "schedule firings",
    "schedule pause",
    "schedule resume",
    "schedule trigger",
    "schedule backfill",
    "schedule delete",
    "schedule plan",
    "schedule apply",
    "schedule export",
    "tenant",
    "tenant get",
    "tenant set",
    "tenant list",
    "tenant secret",
    "tenant secret list",
    "tenant secret add",
    "tenant secret show",
    "tenant secret remove",
    "type",
    "type get",
    "type set",
    "type list",
    "type delete",
    "tenant notify",
    "key",
    "key create",
    "key list",
    "key revoke",
    "audit",
    "audit list",
    "audit export",
    "audit verify",
    "cluster",
    "cluster status",
    "import",
    "import crontab",
    "worker",
    "worker run",
    "dlq",
    "dlq list",
    "dlq show",
    "dlq replay",
    "dlq discard",
];

/// Verbs that only hold others.
const PARENTS: &[&str] = &[
    "job",
    "schedule",
    "import",
    "worker",
    "dlq",
    "cluster",
    "tenant",
    "tenant secret",
    "type",
    "key",
    "audit",
];

fn tidewheel(line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidewheel"))
        .args(line.split_whitespace())
        .env_clear()
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_help_of_every_verb() {
    for verb in VERBS {
        let (code, stdout, stderr) = tidewheel(&format!("{verb} --help"));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{verb}");
        insta::assert_snapshot!(format!("help {verb}").trim().replace(' ', "_"), stdout);
    }
}

#[test]
fn every_verb_shows_examples() {
    for verb in VERBS {
        let (_, stdout, _) = tidewheel(&format!("{verb} --help"));
        assert!(stdout.contains(&format!("Examples:\n  tidewheel {verb}")), "{verb}:\n{stdout}");
    }
}

#[test]
fn no_help_is_complete_without_the_verbs_listed_here() {
    for parent in [""].iter().chain(PARENTS) {
        let (_, stdout, _) = tidewheel(&format!("{parent} --help"));
        let commands = stdout.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
        for line in commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let verb = line.split_whitespace().next().unwrap();
            let whole = format!("{parent} {verb}");
            // The help of `bench` is that of the program it hands over to, which has a golden of its own.
            assert!(
                ["help", "bench"].contains(&verb) || VERBS.contains(&whole.trim()),
                "{whole} has no snapshot"
            );
        }
    }
}

#[test]
fn the_version_names_the_build() {
    let (code, stdout, _) = tidewheel("--version");
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with(concat!("tidewheel ", env!("CARGO_PKG_VERSION"), " (")), "{stdout}");
    assert!(stdout.contains(std::env::consts::ARCH), "{stdout}");
}

#[test]
fn wrong_usage_ends_with_two_and_names_the_slip() {
    for (line, word) in [
        ("job gett x", "get"),
        ("job submit", "TYPE"),
        ("job list --state ded", "dead"),
        ("job submit a --label b", "key=value"),
        ("job submit a --payload hello", "not JSON"),
        ("schedule create --queue q", "--cron"),
        ("schedule create --cron @fortnightly", "@yearly"),
        ("schedule next x --count 0", "1 to 1000"),
        ("schedule plan /nonexistent/file", "/nonexistent/file"),
        ("import crontab /nonexistent/file", "/nonexistent/file"),
        ("dlq discard", "--all"),
        ("job get x --url nowhere", "http://127.0.0.1:7400"),
        ("job get x --key-file /nonexistent/key", "/nonexistent/key"),
        ("job submit --file /nonexistent/file", "/nonexistent/file"),
        ("serve --listen 0.0.0.0:7400", "needs keys"),
    ] {
        let (code, stdout, stderr) = tidewheel(line);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{line}: {stderr}");
        assert!(stderr.contains(word), "{line}: {stderr}");
    }
}

#[test]
fn whom_nobody_can_reach_ends_with_three() {
    for line in [
        "job list --url http://127.0.0.1:1",
        "serve --listen 127.0.0.1:0 --store postgres://u@127.0.0.1:1/db",
        "migrate --store postgres://u@127.0.0.1:1/db",
    ] {
        let (code, stdout, stderr) = tidewheel(line);
        assert_eq!((code, stdout.as_str()), (Some(3), ""), "{line}: {stderr}");
    }
}

#[test]
fn serve_tells_everything_that_is_wrong_at_once() {
    let (code, _, stderr) = tidewheel("serve --listen x --drain y --push-per-host z --log-format w");
    assert_eq!(code, Some(2));
    for part in ["4 faults", "--listen:", "--drain:", "--push-per-host:", "--log-format:"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}
