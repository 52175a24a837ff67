//! The program and the page that it writes belong together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewheel-cost");

/// The names that the program refuses another one with.
fn entries() -> Vec<String> {
    let said = Command::new(PROGRAM)
        .args(["measure", "--server", "none", "--page", "none", "--profile", "dev", "--commit", "none"])
        .args(["--rustc", "none", "--only", "no-such-entry"])
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8(said.stderr).unwrap();
    let (_, names) = said.trim().split_once("there are ").unwrap_or_else(|| panic!("{said}"));
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_page_says_what_every_entry_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("bench/COST.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, counted) = page.split_once("\n## What is counted\n").unwrap();
    let names: Vec<&str> = counted
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('`').nth(1))
        .collect();
    assert_eq!(names, entries());
    let (_, tables) = page.split_once("\n## Both stores\n").unwrap();
    for row in tables.lines().filter(|line| line.starts_with("| `")) {
        let name = row.split('`').nth(1).unwrap();
        assert!(names.contains(&name), "the tables have {name}, which is not counted");
    }
}
