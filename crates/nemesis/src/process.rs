//! Processes that were started here: signals to them by id, and an end for all of them, also when a run fails.

use std::process::{Child, Command};

use anyhow::Context as _;
use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

/// A child that is killed when it is dropped.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended; its exit code, if it had one.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.0.try_wait().ok().flatten().map(|status| status.code())
    }

    /// Ends it at once, and waits for that.
    pub fn kill(&mut self) {
        // An error means that it is gone already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to one process; nothing happens if it is gone.
pub fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        kill_process(pid, signal).ok();
    }
}

/// The children of a process, and theirs, as far as they are still its.
#[must_use]
pub fn descendants(id: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![id];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, but ends with the last bracket.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Whether this process may do what root may.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be run, or fails: with what it said.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        anyhow::bail!("{command:?}: {said}");
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
