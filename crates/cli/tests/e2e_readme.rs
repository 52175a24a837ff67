//! The README's commands, run as they stand there against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod harness;

use std::path::Path;
use std::process::Command;

use harness::{Server, TIDEWHEEL};
use tempfile::TempDir;

fn blocks(language: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let fence = format!("```{language}\n");
    readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Ids, times and durations differ from run to run; the rest may not.
fn shape(text: &str) -> String {
    let mut shaped = String::new();
    for word in text.split_inclusive(|c: char| c.is_whitespace() || "\",{}".contains(c)) {
        let end =
            word.len() - word.trim_end_matches(|c: char| c.is_whitespace() || "\",{}".contains(c)).len();
        let (core, rest) = word.split_at(word.len() - end);
        let is_time = core.starts_with("20") && core.ends_with('Z');
        let is_duration = core.trim_end_matches(':').ends_with("ms");
        let core = match core {
            id if id.starts_with("job_") => "ID",
            _ if is_time => "TIME",
            _ if is_duration => "DURATION",
            other => other,
        };
        shaped.push_str(core);
        shaped.push_str(rest);
    }
    shaped.trim().to_owned()
}

fn run(command: &str, server: &Server) -> String {
    let command = command.replace("127.0.0.1:7400", &server.address.to_string());
    let output =
        Command::new("sh").args(["-c", &command]).env("TIDEWHEEL_URL", server.url()).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_quick_start_does_what_it_says() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let commands = blocks("sh");
    assert_eq!(commands[0].trim(), "cargo run --release -- serve");
    let answer = run(&commands[1], &server);
    assert_eq!(shape(&answer), shape(&blocks("json")[0]));
    let id = answer.split('"').find(|word| word.starts_with("job_")).unwrap();
    let named = commands[2].split_whitespace().find(|word| word.starts_with("job_")).unwrap();
    let watch = commands[2].replace(named, id).replace("target/release/tidewheel", TIDEWHEEL);
    assert_eq!(shape(&run(&watch, &server)), shape(&blocks("text")[0]));
}
