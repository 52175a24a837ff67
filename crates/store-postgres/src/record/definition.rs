//! What was asked of a schedule: part of its record.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::job::Priority;
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::schedule::{Definition, Misfire, MisfirePolicy, Overlap, Template};

use super::rule::{self, Rules};
use super::spec::{DestinationRecord, RetryRecord};
use super::{Unreadable, borrowed, nth, owned};

#[derive(Serialize, Deserialize)]
struct DefinitionRecord<'a> {
    rule: &'a [u8],
    window_ms: i64,
    policy: Policy,
    grace_ms: i64,
    overlap: u8,
    #[serde(borrow)]
    template: TemplateRecord<'a>,
    idempotency_key: Option<&'a str>,
    note: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
enum Policy {
    FireAll(u32),
    FireLatest,
    Skip,
}

#[derive(Serialize, Deserialize)]
struct TemplateRecord<'a> {
    kind: &'a str,
    payload: &'a [u8],
    #[serde(borrow)]
    destination: DestinationRecord<'a>,
    priority: u8,
    retry: Option<RetryRecord>,
    timeout_ms: Option<i64>,
    labels: Vec<(&'a str, &'a str)>,
}

pub(super) fn encode(definition: &Definition) -> Vec<u8> {
    let template = &definition.template;
    super::encode(&DefinitionRecord {
        rule: &rule::encode(&definition.rule),
        window_ms: definition.window_ms,
        policy: match definition.misfire.policy {
            MisfirePolicy::FireAll { cap } => Policy::FireAll(cap),
            MisfirePolicy::FireLatest => Policy::FireLatest,
            MisfirePolicy::Skip => Policy::Skip,
        },
        grace_ms: definition.misfire.grace_ms,
        overlap: definition.overlap as u8,
        template: TemplateRecord {
            kind: &template.kind,
            payload: &template.payload,
            destination: DestinationRecord::of(&template.destination),
            priority: template.priority as u8,
            retry: RetryRecord::of(&template.retry),
            timeout_ms: Some(template.timeout_ms).filter(|ms| *ms != TIMEOUT_MS_DEFAULT),
            labels: borrowed(&template.labels),
        },
        idempotency_key: definition.idempotency_key.as_deref(),
        note: definition.note.as_deref(),
    })
}

pub(super) fn decode(rules: &Rules, bytes: &[u8]) -> Result<Definition, Unreadable> {
    let record: DefinitionRecord<'_> = super::decode(bytes, "what a schedule is")?;
    let template = record.template;
    Ok(Definition {
        rule: rules.decode(record.rule)?,
        window_ms: record.window_ms,
        misfire: Misfire {
            policy: match record.policy {
                Policy::FireAll(cap) => MisfirePolicy::FireAll { cap },
                Policy::FireLatest => MisfirePolicy::FireLatest,
                Policy::Skip => MisfirePolicy::Skip,
            },
            grace_ms: record.grace_ms,
        },
        overlap: nth(&Overlap::ALL, record.overlap, "an overlap policy")?,
        template: Template {
            kind: template.kind.into(),
            payload: Bytes::copy_from_slice(template.payload),
            destination: template.destination.read(),
            priority: nth(&Priority::ALL, template.priority, "a priority")?,
            retry: RetryRecord::read(template.retry)?,
            timeout_ms: template.timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT),
            labels: owned(&template.labels),
        },
        idempotency_key: record.idempotency_key.map(Into::into),
        note: record.note.map(Into::into),
    })
}
