//! `bench` hands over to a program of its own: with its flags, and with words that help where it is missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The program in a folder of its own, so that nothing of the build lies beside it.
fn alone() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::copy(env!("CARGO_BIN_EXE_tidewheel"), folder.path().join("tidewheel")).unwrap();
    folder
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
    let program = folder.path().join("tidewheel-bench");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
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
