//! What the operating system says about this process and its files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;

/// The kernel counts CPU time in these, whatever its own clock.
const TICKS_PER_SECOND: f64 = 100.0;
/// A block of `st_blocks`, whatever the filesystem's own.
const BLOCK_BYTES: u64 = 512;

/// CPU seconds used so far, on all threads.
pub(super) fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("reading CPU time")?;
    parse_cpu_ticks(&stat).map(|ticks| ticks / TICKS_PER_SECOND).context("reading CPU time")
}

/// User and system time are fields 14 and 15, counted from the end of the name, which may hold anything.
fn parse_cpu_ticks(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Memory in use now.
pub(super) fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("reading memory use")?;
    parse_resident(&status).context("reading memory use")
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// What the files under a folder take on disk; files made ahead of need count by what they hold.
pub(super) fn disk_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        // A file may go between the listing and the look at it.
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        total += if found.is_dir() { disk_bytes(&path)? } else { found.blocks() * BLOCK_BYTES };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_spaces_and_brackets_is_skipped() {
        let stat = "1 (a) 9 9 b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        assert_eq!(parse_cpu_ticks(stat), Some(300.0));
    }

    #[test]
    fn memory_is_told_in_kibibytes() {
        assert_eq!(parse_resident("VmPeak:\t 9 kB\nVmRSS:\t   2048 kB\n"), Some(2_097_152));
    }
}
