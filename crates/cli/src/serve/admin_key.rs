//! The file that holds the first admin's key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use tidewheel_core::limits::KEY_BYTES_MAX;
use tidewheel_server::directory::Directory;

/// Only its owner reads and writes it.
const OWNER_ONLY: u32 = 0o600;
/// What others may do with a file.
const OTHERS: u32 = 0o077;
/// Shorter keys may be guessed; they are taken, and complained about.
const KEY_CHARS_SAFE: usize = 32;
const KEY_CHARS_MIN: usize = 8;

/// The key in the file; a missing file is made, with a fresh key that nobody but its owner can read.
pub(super) fn read_or_make(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Ok(file) => make(file).with_context(|| format!("cannot write a key to {shown}")).inspect_err(|_| {
            // Half a key must not be taken for one by the next start.
            fs::remove_file(path).ok();
        }),
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(fault) => Err(fault).with_context(|| format!("cannot make {shown} for the first admin's key")),
    }
}

fn make(mut file: File) -> anyhow::Result<String> {
    let key = Directory::fresh_key()?;
    file.write_all(format!("{key}\n").as_bytes())?;
    file.sync_all()?;
    Ok(key)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the admin key file {shown}"))?;
    let mode = file.metadata()?.permissions().mode();
    if mode & OTHERS != 0 {
        tracing::warn!(file = %shown, "others on this machine can read the admin key file; chmod 600 it");
    }
    let mut text = String::new();
    let limit = u64::try_from(KEY_BYTES_MAX).unwrap_or(u64::MAX);
    let read = file.take(limit + 1).read_to_string(&mut text);
    read.with_context(|| format!("the admin key file {shown} is not text"))?;
    let key = text.trim();
    // The key itself is not repeated: this goes to a log.
    if key.len() < KEY_CHARS_MIN
        || text.len() > KEY_BYTES_MAX
        || !key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        bail!(
            "the admin key file {shown} does not hold a key: {KEY_CHARS_MIN} to {KEY_BYTES_MAX} visible characters; \
             remove it to have one made"
        );
    }
    if key.len() < KEY_CHARS_SAFE {
        tracing::warn!(file = %shown, "the admin key is short enough to be guessed; remove the file to have one made");
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_made_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.key");
        let made = read_or_make(&path).unwrap();
        assert!(made.starts_with("twk_") && made.len() >= 40, "it has 256 bits");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert_eq!(read_or_make(&path).unwrap(), made);
        assert_ne!(read_or_make(&folder.path().join("other")).unwrap(), made);
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.key");
        for text in ["", "short", "with a space in it", "control\u{7}character", &"x".repeat(600)] {
            fs::write(&path, text).unwrap();
            let fault = format!("{:#}", read_or_make(&path).unwrap_err());
            assert!(fault.contains("does not hold a key"), "{fault}");
            assert!(text.is_empty() || !fault.contains(text), "{fault}");
        }
        fs::write(&path, "twk_chosen-by-hand-and-long-enough\n").unwrap();
        assert_eq!(read_or_make(&path).unwrap(), "twk_chosen-by-hand-and-long-enough");
        assert!(read_or_make(&folder.path().join("no/such/folder")).is_err());
    }
}
