//! The code blocks of the documents, and a shell that runs those of one page against a server of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, TIDEWHEEL};

/// A fenced block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// File and line, for whoever has to mend it.
    pub(crate) place: String,
    /// The first word after the fence.
    pub(crate) language: String,
    /// The rest of that line.
    pub(crate) info: String,
    pub(crate) text: String,
    /// Whether nothing but blank lines stands between it and the block before.
    pub(crate) follows: bool,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The documents, folders below included.
pub(crate) fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&root().join("docs"), &mut found);
    found.sort();
    found
}

/// All blocks of a page.
pub(crate) fn blocks(path: &Path) -> Vec<Block> {
    let page = fs::read_to_string(path).unwrap();
    let shown = path.strip_prefix(root()).unwrap().display().to_string();
    let mut blocks = Vec::new();
    let mut open: Option<(String, Block)> = None;
    let mut text_between = true;
    for (line, number) in page.lines().zip(1..) {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        match &mut open {
            None => {
                if let Some(info) = trimmed.strip_prefix("```") {
                    let (language, info) = info.split_once(' ').unwrap_or((info, ""));
                    let block = Block {
                        place: format!("{shown}:{number}"),
                        language: language.to_owned(),
                        info: info.to_owned(),
                        text: String::new(),
                        follows: !text_between,
                    };
                    open = Some((indent.to_owned(), block));
                } else if !trimmed.is_empty() {
                    text_between = true;
                }
            }
            Some(_) if trimmed == "```" => {
                blocks.push(open.take().unwrap().1);
                text_between = false;
            }
            Some((indent, block)) => {
                block.text.push_str(line.strip_prefix(indent.as_str()).unwrap_or(line));
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{shown} has a block without an end");
    blocks
}

/// A command and what the page says it prints.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) expected: String,
}

/// `$ command`, `> more of it`, and its output.
pub(crate) fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), expected: String::new() });
            continue;
        }
        let step = steps.last_mut().unwrap_or_else(|| panic!("{}: output before a command", block.place));
        match line.strip_prefix("> ").filter(|_| step.expected.is_empty()) {
            Some(more) => step.command.push_str(&format!("\n{more}")),
            None => step.expected.push_str(&format!("{line}\n")),
        }
    }
    steps
}

/// One shell for all blocks of a page, so that what one sets the next has; in a folder of its own.
pub(crate) struct Session {
    server: Server,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _folder: TempDir,
    _data: TempDir,
}

const END: &str = "----end-of-step----";

impl Session {
    pub(crate) fn start() -> Self {
        let (data, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let server = Server::start(data.path());
        let bin = folder.path().join(".bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(TIDEWHEEL, bin.join("tidewheel")).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh")
            .current_dir(folder.path())
            .env("PATH", path)
            .env("TIDEWHEEL_URL", server.url())
            .env("HOME", folder.path())
            .env_remove("TIDEWHEEL_KEY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        Self { server, shell, input, output, _folder: folder, _data: data }
    }

    /// Runs commands; gives their exit code and what they printed, notes and errors included.
    pub(crate) fn run(&mut self, commands: &str) -> (i32, String) {
        let address = self.server.address.to_string();
        let commands = commands.replace("127.0.0.1:7400", &address);
        writeln!(self.input, "{{ {commands}\n}} 2>&1 < /dev/null; echo \"{END}$?\"").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the shell ended in: {commands}\n{printed}");
            if let Some((before, code)) = line.split_once(END) {
                printed.push_str(before);
                return (code.trim().parse().unwrap(), printed.replace(&address, "127.0.0.1:7400"));
            }
            printed.push_str(&line);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only this test's own child.
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}

/// Ids, times, durations and digests differ from run to run; the rest may not.
pub(crate) fn shape(text: &str) -> String {
    let is_edge = |c: char| c.is_whitespace() || "\",:;{}[]()<>=".contains(c);
    let mut shaped = String::new();
    // Times have colons inside, so they are found first.
    for word in text.split_inclusive(|c: char| c.is_whitespace() || "\",{}[]()<>".contains(c)) {
        let core = word.trim_matches(is_edge);
        let kind = kind(core);
        shaped.push_str(&if core.is_empty() { word.to_owned() } else { word.replacen(core, kind, 1) });
    }
    shaped
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn kind(word: &str) -> &str {
    const IDS: [&str; 7] = ["job_", "sch_", "key_", "wrk_", "node_", "twk_", "whsec_"];
    let id = IDS.iter().find(|prefix| word.starts_with(**prefix) && word.len() > prefix.len() + 8);
    let is_time =
        word.len() >= 20 && word.starts_with("20") && word.get(10..11) == Some("T") && word.contains('Z');
    // Such as 12ms, 59m59s498ms and 1,250/s.
    let is_duration = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h'])
        && word.chars().all(|c| c.is_ascii_digit() || ".,/smh".contains(c));
    let is_version = word.split('.').count() == 3 && word.split('.').all(|part| part.parse::<u32>().is_ok());
    let is_tz_version =
        word.len() == 5 && word.starts_with("20") && word.ends_with(|c: char| c.is_ascii_lowercase());
    match id {
        Some(prefix) => prefix,
        None if is_version || is_tz_version => "VERSION",
        None if is_time => "TIME",
        None if is_duration => "DURATION",
        None => word,
    }
}

/// Whether what was printed is what the page shows. A line of `…` stands for any lines.
pub(crate) fn agrees(expected: &str, printed: &str, is_exact: bool) -> bool {
    let lines = |text: &str| -> Vec<String> {
        let text = if is_exact { text.to_owned() } else { shape(text) };
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    matches(&lines(expected), &lines(printed))
}

fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skip| matches(rest, &printed[skip..]))
        }
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, more)| line == first && matches(rest, more))
        }
    }
}
