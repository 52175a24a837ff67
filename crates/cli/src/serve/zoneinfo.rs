//! Reads a time zone database from a folder, as `zic` makes one: a compiled file per zone, under the zone's name.
//! It is read once, whole, at the start: files that are replaced later do not change a server that runs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tidewheel_core::zones::Zones;

/// What a compiled file begins with.
const MAGIC: &[u8] = b"TZif";
/// The largest file of a zone; the real ones have a few thousand bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Zones in a folder; the real ones have about six hundred.
const FILES_COUNT_MAX: usize = 10_000;
/// How deep zones lie (`America/Argentina/Buenos_Aires`), and one more.
const DEPTH_MAX: usize = 4;
/// Copies of all zones, with other names or counting leap seconds, and files of the machine that hold one of them.
const PASSED_OVER: &[&str] = &["posix", "right", "localtime", "posixrules"];
/// Zones that every database has; a folder without them is not one.
const WELL_KNOWN: &[&str] = &["UTC", "America/New_York"];
/// Where a folder may tell its version.
const VERSION_FILES: &[&str] = &["tzdata.zi", "+VERSION", "version"];
/// The longest version that is believed to be one.
const VERSION_CHARS_MAX: usize = 32;

/// The database in `folder`.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Zones> {
    let advice = "give --tz-dir a folder of compiled zones, as `zic -d` makes it and systems have it in \
                  /usr/share/zoneinfo, or leave it out for the database that comes with the program";
    read_folder(folder).with_context(|| format!("{} holds no usable tz database; {advice}", folder.display()))
}

fn read_folder(folder: &Path) -> anyhow::Result<Zones> {
    let mut files = BTreeMap::new();
    gather(folder, "", 1, &mut files)?;
    for name in WELL_KNOWN {
        if !files.contains_key(*name) {
            bail!("there is no zone {name} in it");
        }
    }
    let version = version(folder);
    let zones = Zones::from_files(&files, version.as_deref(), &folder.display().to_string())?;
    if version.is_none() {
        tracing::warn!(
            folder = %folder.display(),
            "the tz database does not tell its version (in {}); a digest of it stands for the version",
            VERSION_FILES.join(", ")
        );
    }
    Ok(zones)
}

/// Takes the compiled files in a folder and those in it; the rest, such as lists and sources, is passed over.
fn gather(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut BTreeMap<Box<str>, Vec<u8>>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let entry = entry.with_context(|| format!("{} cannot be read", folder.display()))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if PASSED_OVER.contains(&&*name) && depth == 1 {
            continue;
        }
        let path = entry.path();
        // Through links: a zone that is another name of a zone often is one.
        let about = fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let zone = format!("{prefix}{name}");
        if about.is_dir() && depth < DEPTH_MAX {
            gather(&path, &format!("{zone}/"), depth + 1, files)?;
        } else if about.is_file()
            && let Some(bytes) = compiled(&path)?
        {
            if files.len() >= FILES_COUNT_MAX {
                bail!("there are more than {FILES_COUNT_MAX} zones in it");
            }
            files.insert(zone.into(), bytes);
        }
    }
    Ok(())
}

/// What a file holds, if it is a compiled zone.
fn compiled(path: &PathBuf) -> anyhow::Result<Option<Vec<u8>>> {
    let failed = || format!("{} cannot be read", path.display());
    let mut bytes = Vec::new();
    let mut file = File::open(path).with_context(failed)?.take(FILE_BYTES_MAX + 1);
    let magic_bytes = u64::try_from(MAGIC.len()).unwrap_or(u64::MAX);
    file.by_ref().take(magic_bytes).read_to_end(&mut bytes).with_context(failed)?;
    if bytes != MAGIC {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).with_context(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        bail!("{} is larger than {FILE_BYTES_MAX} bytes", path.display());
    }
    Ok(Some(bytes))
}

/// The version a folder tells: in the first line of `tzdata.zi` (`# version 2026a`), or as all of another file.
fn version(folder: &Path) -> Option<String> {
    VERSION_FILES.iter().find_map(|name| {
        let mut bytes = Vec::new();
        let file = File::open(folder.join(name)).ok()?;
        file.take(u64::try_from(2 * VERSION_CHARS_MAX).unwrap_or(0)).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().next()?.trim();
        let version = line.strip_prefix("# version ").unwrap_or(line).trim();
        let is_one = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
        let is_sound = (1..=VERSION_CHARS_MAX).contains(&version.len()) && version.chars().all(is_one);
        is_sound.then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A compiled zone that is always the same: rules in a footer, as `zic` writes them.
    fn zone(posix: &str) -> Vec<u8> {
        let header = |types: u32, chars: u32| {
            let mut header = b"TZif2".to_vec();
            header.extend([0; 15]);
            for count in [0, 0, 0, 0, types, chars] {
                header.extend(count.to_be_bytes());
            }
            header
        };
        // The block for old readers has one type too; then the same again for new ones.
        let block = [0, 0, 0, 0, 0, 0, b'-', 0];
        let (header, footer) = (header(1, 2), format!("\n{posix}\n"));
        [&header[..], &block, &header, &block, footer.as_bytes()].concat()
    }

    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let folder = TempDir::new().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    fn refusal(folder: &Path) -> String {
        format!("{:#}", read(folder).err().unwrap())
    }

    #[test]
    fn a_folder_of_compiled_zones_is_read_with_its_version() {
        let (utc, east) = (zone("UTC0"), zone("<+01>-1"));
        let zones: &[(&str, &[u8])] = &[
            ("UTC", &utc),
            ("America/New_York", &utc),
            ("America/Argentina/Salta", &east),
            ("posix/Only/Here", &east),
            ("zone.tab", b"# a list\n"),
            ("tzdata.zi", b"# version 2099z\n# This zic input file is in the public domain.\n"),
        ];
        let folder = folder(zones);
        let read = read(folder.path()).unwrap();
        assert_eq!((read.version(), read.folder()), ("2099z", folder.path().to_str()));
        assert!(read.zone("America/Argentina/Salta").is_ok());
        assert!(read.zone("posix/Only/Here").is_err() && read.zone("zone.tab").is_err());
        for (name, text, version) in [("+VERSION", "2099y\n", "2099y"), ("version", "2099x", "2099x")] {
            fs::remove_file(folder.path().join("tzdata.zi")).ok();
            fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(super::read(folder.path()).unwrap().version(), version);
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        let unnamed = super::read(folder.path()).unwrap();
        assert!(unnamed.version().starts_with("digest-"), "{}", unnamed.version());
    }

    #[test]
    fn what_is_no_database_is_refused_with_the_reason() {
        let text = refusal(Path::new("/nonexistent/zones"));
        assert!(text.contains("/nonexistent/zones cannot be read: No such file"), "{text}");
        assert!(text.contains("--tz-dir"), "{text}");
        assert!(refusal(folder(&[]).path()).contains("there is no zone UTC in it"));
        let utc = zone("UTC0");
        let text = refusal(folder(&[("UTC", &utc)]).path());
        assert!(text.contains("there is no zone America/New_York in it"), "{text}");
        let broken = [("UTC", &*utc), ("America/New_York", &b"TZif2 and nothing more"[..])];
        let text = refusal(folder(&broken).path());
        assert!(text.contains("the rules of America/New_York cannot be read"), "{text}");
        let large = [b"TZif2".to_vec(), vec![0; usize::try_from(FILE_BYTES_MAX).unwrap()]].concat();
        assert!(refusal(folder(&[("UTC", &large)]).path()).contains("is larger than"));
    }
}
