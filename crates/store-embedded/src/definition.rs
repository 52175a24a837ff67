//! What was asked of a schedule, on disk.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::job::{Destination, Priority, Target};
use tidewheel_core::limits::{MISFIRE_GRACE_MS_DEFAULT, TIMEOUT_MS_DEFAULT};
use tidewheel_core::schedule::{Definition, Misfire, MisfirePolicy, Overlap, Rule, Template};

use crate::append::append;
use crate::record::{METHOD_USUAL, Retry, Unreadable, borrowed, in_one_go, owned};
use crate::rules::{self, Rules};

const NONSENSE: Unreadable = Unreadable::Nonsense("what a schedule is");

#[derive(Serialize, Deserialize)]
struct DefinitionRecord<'a> {
    #[serde(serialize_with = "in_one_go")]
    rule: &'a [u8],
    window_ms: i64,
    policy: Policy,
    grace_ms: Option<i64>,
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
    #[serde(serialize_with = "in_one_go")]
    payload: &'a [u8],
    is_push: bool,
    /// The queue, or the target's URL.
    destination: &'a str,
    method: Option<&'a str>,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a str)>,
    priority: u8,
    retry: Option<Retry>,
    timeout_ms: Option<i64>,
    labels: Vec<(&'a str, &'a str)>,
}

/// Adds a definition to `bytes`.
pub(crate) fn encode(definition: &Definition, bytes: Vec<u8>) -> Vec<u8> {
    let record = DefinitionRecord {
        rule: &rules::encode(&definition.rule),
        window_ms: definition.window_ms,
        policy: match definition.misfire.policy {
            MisfirePolicy::FireAll { cap } => Policy::FireAll(cap),
            MisfirePolicy::FireLatest => Policy::FireLatest,
            MisfirePolicy::Skip => Policy::Skip,
        },
        grace_ms: Some(definition.misfire.grace_ms).filter(|ms| *ms != MISFIRE_GRACE_MS_DEFAULT),
        overlap: definition.overlap as u8,
        template: template_of(&definition.template),
        idempotency_key: definition.idempotency_key.as_deref(),
        note: definition.note.as_deref(),
    };
    append(&record, bytes)
}

fn template_of(template: &Template) -> TemplateRecord<'_> {
    let target = match &template.destination {
        Destination::Queue(_) => None,
        Destination::Target(target) => Some(target),
    };
    TemplateRecord {
        kind: &template.kind,
        payload: &template.payload,
        is_push: target.is_some(),
        destination: match &template.destination {
            Destination::Queue(name) => name,
            Destination::Target(target) => &target.url,
        },
        method: target.map(|target| &*target.method).filter(|method| *method != METHOD_USUAL),
        headers: target.map_or_else(Vec::new, |target| borrowed(&target.headers)),
        priority: template.priority as u8,
        retry: Retry::of(&template.retry),
        timeout_ms: Some(template.timeout_ms).filter(|ms| *ms != TIMEOUT_MS_DEFAULT),
        labels: borrowed(&template.labels),
    }
}

/// Reads definitions one after the other; their payloads are parts of what they are read from. Neighbours often have
/// one rule, are of one type and go to one place, which is then kept once.
pub(crate) struct Decoder<'r> {
    rules: &'r Rules,
    rule: Option<(Vec<u8>, Arc<Rule>)>,
    neighbour: Neighbour,
}

#[derive(Default)]
struct Neighbour {
    kind: Option<Arc<str>>,
    destination: Option<Destination>,
}

impl<'r> Decoder<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        Self { rules, rule: None, neighbour: Neighbour::default() }
    }

    pub(crate) fn decode(&mut self, bytes: &Bytes) -> Result<Definition, Unreadable> {
        let record: DefinitionRecord<'_> = postcard::from_bytes(bytes).map_err(|_| NONSENSE)?;
        let rule = match &self.rule {
            Some((known, rule)) if *known == record.rule => Arc::clone(rule),
            Some(_) | None => {
                let rule = self.rules.decode(record.rule)?;
                self.rule = Some((record.rule.to_vec(), Arc::clone(&rule)));
                rule
            }
        };
        read_definition(record, rule, bytes, &mut self.neighbour)
    }
}

fn read_definition(
    record: DefinitionRecord<'_>,
    rule: Arc<Rule>,
    bytes: &Bytes,
    neighbour: &mut Neighbour,
) -> Result<Definition, Unreadable> {
    Ok(Definition {
        rule,
        window_ms: record.window_ms,
        misfire: Misfire {
            policy: match record.policy {
                Policy::FireAll(cap) => MisfirePolicy::FireAll { cap },
                Policy::FireLatest => MisfirePolicy::FireLatest,
                Policy::Skip => MisfirePolicy::Skip,
            },
            grace_ms: record.grace_ms.unwrap_or(MISFIRE_GRACE_MS_DEFAULT),
        },
        overlap: Overlap::ALL.get(usize::from(record.overlap)).copied().ok_or(NONSENSE)?,
        template: read_template(record.template, bytes, neighbour)?,
        idempotency_key: record.idempotency_key.map(Into::into),
        note: record.note.map(Into::into),
    })
}

/// Reads of a definition what its jobs ask for, and the key of its own; the payload is a part of `bytes`.
pub(crate) fn decode_template(bytes: &Bytes) -> Result<(Template, Option<Arc<str>>), Unreadable> {
    let record: DefinitionRecord<'_> = postcard::from_bytes(bytes).map_err(|_| NONSENSE)?;
    let template = read_template(record.template, bytes, &mut Neighbour::default())?;
    Ok((template, record.idempotency_key.map(Into::into)))
}

fn read_template(
    record: TemplateRecord<'_>,
    bytes: &Bytes,
    neighbour: &mut Neighbour,
) -> Result<Template, Unreadable> {
    let kind = match neighbour.kind.take() {
        Some(kind) if *kind == *record.kind => kind,
        Some(_) | None => record.kind.into(),
    };
    let destination = match neighbour.destination.take() {
        Some(destination) if is_same(&destination, &record) => destination,
        Some(_) | None => read_destination(&record),
    };
    *neighbour = Neighbour { kind: Some(Arc::clone(&kind)), destination: Some(destination.clone()) };
    Ok(Template {
        kind,
        payload: bytes.slice_ref(record.payload),
        destination,
        priority: Priority::ALL.get(usize::from(record.priority)).copied().ok_or(NONSENSE)?,
        retry: Retry::read(record.retry)?,
        timeout_ms: record.timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT),
        labels: owned(&record.labels),
    })
}

fn is_same(destination: &Destination, record: &TemplateRecord<'_>) -> bool {
    match destination {
        Destination::Queue(name) => !record.is_push && **name == *record.destination,
        Destination::Target(target) => {
            let pairs = || target.headers.iter().zip(&record.headers);
            record.is_push
                && *target.url == *record.destination
                && *target.method == *record.method.unwrap_or(METHOD_USUAL)
                && target.headers.len() == record.headers.len()
                && pairs().all(|((a, b), (c, d))| **a == **c && **b == **d)
        }
    }
}

fn read_destination(record: &TemplateRecord<'_>) -> Destination {
    if record.is_push {
        Destination::Target(Arc::new(Target {
            url: record.destination.into(),
            method: record.method.unwrap_or(METHOD_USUAL).into(),
            headers: owned(&record.headers),
        }))
    } else {
        Destination::Queue(record.destination.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jiff::civil::date;
    use tidewheel_core::cron::{Cron, Dst, Fold, Gap};
    use tidewheel_core::retry::{Backoff, RetryPolicy};
    use tidewheel_core::schedule::{Exclude, Roll, Timing, Zone};
    use tidewheel_core::time::Timestamp;
    use tidewheel_core::zones::Zones;

    /// A definition with everything as usual.
    pub(crate) fn definition() -> Definition {
        Definition {
            rule: Arc::new(Rule {
                timing: Timing::Every { interval_ms: 60_000, anchor: Timestamp::from_ms(5) },
                zone: Zone::utc(),
                dst: Dst::default(),
                start_at: None,
                end_at: None,
                exclude: Exclude::default(),
            }),
            window_ms: 0,
            misfire: Misfire::default(),
            overlap: Overlap::Allow,
            template: Template {
                kind: "report".into(),
                payload: Bytes::new(),
                destination: Destination::Queue("reports".into()),
                priority: Priority::Normal,
                retry: RetryPolicy::default(),
                timeout_ms: TIMEOUT_MS_DEFAULT,
                labels: Vec::new(),
            },
            idempotency_key: None,
            note: None,
        }
    }

    pub(crate) fn unusual() -> Definition {
        let zones = Zones::bundled();
        Definition {
            rule: Arc::new(Rule {
                timing: Timing::Cron(Box::new(Cron::parse("0 30 2 * * MON-FRI").unwrap())),
                zone: zones.zone("Europe/Berlin").unwrap(),
                dst: Dst { gap: Gap::Skip, fold: Fold::Both },
                start_at: Some(Timestamp::from_ms(-7)),
                end_at: Some(Timestamp::MAX),
                exclude: Exclude {
                    dates: [date(2026, 12, 25), date(-1, 1, 31)].into_iter().collect(),
                    calendar: Some("holidays".into()),
                    roll: Roll::PreviousBusinessDay,
                },
            }),
            window_ms: 60_000,
            misfire: Misfire { policy: MisfirePolicy::FireAll { cap: 7 }, grace_ms: 1 },
            overlap: Overlap::CancelRunning,
            template: Template {
                payload: Bytes::from_static(b"\0\xff"),
                destination: Destination::Target(Arc::new(Target {
                    url: "https://example.com/".into(),
                    method: "PUT".into(),
                    headers: vec![("a".into(), "b".into())],
                })),
                priority: Priority::Low,
                retry: RetryPolicy { backoff: Backoff::Fixed, max_attempts: 1, ..RetryPolicy::default() },
                timeout_ms: 1,
                labels: vec![("größe".into(), "XL".into())],
                ..definition().template
            },
            idempotency_key: Some("k".into()),
            note: Some("n".into()),
        }
    }

    fn decode(rules: &Rules, bytes: &Bytes) -> Result<Definition, Unreadable> {
        Decoder::new(rules).decode(bytes)
    }

    #[test]
    fn neighbours_share_what_they_have_in_common() {
        let rules = Rules::new(None);
        let mut decoder = Decoder::new(&rules);
        let mut to_another = unusual();
        to_another.template.destination = Destination::Queue("https://example.com/".into());
        let mut with_header = unusual();
        if let Destination::Target(target) = &mut with_header.template.destination {
            Arc::make_mut(target).headers = vec![("a".into(), "c".into())];
        }
        let all = [definition(), definition(), unusual(), unusual(), to_another, with_header, definition()];
        let read: Vec<_> = all
            .iter()
            .map(|definition| decoder.decode(&Bytes::from(encode(definition, Vec::new()))).unwrap())
            .collect();
        assert_eq!(read, all);
        let [a, b, ..] = &*read else { panic!("there are more") };
        assert!(Arc::ptr_eq(&a.rule, &b.rule) && Arc::ptr_eq(&a.template.kind, &b.template.kind));
    }

    #[test]
    fn definitions_survive_the_round_trip() {
        let rules = Rules::new(None);
        let skipping = Misfire { policy: MisfirePolicy::Skip, ..Misfire::default() };
        for definition in [definition(), unusual(), Definition { misfire: skipping, ..definition() }] {
            let bytes = Bytes::from(encode(&definition, Vec::new()));
            assert_eq!(decode(&rules, &bytes), Ok(definition.clone()));
            assert_eq!(decode(&rules, &bytes), Ok(definition.clone()), "from what is kept of its rule");
            let (template, own_key) = decode_template(&bytes).unwrap();
            assert_eq!((template, own_key), (definition.template, definition.idempotency_key));
            for end in 0..bytes.len() {
                assert!(decode(&rules, &bytes.slice(..end)).is_err());
            }
        }
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let bytes = Bytes::from(encode(&unusual(), Vec::new()));
        let rules = Rules::new(Some(Zones::none()));
        assert_eq!(decode(&rules, &bytes), Err(Unreadable::Zone("Europe/Berlin".into())));
        assert!(
            decode(&rules, &Bytes::from(encode(&definition(), Vec::new()))).is_ok(),
            "UTC needs no database"
        );
    }
}
