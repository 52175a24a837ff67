//! The code blocks of the documents. Commands are run as they stand there, against a real server, and must print what
//! the page shows; everything else must at least be read by what it is for. What cannot be run says why:
//!
//! - `sh` is run and must succeed; a `text` or `json` block right after it is what it prints;
//! - `console` has `$ commands` with their output, notes and errors included; `console exact` to the letter, otherwise
//!   ids, times and durations may differ; a line of `…` stands for any lines;
//! - `not-run="reason"` after `sh` or `console` takes a block out; `run-by=MODULE` names the module beside this one that
//!   runs it instead, as a path (`docs/workers`);
//! - `json`, `yaml`, `toml`, `python`, `rust` and `ts` are read as what they are.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::docs::page::{Block, Session, agrees, blocks, pages, root, steps};
use crate::harness::TIDEWHEEL;

const KNOWN: [&str; 12] =
    ["", "sh", "console", "text", "json", "yaml", "toml", "sql", "python", "rust", "ts", "promql"];

fn is_command(block: &Block) -> bool {
    matches!(block.language.as_str(), "sh" | "console")
}

/// Why a block is not run here, if it is not.
fn exemption(block: &Block) -> Option<&str> {
    block.info.strip_prefix("not-run=").or_else(|| block.info.strip_prefix("run-by="))
}

#[test]
fn every_block_is_run_or_says_why_not() {
    let mut run = 0;
    for block in pages().iter().flat_map(|page| blocks(page)) {
        assert!(KNOWN.contains(&block.language.as_str()), "{}: what is {}?", block.place, block.language);
        if !is_command(&block) {
            assert_eq!(block.info, "", "{}: only commands are marked", block.place);
            continue;
        }
        match block.info.as_str() {
            "" | "exact" => run += 1,
            info => {
                if let Some(test) = info.strip_prefix("run-by=") {
                    let file = root().join("crates/cli/tests/e2e").join(format!("{test}.rs"));
                    let named =
                        fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}: no {test}", block.place));
                    let page = block.place.rsplit_once(':').unwrap().0;
                    assert!(named.contains(page), "{}: {test} does not read {page}", block.place);
                } else {
                    let reason = info.strip_prefix("not-run=\"").and_then(|rest| rest.strip_suffix('"'));
                    let reason = reason.unwrap_or_else(|| panic!("{}: what is {info}?", block.place));
                    assert!(reason.len() > 10, "{}: say why it is not run", block.place);
                }
            }
        }
    }
    assert!(run > 30, "only {run} blocks are run");
}

/// Runs the commands of one page, in their order, in one shell.
fn run_page(page: &Path) {
    let all = blocks(page);
    let is_run = |block: &Block| is_command(block) && exemption(block).is_none();
    if !all.iter().any(is_run) {
        return;
    }
    let mut session = Session::start();
    for (block, next) in all.iter().zip(all.iter().skip(1).map(Some).chain([None])) {
        if !is_run(block) {
            continue;
        }
        let place = &block.place;
        if block.language == "console" {
            for step in steps(block) {
                let (_, printed) = session.run(&step.command);
                let agrees = agrees(&step.expected, &printed, block.info == "exact");
                assert!(
                    agrees,
                    "{place}: {}\nshould print\n{}\nbut prints\n{printed}",
                    step.command, step.expected
                );
            }
            continue;
        }
        let (code, printed) = session.run(&block.text);
        assert_eq!(code, 0, "{place}: {printed}");
        let output = next.filter(|next| next.follows && matches!(next.language.as_str(), "text" | "json"));
        if let Some(output) = output {
            assert!(
                agrees(&output.text, &printed, false),
                "{place}\nshould print\n{}\nbut prints\n{printed}",
                output.text
            );
        }
    }
}

/// Pages of one letter range each, so that they are run side by side.
fn run_pages(is_meant: impl Fn(&str) -> bool) {
    let mut count = 0;
    for page in pages() {
        let name = page.strip_prefix(root().join("docs")).unwrap().display().to_string();
        if is_meant(&name) {
            run_page(&page);
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn the_pages_on_moving_from_elsewhere_do_what_they_say() {
    run_pages(|name| name.starts_with("migrating"));
}

#[test]
fn the_pages_from_a_to_m_do_what_they_say() {
    run_pages(|name| !name.starts_with("migrating") && name < "n");
}

#[test]
fn the_pages_from_n_to_z_do_what_they_say() {
    run_pages(|name| name > "n");
}

/// Runs a program on a file; whether it was content with it. Nothing if there is no such program.
fn content(program: &str, args: &[&str], file: &Path) -> Option<bool> {
    let output = Command::new(program).args(args).arg(file).stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Some(output.status.success())
}

fn reads_as_it_should(block: &Block, folder: &Path) {
    let (place, text) = (&block.place, block.text.as_str());
    let file = folder.join("block");
    fs::write(&file, text).unwrap();
    match block.language.as_str() {
        "json" => {
            for document in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
                document.unwrap_or_else(|fault| panic!("{place}: {fault}"));
            }
        }
        "yaml" => {
            let read: serde_json::Value =
                serde_saphyr::from_str(text).unwrap_or_else(|fault| panic!("{place}: {fault}"));
            assert!(read.is_object(), "{place}: {read}");
        }
        "toml" => {
            // An address that is none keeps the server from starting; nothing else may be wrong.
            let mut serve = Command::new(TIDEWHEEL);
            serve.args(["serve", "--listen", "nowhere", "--config"]).arg(&file).env_clear();
            let told = String::from_utf8(serve.output().unwrap().stderr).unwrap();
            assert!(told.contains("has one fault") && told.contains("--listen"), "{place}: {told}");
        }
        "python" => {
            let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
            assert_ne!(content("python3", &["-c", parse], &file), Some(false), "{place}");
        }
        "rust" => {
            fs::write(&file, format!("async fn block() -> Result<(), Error> {{\n{text}\nOk(())\n}}\n"))
                .unwrap();
            assert_ne!(
                content("rustfmt", &["--edition", "2024", "--emit", "stdout"], &file),
                Some(false),
                "{place}"
            );
        }
        "ts" => {
            // The package's README is run by its tests, so what stands in it works.
            let readme = fs::read_to_string(root().join("sdk/typescript/README.md")).unwrap();
            assert!(readme.contains(text.trim_end()), "{place} is not in sdk/typescript/README.md");
        }
        _ => {}
    }
}

#[test]
fn every_other_block_is_what_it_says_it_is() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut read = 0;
    for block in pages().iter().flat_map(|page| blocks(page)) {
        reads_as_it_should(&block, folder.path());
        read += 1;
    }
    assert!(read > 30);
}

#[test]
fn every_page_is_in_the_index() {
    for page in pages() {
        let own = page.with_file_name("README.md");
        let index = if own.exists() { own } else { root().join("docs/README.md") };
        let name = page.strip_prefix(index.parent().unwrap()).unwrap().display().to_string();
        let listed = fs::read_to_string(&index).unwrap().contains(&format!("]({name})"));
        assert!(name == "README.md" || listed, "{name} is not in {}", index.display());
    }
}

#[test]
fn the_picture_of_top_is_the_golden_one() {
    let golden = "crates/cli/src/top/snapshots/tidewheel_cli__top__draw__tests__top_80x24.snap";
    let golden = fs::read_to_string(root().join(golden)).unwrap();
    let picture = golden.splitn(3, "---\n").nth(2).unwrap();
    let shown = blocks(&root().join("docs/command-line.md"));
    assert!(shown.iter().any(|block| block.text == picture), "docs/command-line.md shows something else");
}

#[test]
fn a_page_that_does_not_tell_the_truth_is_found_out() {
    assert!(agrees("job_01M7EPTYPCA8ASPMREFWWW29FG  dead", "job_01M7EPTYPCA8ASPMREFWWW29FH dead", false));
    assert!(agrees(
        "after 3ms: {\"at\":\"2026-11-15T04:18:22.028Z\"}",
        "after 12ms: {\"at\":\"2026-12-15T04:18:22.028Z\"}",
        false
    ));
    assert!(agrees("a\n…\nd", "a\nb\nc\nd", false));
    for (expected, printed, is_exact) in [
        ("job_01M7EPTYPCA8ASPMREFWWW29FG  dead", "job_01M7EPTYPCA8ASPMREFWWW29FG  succeeded", false),
        ("2026-03-29T01:00:00.000Z", "2026-03-29T01:30:00.000Z", true),
        ("a\n…\nd", "a\nb\nc", false),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
    ] {
        assert!(!agrees(expected, printed, is_exact), "{expected} is not {printed}");
    }
}
