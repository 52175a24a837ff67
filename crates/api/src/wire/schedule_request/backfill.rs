//! A wish to make up for a stretch of instants by hand.

use tidewheel_core::time::Timestamp;

use crate::known_fields;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::order_request::{read_rate, spread};
use crate::wire::read;

/// Instants made up for in one call; the answer says where the next call goes on.
pub const BACKFILL_COUNT_MAX: usize = 10_000;

/// A wish to make up for a stretch of instants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackfillRequest {
    /// Instants from here …
    pub from: Timestamp,
    /// … to here, both included.
    pub to: Timestamp,
    /// How many start per second; without it, all at once.
    pub rate: Option<f64>,
}

known_fields!(BackfillFields { from = "from", to = "to", rate = "rate", idempotency_key = "idempotency_key" });

impl BackfillRequest {
    /// Reads the wish; it goes up to now unless it says otherwise.
    pub fn read(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: BackfillFields<'_> = read::body(text, at, faults)?;
        let rate = fields.rate.and_then(|field| read_rate(&field, at, faults));
        let to = fields.to.and_then(|field| field.time(at, faults)).unwrap_or(now);
        if let Some(field) = fields.to
            && to > now
        {
            field.refuse(Code::InvalidValue, at, faults, format!("{to} has not come; it is {now}"));
        }
        let Some(field) = fields.from else {
            faults.add(Code::MissingField, &at.field("from"), "say from when on");
            return None;
        };
        let from = field.time(at, faults)?;
        if from > to {
            field.refuse(Code::InvalidValue, at, faults, format!("{from} lies after {to}, the end"));
        }
        Some(Self { from, to, rate })
    }

    /// When instant number `index` of the call starts, if the first does at `now`.
    #[must_use]
    pub fn start_of(&self, index: usize, now: Timestamp) -> Timestamp {
        spread(now, self.rate, index)
    }
}
