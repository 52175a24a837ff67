//! A folder for the servers under test, gone when the benchmark ends, however it ends.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Tries at removing the folder: an interrupted server may still be writing while it goes.
const REMOVALS_MAX: u32 = 20;

/// The folder; removed when dropped.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder in `parent`, or where the system keeps temporary files.
    pub(super) fn create(parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("tidewheel-bench-{}", std::process::id()));
        fs::create_dir_all(&parent)
            .and_then(|()| fs::create_dir(&path))
            .with_context(|| format!("making the scratch folder {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where a part of the benchmark keeps its data.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Removes what a part kept.
    pub(super) fn clear(&self, name: &str) {
        remove(&self.folder(name));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(Some(parent.path())).unwrap();
        fs::create_dir_all(scratch.folder("a").join("b")).unwrap();
        fs::write(scratch.folder("a").join("b/file"), "x").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
