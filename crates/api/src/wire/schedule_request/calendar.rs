//! A named set of dates.

use tidewheel_core::schedule::Dates;

use super::timing::read_dates;
use crate::known_fields;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::read;

/// A calendar as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarRequest {
    /// Its dates.
    pub dates: Dates,
}

known_fields!(CalendarFields { dates = "dates", idempotency_key = "idempotency_key" });

impl CalendarRequest {
    /// Reads a calendar.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: CalendarFields<'_> = read::body(text, at, faults)?;
        let Some(field) = fields.dates else {
            faults.add(Code::MissingField, &at.field("dates"), "a calendar needs dates, be it none: []");
            return None;
        };
        let dates = read_dates(&field, at, faults)?;
        if let Err(fault) = dates.check_calendar() {
            field.refuse(Code::InvalidValue, at, faults, fault.detail);
        }
        Some(Self { dates })
    }
}
