//! `bench` hands over to a program of its own: with its flags, and with words that help where it is missing.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The program in a folder of its own, so that nothing of the build lies beside it.
fn alone() -> TempDir {
    let folder = TempDir::new().unwrap();
    shell(folder.path(), &format!("cp '{}' tidewheel", env!("CARGO_BIN_EXE_tidewheel")));
    folder
}

/// Programs are written by a process of their own: while another test starts one, it holds whatever this process has open
/// for writing, and what is open for writing cannot be started.
fn shell(folder: &Path, commands: &str) {
    let status = Command::new("sh").args(["-c", commands]).current_dir(folder).status().unwrap();
    assert!(status.success(), "{commands}");
}

fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(folder.join("tidewheel"));
    let output = command.args(args).env("PATH", "/nonexistent").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn flags_go_to_the_program_beside_it_and_its_code_comes_back() {
    let folder = alone();
    let program = r#"printf '#!/bin/sh\necho "$@"\nexit 3\n' >tidewheel-bench && chmod 755 tidewheel-bench"#;
    shell(folder.path(), program);
    for (args, handed_over) in [
        (&["bench", "--quick", "--only", "sink", "target"][..], "--quick --only sink target\n"),
        (&["bench", "--help"], "--help\n"),
        (&["--url", "http://a", "-o", "json", "bench", "--quick"], "--url http://a --output json --quick\n"),
        (&["bench", "--url", "http://a", "-o", "json"], "--url http://a --output json\n"),
    ] {
        let (code, stdout, stderr) = run(folder.path(), args);
        assert_eq!((code, stdout.as_str()), (Some(3), handed_over), "{args:?}: {stderr}");
    }
}

#[test]
fn without_that_program_it_says_how_it_is_had() {
    let folder = alone();
    let (code, stdout, stderr) = run(folder.path(), &["bench", "--quick"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("cargo build --profile dist --workspace --bins"), "{stderr}");
}
