//! Zone names, taken only as the time zone database spells them: a name that some systems understand and
//! others do not (`GMT+3`, `america/new_york`) would make a schedule depend on where it was made.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The longest name a suggestion is sought for; real ones are at most half as long.
const NAME_BYTES_MAX: usize = 64;
/// How alike two names must be, from 0 to 1, for one to be suggested for the other.
const LIKENESS_MIN: f64 = 0.75;

/// A name that is not in the time zone database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown time zone {name:?}; {}",
    match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "write an IANA name such as Europe/Berlin, or UTC".to_owned(),
    }
)]
pub struct UnknownZone {
    /// The name, cut short if it is longer than any zone's.
    pub name: String,
    /// A known name that looks like it.
    pub nearest: Option<String>,
}

/// The zone of that exact name, by the rules bundled with the program.
pub fn zone(name: &str) -> Result<TimeZone, UnknownZone> {
    zone_in(&TimeZoneDatabase::bundled(), name)
}

/// The zone of that exact name, by the rules in `database`.
pub fn zone_in(database: &TimeZoneDatabase, name: &str) -> Result<TimeZone, UnknownZone> {
    let found = database.get(name).ok().filter(|found| found.iana_name() == Some(name));
    // A database has a place for "no zone known"; a schedule has not.
    let known = || database.available().map(|known| known.as_str().to_owned());
    found.filter(|found| !found.is_unknown()).ok_or_else(|| nearest_zone(known(), name))
}

/// Says that there is no zone of that name, and which of the `known` ones looks like it.
pub(crate) fn nearest_zone(known: impl Iterator<Item = String>, name: &str) -> UnknownZone {
    UnknownZone { name: name.chars().take(NAME_BYTES_MAX).collect(), nearest: nearest(known, name) }
}

fn nearest(known: impl Iterator<Item = String>, name: &str) -> Option<String> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let wanted = name.to_ascii_lowercase();
    let alike = |known: &str| {
        let known = known.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or(&known);
        strsim::jaro_winkler(&known, &wanted).max(strsim::jaro_winkler(city, &wanted))
    };
    let best = known.map(|known| (alike(&known), known)).max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LIKENESS_MIN).then_some(best.1)
}
