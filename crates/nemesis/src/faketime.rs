//! Processes whose wall clock is set while they run, by a library of the system.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the library is, if it is installed.
#[must_use]
pub fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    found.find(|library| Path::new(library).exists())
}

/// Has a process go by a wall clock that is ahead by what `file` says. Its monotonic clock stays as it is.
pub fn go_by(command: &mut Command, library: &Path, file: &Path) {
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
}

/// Sets the clock of those that go by `file`.
///
/// # Errors
/// When the file cannot be written.
pub fn set(file: &Path, by_s: i64) -> std::io::Result<()> {
    let next = file.with_extension("next");
    std::fs::write(&next, format!("{by_s:+}\n"))?;
    // In one step: it is read at any moment.
    std::fs::rename(next, file)
}
