//! A job or a schedule in one flat form: `schedule_type` says which of the two it is, `ONCE` or `CRON`.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Priority};
use tidewheel_core::limits::{MISFIRE_GRACE_MS_DEFAULT, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::{Tenant, check_type};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{Definition, Misfire, MisfirePolicy, Overlap, Template, Zone, check_name};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;

use super::fault::{At, Code, Faults};
use super::job_request::{
    JobRequest, LeftOut, PAYLOAD_DEFAULT, QUEUE_DEFAULT, named, read_key, read_payload, read_retry,
    read_start,
};
use super::read::{self, Field};
use super::schedule_request::{ScheduleRequest, TimeFields, read_rule, read_schedule_key, read_zone};
use crate::known_fields;

/// The label a job that runs once keeps its name under.
pub const NAME_LABEL: &str = "job_name";
/// The field that makes a request flat.
const MARK: &str = "schedule_type";

/// What was asked for in the flat form.
#[derive(Debug, Clone, PartialEq)]
pub struct FlatRequest {
    /// For whom, if it says so.
    pub tenant: Option<Tenant>,
    /// The zone in which times are answered.
    pub zone: Zone,
    /// What.
    pub what: Flat,
}

/// What can be asked for in the flat form.
#[derive(Debug, Clone, PartialEq)]
pub enum Flat {
    /// A job.
    Once(Box<JobRequest>),
    /// A schedule.
    Recurring(Box<ScheduleRequest>),
}

known_fields!(FlatFields {
    tenant_id = "tenant_id",
    job_name = "job_name",
    job_type = "job_type",
    schedule_type = "schedule_type",
    cron_expression = "cron_expression",
    timezone = "timezone",
    run_at = "run_at",
    max_attempts = "max_attempts",
    allow_overlap = "allow_overlap",
    misfire_policy = "misfire_policy",
    payload = "payload",
    idempotency_key = "idempotency_key",
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Once,
    Cron,
}

const KINDS: [(&str, Kind); 2] = [("ONCE", Kind::Once), ("CRON", Kind::Cron)];

const POLICIES: [(&str, MisfirePolicy); 4] = [
    ("FIRE_ONCE", MisfirePolicy::FireLatest),
    ("FIRE_IMMEDIATELY", MisfirePolicy::FireLatest),
    ("SKIP", MisfirePolicy::Skip),
    ("BACKFILL_ALL", MisfirePolicy::FIRE_ALL),
];

/// Whether a request is in the flat form.
#[must_use]
pub fn is_flat(text: &str) -> bool {
    read::has_field(text, MARK)
}

/// What both kinds have.
struct Parts {
    name: Arc<str>,
    kind: Arc<str>,
    payload: Bytes,
    retry: RetryPolicy,
    policy: MisfirePolicy,
}

impl FlatRequest {
    /// Reads a request; `None` when there are faults.
    pub fn read(text: &str, now: Timestamp, zones: &Zones, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: FlatFields<'_> = read::body(text, at, faults)?;
        let tenant = fields.tenant_id.and_then(|field| read_tenant(&field, at, faults));
        let kind = read_kind(fields.schedule_type, at, faults);
        let parts = read_parts(&fields, at, faults);
        let (zone, what) = match kind? {
            Kind::Once => {
                let zone =
                    fields.timezone.map_or(Some(Zone::utc()), |field| read_zone(&field, zones, at, faults));
                let job = once(&fields, parts, now, at, faults)?;
                (zone?, Flat::Once(Box::new(job)))
            }
            Kind::Cron => {
                let made = recurring(&fields, parts, (now, zones), at, faults)?;
                (made.definition.rule.zone.clone(), Flat::Recurring(Box::new(made)))
            }
        };
        faults.is_empty().then_some(Self { tenant, zone, what })
    }
}

fn read_tenant(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Tenant> {
    let name = field.text(at, faults)?;
    Tenant::new(&name).map_err(|fault| field.refuse(Code::InvalidTenant, at, faults, fault.to_string())).ok()
}

fn read_kind(field: Option<Field<'_>>, at: &At<'_>, faults: &mut Faults) -> Option<Kind> {
    let Some(field) = field else {
        faults.add(Code::MissingField, &at.field(MARK), "write ONCE or CRON");
        return None;
    };
    let parse = |text: &str| KINDS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
    field.one_of(&KINDS.map(|(name, _)| name), parse, at, faults)
}

fn read_parts(fields: &FlatFields<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Parts> {
    let mut required = |field: Option<Field<'_>>, name: &'static str, check: fn(&str) -> _| {
        let Some(field) = field else {
            faults.add(Code::MissingField, &at.field(name), format!("`{name}` is needed"));
            return None;
        };
        let text = field.text(at, faults)?;
        named(check(&text), &field, at, faults)?;
        Some(Arc::<str>::from(text))
    };
    let name = required(fields.job_name, "job_name", check_name);
    let kind = required(fields.job_type, "job_type", check_type);
    let payload = match fields.payload {
        Some(field) => read_payload(&field, at, faults),
        None => Some(Bytes::from_static(PAYLOAD_DEFAULT)),
    };
    let retry = read_retry(None, fields.max_attempts, at, faults);
    let parse = |text: &str| POLICIES.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy);
    let policy = fields
        .misfire_policy
        .and_then(|field| field.one_of(&POLICIES.map(|(name, _)| name), parse, at, faults))
        .unwrap_or_default();
    Some(Parts { name: name?, kind: kind?, payload: payload?, retry, policy })
}

/// The form has no words for most of it.
fn left_out(fields: &FlatFields<'_>) -> LeftOut {
    LeftOut {
        destination: true,
        priority: true,
        retry: true,
        max_attempts: fields.max_attempts.is_none(),
        timeout: true,
    }
}

/// The key, if there is one: none may be said as `null`, as elsewhere.
fn said_key<'a>(fields: &FlatFields<'a>) -> Option<Field<'a>> {
    fields.idempotency_key.filter(|field| !field.is_null())
}

fn once(
    fields: &FlatFields<'_>,
    parts: Option<Parts>,
    now: Timestamp,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<JobRequest> {
    if let Some(field) = fields.cron_expression {
        let detail = "`cron_expression` is for `schedule_type: CRON`; a job that runs once has `run_at`";
        field.refuse(Code::ConflictingFields, at, faults, detail);
    }
    fields.allow_overlap.and_then(|field| field.boolean(at, faults));
    let idempotency_key = said_key(fields).and_then(|field| read_key(&field, at, faults));
    let start = read_start(fields.run_at, None, now, at, faults)?;
    let parts = parts?;
    // A run that is missed is made up for at once, unless it is to be skipped: then it expires.
    let is_skipped = parts.policy == MisfirePolicy::Skip;
    let expires_at = is_skipped.then(|| start.at(now).max(now).plus_ms(MISFIRE_GRACE_MS_DEFAULT));
    Some(JobRequest {
        kind: parts.kind,
        payload: parts.payload,
        start,
        destination: Destination::Queue(Arc::from(QUEUE_DEFAULT)),
        priority: Priority::default(),
        retry: parts.retry,
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at,
        idempotency_key,
        labels: vec![(NAME_LABEL.into(), (&*parts.name).into())],
        left_out: left_out(fields),
        trace: None,
    })
}

fn recurring(
    fields: &FlatFields<'_>,
    parts: Option<Parts>,
    clock: (Timestamp, &Zones),
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<ScheduleRequest> {
    if let Some(field) = fields.run_at {
        let detail = "`run_at` is for `schedule_type: ONCE`; a schedule has `cron_expression`";
        field.refuse(Code::ConflictingFields, at, faults, detail);
    }
    let idempotency_key = said_key(fields).and_then(|field| read_schedule_key(&field, at, faults));
    let overlaps = fields.allow_overlap.and_then(|field| field.boolean(at, faults)).unwrap_or(false);
    if fields.cron_expression.is_none() {
        faults.add(Code::MissingField, &at.field("cron_expression"), "a schedule needs `cron_expression`");
        return None;
    }
    let time = TimeFields {
        cron_expr: fields.cron_expression,
        every: None,
        timezone: fields.timezone,
        dst: None,
        start_at: None,
        end_at: None,
        exclude: None,
    };
    let rule = read_rule(&time, None, clock, at, faults)?;
    let parts = parts?;
    let definition = Definition {
        rule: Arc::new(rule),
        window_ms: 0,
        misfire: Misfire { policy: parts.policy, ..Misfire::default() },
        overlap: if overlaps { Overlap::Allow } else { Overlap::Skip },
        template: Template {
            kind: parts.kind,
            payload: parts.payload,
            destination: Destination::Queue(Arc::from(QUEUE_DEFAULT)),
            priority: Priority::default(),
            retry: parts.retry,
            timeout_ms: TIMEOUT_MS_DEFAULT,
            labels: Vec::new(),
        },
        idempotency_key,
        note: None,
    };
    Some(ScheduleRequest {
        name: Some(parts.name),
        paused: None,
        definition,
        left_out: left_out(fields),
        excludes_by_object: false,
    })
}
