//! When schedules fire: a rule, and the dates of a calendar. Reading a cron expression and finding a
//! zone take long beside all else about a schedule, so rules that were read are kept. Most schedules share
//! theirs with many others: those of one beat and zone are one rule.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::civil::Date;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tidewheel_core::cron::{Cron, Dst, Fold, Gap};
use tidewheel_core::schedule::{Dates, Exclude, Roll, Rule, Timing, Zone};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;

use super::Unreadable;

/// Rules kept; when there are more, all are forgotten and read again as they are met.
const RULES_KNOWN_COUNT_MAX: usize = 4_096;
/// Longer ones, with their many dates, are nobody else's.
const RULE_KNOWN_BYTES_MAX: usize = 256;

/// The rules met so far, and the zones they may be in.
pub(crate) struct Rules {
    zones: Zones,
    known: Mutex<FxHashMap<Bytes, Arc<Rule>>>,
}

#[derive(Serialize, Deserialize)]
struct RuleRecord<'a> {
    #[serde(borrow)]
    beat: Beat<'a>,
    zone: &'a str,
    skips_gaps: bool,
    runs_folds_twice: bool,
    start_at: Option<i64>,
    end_at: Option<i64>,
    dates: Vec<i32>,
    calendar: Option<&'a str>,
    roll: u8,
}

#[derive(Serialize, Deserialize)]
enum Beat<'a> {
    Cron(&'a str),
    Every { interval_ms: i64, anchor: i64 },
}

impl Rules {
    pub(crate) fn new(zones: Option<Zones>) -> Self {
        Self { zones: zones.unwrap_or_else(Zones::bundled), known: Mutex::default() }
    }

    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Arc<Rule>, Unreadable> {
        if let Some(rule) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(bytes) {
            return Ok(Arc::clone(rule));
        }
        let record = postcard::from_bytes(bytes).map_err(|_| Unreadable::Nonsense("a rule"))?;
        let rule = Arc::new(self.read(record)?);
        if bytes.len() <= RULE_KNOWN_BYTES_MAX {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= RULES_KNOWN_COUNT_MAX {
                known.clear();
            }
            known.insert(Bytes::copy_from_slice(bytes), Arc::clone(&rule));
        }
        Ok(rule)
    }

    fn read(&self, record: RuleRecord<'_>) -> Result<Rule, Unreadable> {
        let timing = match record.beat {
            Beat::Cron(text) => {
                let cron = Cron::parse(text).map_err(|_| Unreadable::Nonsense("a cron expression"))?;
                Timing::Cron(Box::new(cron))
            }
            Beat::Every { interval_ms, anchor } => {
                Timing::Every { interval_ms, anchor: Timestamp::from_ms(anchor) }
            }
        };
        let zone = if record.zone == Zone::utc().name() {
            Zone::utc()
        } else {
            self.zones.zone(record.zone).map_err(|_| Unreadable::Zone(record.zone.into()))?
        };
        let exclude = Exclude {
            dates: read_dates(&record.dates)?,
            calendar: record.calendar.map(Into::into),
            roll: Roll::ALL.get(usize::from(record.roll)).copied().ok_or(Unreadable::Nonsense("a roll"))?,
        };
        Ok(Rule {
            timing,
            zone,
            dst: Dst {
                gap: if record.skips_gaps { Gap::Skip } else { Gap::NextValid },
                fold: if record.runs_folds_twice { Fold::Both } else { Fold::First },
            },
            start_at: record.start_at.map(Timestamp::from_ms),
            end_at: record.end_at.map(Timestamp::from_ms),
            exclude,
        })
    }
}

pub(crate) fn encode(rule: &Rule) -> Vec<u8> {
    let text;
    let beat = match &rule.timing {
        Timing::Cron(cron) => {
            text = cron.to_string();
            Beat::Cron(&text)
        }
        Timing::Every { interval_ms, anchor } => {
            Beat::Every { interval_ms: *interval_ms, anchor: anchor.as_ms() }
        }
    };
    let record = RuleRecord {
        beat,
        zone: rule.zone.name(),
        skips_gaps: rule.dst.gap == Gap::Skip,
        runs_folds_twice: rule.dst.fold == Fold::Both,
        start_at: rule.start_at.map(Timestamp::as_ms),
        end_at: rule.end_at.map(Timestamp::as_ms),
        dates: date_numbers(&rule.exclude.dates),
        calendar: rule.exclude.calendar.as_deref(),
        roll: rule.exclude.roll as u8,
    };
    postcard::to_stdvec(&record).unwrap_or_default()
}

/// Dates as numbers that read like them: 20261225.
pub(crate) fn date_numbers(dates: &Dates) -> Vec<i32> {
    let number =
        |date: &Date| i32::from(date.year()) * 10_000 + i32::from(date.month()) * 100 + i32::from(date.day());
    dates.as_slice().iter().map(number).collect()
}

pub(crate) fn read_dates(numbers: &[i32]) -> Result<Dates, Unreadable> {
    let date = |number: &i32| {
        let year = i16::try_from(number.div_euclid(10_000)).ok()?;
        let month = i8::try_from(number.rem_euclid(10_000) / 100).ok()?;
        let day = i8::try_from(number.rem_euclid(100)).ok()?;
        Date::new(year, month, day).ok()
    };
    numbers.iter().map(|number| date(number).ok_or(Unreadable::Nonsense("a date"))).collect()
}
