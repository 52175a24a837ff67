//! A process under callgrind, and the counts of windows of its life.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use tokio::process::{Child, Command};

use crate::profile::Profile;
use crate::stopwatch::PATIENCE;
use crate::trace::Calls;

/// What is run, and with what.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Whether its stdin and stdout are pipes to us.
    pub(crate) talks: bool,
}

/// The process; killed when dropped.
pub(crate) struct Watched {
    pub(crate) child: Child,
    counter: Counter,
}

impl Watched {
    /// Starts it; what valgrind writes goes to `folder`.
    pub(crate) fn start(program: &Program, folder: &Path) -> anyhow::Result<Self> {
        let (log, dump) = (folder.join("valgrind.log"), folder.join("callgrind.out"));
        let said = fs::File::create(folder.join("said.log"))?;
        let talk = || if program.talks { Stdio::piped() } else { Stdio::null() };
        let child = Command::new("valgrind")
            .args(options(&log, &dump))
            .arg(&program.path)
            .args(&program.arguments)
            // One thread takes requests: which of several does is left to chance.
            .env("TOKIO_WORKER_THREADS", "1")
            .env("NO_COLOR", "1")
            .stdin(talk())
            .stdout(talk())
            .stderr(said)
            .kill_on_drop(true)
            .spawn()
            .context("starting valgrind")?;
        let pid = child.id().context("a process that has ended already")?;
        Ok(Self { child, counter: Counter { pid, log, dump, dumps: 0, log_begin: 0 } })
    }

    /// Fails once it has ended.
    pub(crate) fn must_run(&mut self, folder: &Path) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said = fs::read_to_string(folder.join("said.log")).unwrap_or_default();
            bail!("the server ended with {status}: {said}");
        }
        Ok(())
    }

    /// Starts a window.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<()> {
        self.counter.begin().await
    }

    /// Ends it.
    pub(crate) async fn end(&mut self) -> anyhow::Result<(Profile, Calls)> {
        self.counter.end().await
    }

    /// Ends the process at once: what it would do to end well is not of interest.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        tokio::time::timeout(PATIENCE, self.child.kill()).await.context("a server that does not end")??;
        Ok(())
    }
}

/// How valgrind is asked to count.
fn options(log: &Path, dump: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = [
        "--tool=callgrind",
        // Threads take turns in the order they asked, instead of as it happens.
        "--fair-sched=yes",
        "--trace-syscalls=yes",
        "--dump-line=no",
    ]
    .map(OsString::from)
    .to_vec();
    for (name, path) in [("--log-file=", log), ("--callgrind-out-file=", dump)] {
        let mut option = OsString::from(name);
        option.push(path);
        all.push(option);
    }
    all
}

/// Counts windows of a process that runs under callgrind.
struct Counter {
    pid: u32,
    log: PathBuf,
    dump: PathBuf,
    dumps: u32,
    /// How long the log was when the window began.
    log_begin: usize,
}

impl Counter {
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.tell("zero").await?;
        self.log_begin = log_length(&self.log)?;
        Ok(())
    }

    async fn end(&mut self) -> anyhow::Result<(Profile, Calls)> {
        let log_end = log_length(&self.log)?;
        self.tell("dump").await?;
        self.dumps += 1;
        let mut path = self.dump.clone().into_os_string();
        path.push(format!(".{}", self.dumps));
        counted(Path::new(&path), &self.log, self.log_begin..log_end)
    }

    async fn tell(&self, word: &str) -> anyhow::Result<()> {
        let told =
            Command::new("vgdb").arg(format!("--pid={}", self.pid)).arg(word).kill_on_drop(true).output();
        let told = tokio::time::timeout(PATIENCE, told).await.context("valgrind does not answer")??;
        ensure!(told.status.success(), "valgrind: {}", String::from_utf8_lossy(&told.stderr).trim());
        Ok(())
    }
}

/// How much valgrind has written down of system calls.
pub(crate) fn log_length(log: &Path) -> anyhow::Result<usize> {
    let found = fs::metadata(log).with_context(|| format!("reading {}", log.display()))?;
    Ok(usize::try_from(found.len())?)
}

/// Reads what was dumped at the end of a window, and the part of the log that was written in it.
pub(crate) fn counted(dump: &Path, log: &Path, window: Range<usize>) -> anyhow::Result<(Profile, Calls)> {
    let text = fs::read_to_string(dump).with_context(|| format!("reading {}", dump.display()))?;
    let profile = Profile::parse(&text).with_context(|| format!("reading {}", dump.display()))?;
    let log = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    Ok((profile, Calls::parse(&String::from_utf8_lossy(&log), window)))
}
