//! The benchmark's flags: what they are, and what is refused before anything is done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::net::TcpListener;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewheel-bench");

#[test]
fn help_is_golden() {
    let output = Command::new(PROGRAM).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success());
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is_done() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("postgres://u:secret@{free}/db");
    let no_server = format!("http://{free}");
    for (flags, code, word) in [
        (vec!["--store", &nobody], 3, "cannot be reached"),
        (vec!["--url", &no_server], 3, "cannot be reached"),
        (vec!["--url", &no_server, "--only", "bare"], 2, "cannot be measured over HTTP"),
        (vec!["--url", "https://127.0.0.1:9"], 2, "plain HTTP"),
        (vec!["--store", &nobody, "--only", "bare"], 2, "cannot be measured with --store"),
        (vec!["--store", &nobody, "--url", "http://127.0.0.1:9"], 2, "give one of them"),
        (vec!["--store", "mysql://h/db"], 2, "PostgreSQL"),
        (vec!["--only", "nodes"], 2, "--store"),
        (vec!["--old-transaction-age", "61m"], 2, "more than 60 minutes"),
    ] {
        let output = Command::new(PROGRAM).args(&flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(code) && said.contains(word) && !said.contains("secret"),
            "{flags:?}: {said}"
        );
    }
}
