//! The commands of the page about workers, run as they stand there against a real server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, TIDEWHEEL, signal};

/// How the page marks the commands that are run here.
const COMMANDS: &str = "sh run-by=docs/workers";

fn blocks(language: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let page = std::fs::read_to_string(root.join("docs/workers.md")).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Ids and durations differ from run to run; the rest may not.
fn shape(line: &str) -> String {
    let shaped = line.split("  ").map(|part| match part {
        id if id.starts_with("job_") => "ID".to_owned(),
        ended if ended.contains(" after ") => ended.split(" after ").next().unwrap().to_owned(),
        other => other.to_owned(),
    });
    shaped.collect::<Vec<_>>().join("  ").trim().to_owned()
}

/// Where an example of the workspace is, built if it is not.
fn example(name: &str) -> String {
    let target = Path::new(TIDEWHEEL).ancestors().nth(2).unwrap();
    let mut build = Command::new(env!("CARGO"));
    // As the whole workspace is built, so that nothing is built twice.
    build.args(["build", "--workspace", "--locked", "--quiet", "--example", name]);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target);
    assert!(build.status().unwrap().success());
    target.join("debug/examples").join(name).display().to_string()
}

/// Runs a block whose last line is a worker, until that has told of one job.
fn runs_as_written(commands: &str, output: &str) {
    let (data, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let lines: Vec<&str> = commands.trim().lines().collect();
    let (worker, before) = lines.split_last().unwrap();
    std::os::unix::fs::symlink(TIDEWHEEL, folder.path().join("tidewheel")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("TIDEWHEEL_URL", server.url()).env("PATH", &path);
        command.current_dir(folder.path());
        command
    };
    for line in before {
        let done = shell(line).output().unwrap();
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let worker = worker.strip_prefix("cargo run --example ").map_or((*worker).to_owned(), example);
    // In the shell's place, so that it gets the signal.
    let mut worker = shell(&format!("exec {worker}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut told).unwrap();
    signal(worker.id(), "TERM");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(shape(&told), shape(output));
}

#[test]
fn a_command_per_job_as_the_page_shows_it() {
    runs_as_written(&blocks(COMMANDS)[0], &blocks("text")[0]);
}

#[test]
fn a_crontab_moves_as_the_page_shows_it() {
    runs_as_written(&blocks(COMMANDS)[1], &blocks("text")[1]);
}

#[test]
fn a_worker_in_rust_as_the_page_shows_it() {
    runs_as_written(&blocks(COMMANDS)[2], &blocks("text")[2]);
}
