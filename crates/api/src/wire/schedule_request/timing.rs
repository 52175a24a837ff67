//! When a schedule fires, as callers write it.

use jiff::civil::Date;
use tidewheel_core::cron::{Cron, Dst, Fold, Gap};
use tidewheel_core::limits::{EXCLUDED_DATES_COUNT_MAX, SCHEDULE_INTERVAL_MS_MAX};
use tidewheel_core::schedule::{Dates, Exclude, Roll, Rule, Timing, Zone};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;

use super::{read_name, settle};
use crate::known_fields;
use crate::wire::fault::{At, Code, Faults, shown};
use crate::wire::read::Field;

/// The fields that decide when a schedule fires.
pub(crate) struct TimeFields<'a> {
    pub(crate) cron_expr: Option<Field<'a>>,
    pub(crate) every: Option<Field<'a>>,
    pub(crate) timezone: Option<Field<'a>>,
    pub(crate) dst: Option<Field<'a>>,
    pub(crate) start_at: Option<Field<'a>>,
    pub(crate) end_at: Option<Field<'a>>,
    pub(crate) exclude: Option<Field<'a>>,
}

impl TimeFields<'_> {
    /// Whether `exclude` is an object.
    pub(crate) fn excludes_by_object(&self) -> bool {
        self.exclude.is_some_and(|field| field.raw().starts_with('{'))
    }
}

known_fields!(DstFields { gap = "gap", fold = "fold" });
known_fields!(ExcludeFields { dates = "dates", calendar = "calendar", roll = "roll" });

const GAPS: [(&str, Gap); 2] = [("next_valid", Gap::NextValid), ("skip", Gap::Skip)];
const FOLDS: [(&str, Fold); 2] = [("first", Fold::First), ("both", Fold::Both)];

/// The wire's name of a rule for gaps.
pub(crate) fn gap_name(gap: Gap) -> &'static str {
    GAPS.iter().find(|(_, known)| *known == gap).map_or("", |(name, _)| name)
}

/// The wire's name of a rule for folds.
pub(crate) fn fold_name(fold: Fold) -> &'static str {
    FOLDS.iter().find(|(_, known)| *known == fold).map_or("", |(name, _)| name)
}

/// Reads a rule, on top of the one there was before.
pub(crate) fn read_rule(
    fields: &TimeFields<'_>,
    base: Option<&Rule>,
    (now, zones): (Timestamp, &Zones),
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Rule> {
    let zone = settle(fields.timezone, base.map(|base| base.zone.clone()), Zone::utc, |field| {
        read_zone(field, zones, at, faults)
    });
    let dst =
        settle(fields.dst, base.map(|base| base.dst), Dst::default, |field| read_dst(field, at, faults));
    let start_at = settle(
        fields.start_at,
        base.map(|base| base.start_at),
        || None,
        |field| field.time(at, faults).map(Some),
    );
    let end_at = settle(
        fields.end_at,
        base.map(|base| base.end_at),
        || None,
        |field| field.time(at, faults).map(Some),
    );
    if let (Some(start), Some(end), Some(field)) = (start_at, end_at, fields.end_at.or(fields.start_at))
        && end < start
    {
        field.refuse(Code::InvalidValue, at, faults, "`end_at` lies before `start_at`");
    }
    let exclude = settle(fields.exclude, base.map(|base| base.exclude.clone()), Exclude::default, |field| {
        read_exclude(field, at, faults)
    });
    let counts_from = match base.map(|base| &base.timing) {
        Some(Timing::Every { anchor, .. }) => *anchor,
        Some(Timing::Cron(_)) | None => now,
    };
    let timing = read_timing(fields, base, start_at.unwrap_or(counts_from), at, faults)?;
    Some(Rule { timing, zone, dst, start_at, end_at, exclude })
}

/// Reads the name of a zone, exactly as the database spells it.
pub(crate) fn read_zone(field: &Field<'_>, zones: &Zones, at: &At<'_>, faults: &mut Faults) -> Option<Zone> {
    let name = field.free_text(at, faults)?;
    let zone = zones.zone(&name);
    zone.map_err(|fault| field.refuse(Code::InvalidTimezone, at, faults, fault.to_string())).ok()
}

fn read_timing(
    fields: &TimeFields<'_>,
    base: Option<&Rule>,
    anchor: Timestamp,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Timing> {
    let cron_expr = fields.cron_expr.filter(|field| !field.is_null());
    let every = fields.every.filter(|field| !field.is_null());
    match (cron_expr, every) {
        (Some(field), None) => {
            let text = field.free_text(at, faults)?;
            let cron = Cron::parse(&text);
            let cron =
                cron.map_err(|fault| field.refuse(Code::InvalidCron, at, faults, fault.to_string())).ok()?;
            Some(Timing::Cron(Box::new(cron)))
        }
        (None, Some(field)) => {
            // The shortest is the tenant's matter.
            let interval_ms = field.duration_within(1, SCHEDULE_INTERVAL_MS_MAX, at, faults)?;
            Some(Timing::Every { interval_ms, anchor })
        }
        (Some(_), Some(field)) => {
            let detail = "`cron_expr` and `every` exclude each other; give one of them";
            field.refuse(Code::ConflictingFields, at, faults, detail);
            None
        }
        (None, None) => {
            let is_left_out = fields.cron_expr.is_none() && fields.every.is_none();
            let kept = base.filter(|_| is_left_out).map(|base| base.timing.clone());
            if kept.is_none() {
                let detail =
                    "a schedule needs `cron_expr` (such as \"0 9 * * MON-FRI\") or `every` (such as \"15m\")";
                faults.add(Code::MissingField, &at.field("cron_expr"), detail);
            }
            kept
        }
    }
}

fn read_dst(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Dst> {
    let fields: DstFields<'_> = field.object(at, faults)?;
    let at = &at.field(field.name());
    let gap = fields.gap.and_then(|field| one_of(&field, &GAPS, at, faults)).unwrap_or_default();
    let fold = fields.fold.and_then(|field| one_of(&field, &FOLDS, at, faults)).unwrap_or_default();
    Some(Dst { gap, fold })
}

fn one_of<T: Copy, const N: usize>(
    field: &Field<'_>,
    known: &[(&'static str, T); N],
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<T> {
    let names = known.each_ref().map(|(name, _)| *name);
    let parse = |text: &str| known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    field.one_of(&names, parse, at, faults)
}

/// Dates, the name of a calendar, or an object with either and a rule for what falls on them.
fn read_exclude(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Exclude> {
    match field.raw().as_bytes().first() {
        Some(b'[') => {
            let dates = read_own_dates(field, at, faults)?;
            Some(Exclude { dates, ..Exclude::default() })
        }
        Some(b'"') => {
            let calendar = Some(read_name(field, at, faults)?);
            Some(Exclude { calendar, ..Exclude::default() })
        }
        Some(_) | None => {
            let fields: ExcludeFields<'_> = field.object(at, faults)?;
            let at = &at.field(field.name());
            let dates = fields.dates.and_then(|field| read_own_dates(&field, at, faults)).unwrap_or_default();
            let calendar = fields.calendar.and_then(|field| read_name(&field, at, faults));
            let roll = fields
                .roll
                .and_then(|field| field.one_of(&Roll::ALL.map(Roll::as_str), Roll::from_name, at, faults));
            Some(Exclude { dates, calendar, roll: roll.unwrap_or_default() })
        }
    }
}

fn read_own_dates(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Dates> {
    let dates = read_dates(field, at, faults)?;
    let count = dates.as_slice().len();
    if count > EXCLUDED_DATES_COUNT_MAX {
        let detail = format!(
            "there are {count} dates; at most {EXCLUDED_DATES_COUNT_MAX} are allowed: put more into a calendar"
        );
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    Some(dates)
}

/// Reads an array of dates such as `2026-12-25`.
pub(super) fn read_dates(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Dates> {
    let items = field.items(at, faults)?;
    let dates_at = at.field(field.name());
    let mut dates = Vec::with_capacity(items.len());
    for (index, raw) in items.into_iter().enumerate() {
        let at = dates_at.item(index);
        let Some(text) = Field::item(raw).text(&at, faults) else { continue };
        match date(&text) {
            Some(date) => dates.push(date),
            None => {
                let detail = format!("{:?} is not a date; write it like 2026-12-25", shown(&text));
                faults.add(Code::InvalidValue, &at, detail);
            }
        }
    }
    Some(dates.into_iter().collect())
}

/// A date in the one form that is meant: calendars know several.
fn date(text: &str) -> Option<Date> {
    let is_plain = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    is_plain.then(|| text.parse().ok()).flatten()
}
