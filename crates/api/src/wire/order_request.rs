//! What is asked of jobs that exist: a new time or priority, another run, one for many.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Priority, Target};
use tidewheel_core::limits::BULK_IDS_COUNT_MAX;
use tidewheel_core::time::Timestamp;

use super::fault::{At, Code, Faults, shown};
use super::filter::{JobFilter, read_filter};
use super::job_request::{TargetFields, TargetRules, read_payload, read_priority, read_start, read_target};
use super::query;
use super::read::{self, Field};
use crate::known_fields;

/// Jobs a second a bulk replay may start at most.
const RATE_MAX: f64 = 100_000.0;
/// And at least: one in a day.
const RATE_MIN: f64 = 1.0 / 86_400.0;

/// A change to a waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmendRequest {
    /// Another time.
    pub run_at: Option<Timestamp>,
    /// Another priority.
    pub priority: Option<Priority>,
}

known_fields!(AmendFields {
    run_at = "run_at",
    delay = "delay",
    priority = "priority",
    idempotency_key = "idempotency_key",
});

impl AmendRequest {
    /// Reads a change; something must change.
    pub fn read(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: AmendFields<'_> = read::body(text, at, faults)?;
        let priority = fields.priority.and_then(|field| read_priority(&field, at, faults));
        let moved = fields.run_at.is_some() || fields.delay.is_some();
        let start = read_start(fields.run_at, fields.delay, now, at, faults);
        if !moved && fields.priority.is_none() && faults.is_empty() {
            faults.add(
                Code::MissingField,
                at,
                "nothing is to be changed; give `run_at`, `delay` or `priority`",
            );
        }
        Some(Self { run_at: start.filter(|_| moved).map(|start| start.at(now)), priority })
    }
}

/// A wish to run a finished job again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunRequest {
    /// When.
    pub run_at: Timestamp,
}

known_fields!(RerunFields { run_at = "run_at", delay = "delay", idempotency_key = "idempotency_key" });

impl RerunRequest {
    /// Reads the wish; an empty body means now.
    pub fn read(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let fields: RerunFields<'_> = read::optional_body(text, &At::ROOT, faults)?;
        let start = read_start(fields.run_at, fields.delay, now, &At::ROOT, faults)?;
        Some(Self { run_at: start.at(now) })
    }
}

/// A wish to run a dead letter again, perhaps changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayRequest {
    /// When.
    pub run_at: Timestamp,
    /// Another payload.
    pub payload: Option<Bytes>,
    /// Another target.
    pub target: Option<Arc<Target>>,
    /// How long one attempt may take there; without it, the job keeps its own.
    pub timeout_ms: Option<i64>,
}

known_fields!(ReplayFields {
    run_at = "run_at",
    delay = "delay",
    payload = "payload",
    target = "target",
    target_url = "target_url",
    idempotency_key = "idempotency_key",
});

impl ReplayRequest {
    /// Reads the wish; an empty body means now and unchanged.
    pub fn read<R: TargetRules>(text: &str, now: Timestamp, rules: &R, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: ReplayFields<'_> = read::optional_body(text, at, faults)?;
        let payload = fields.payload.and_then(|field| read_payload(&field, at, faults));
        let target = TargetFields { target: fields.target, target_url: fields.target_url };
        let (target, timeout_ms) = read_target(&target, rules, at, faults).unzip();
        let start = read_start(fields.run_at, fields.delay, now, at, faults)?;
        Some(Self {
            run_at: start.at(now),
            payload,
            target: target.map(Arc::new),
            timeout_ms: timeout_ms.flatten(),
        })
    }
}

/// Which jobs a bulk call is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// These.
    Ids(Vec<JobId>),
    /// Those that match, from the cursor on.
    Matching {
        /// What they match.
        filter: JobFilter,
        /// Where the last call ended.
        cursor: Option<JobId>,
    },
}

/// A call for many jobs at once.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkRequest {
    /// Which jobs.
    pub which: Which,
    /// When the first of them starts, where they start.
    pub run_at: Timestamp,
    /// How many start per second; without it, all at once.
    pub rate: Option<f64>,
}

known_fields!(BulkFields {
    ids = "ids",
    filter = "filter",
    cursor = "cursor",
    idempotency_key = "idempotency_key",
});
known_fields!(BulkRunFields {
    ids = "ids",
    filter = "filter",
    cursor = "cursor",
    rate = "rate",
    run_at = "run_at",
    delay = "delay",
    idempotency_key = "idempotency_key",
});

impl BulkRequest {
    /// Reads a bulk call that starts nothing.
    pub fn read(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let fields: BulkFields<'_> = read::body(text, &At::ROOT, faults)?;
        let which = read_which(fields.ids, fields.filter, fields.cursor, faults)?;
        Some(Self { which, run_at: now, rate: None })
    }

    /// Reads a bulk call that starts jobs, perhaps at a rate.
    pub fn read_run(text: &str, now: Timestamp, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: BulkRunFields<'_> = read::body(text, at, faults)?;
        let rate = fields.rate.and_then(|field| read_rate(&field, at, faults));
        let start = read_start(fields.run_at, fields.delay, now, at, faults);
        let which = read_which(fields.ids, fields.filter, fields.cursor, faults)?;
        Some(Self { which, run_at: start?.at(now), rate })
    }

    /// When job number `index` of the call starts.
    #[must_use]
    pub fn start_of(&self, index: usize) -> Timestamp {
        spread(self.run_at, self.rate, index)
    }
}

/// Reads a number of jobs per second.
pub(super) fn read_rate(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<f64> {
    field.number(RATE_MIN, RATE_MAX, at, faults)
}

/// When number `index` starts, if the first does at `from`.
pub(super) fn spread(from: Timestamp, rate: Option<f64>, index: usize) -> Timestamp {
    let Some(rate) = rate else { return from };
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 jobs in one call")]
    let ms = index as f64 * 1_000.0 / rate;
    #[expect(clippy::cast_possible_truncation, reason = "at most BULK_IDS_COUNT_MAX days")]
    let ms = ms as i64;
    from.plus_ms(ms)
}

fn read_which(
    ids: Option<Field<'_>>,
    filter: Option<Field<'_>>,
    cursor: Option<Field<'_>>,
    faults: &mut Faults,
) -> Option<Which> {
    let at = &At::ROOT;
    let cursor = cursor.and_then(|field| {
        let text = field.text(at, faults)?;
        query::cursor(&text).map_err(|(code, detail)| field.refuse(code, at, faults, detail)).ok()
    });
    match (ids, filter) {
        (Some(ids), None) => read_ids(&ids, at, faults).map(Which::Ids),
        (None, Some(filter)) => {
            read_filter(&filter, at, faults).map(|filter| Which::Matching { filter, cursor })
        }
        (Some(ids), Some(_)) => {
            ids.refuse(Code::ConflictingFields, at, faults, "`ids` and `filter` exclude each other");
            None
        }
        (None, None) => {
            faults.add(Code::MissingField, at, "say which jobs: give `ids` or `filter`");
            None
        }
    }
}

fn read_ids(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Vec<JobId>> {
    let items = field.items(at, faults)?;
    if items.len() > BULK_IDS_COUNT_MAX {
        let detail = format!("{} ids are given; at most {BULK_IDS_COUNT_MAX} are taken at once", items.len());
        field.refuse(Code::BatchTooLarge, at, faults, detail);
        return None;
    }
    let ids_at = at.field(field.name());
    let mut ids = Vec::with_capacity(items.len());
    for (index, raw) in items.into_iter().enumerate() {
        let at = ids_at.item(index);
        let Some(text) = Field::item(raw).text(&at, faults) else { continue };
        match text.parse() {
            Ok(id) => ids.push(id),
            Err(fault) => faults.add(Code::InvalidValue, &at, format!("{:?} is {fault}", shown(&text))),
        }
    }
    Some(ids)
}
