//! Where a tenant is to be told of what its owner should know, as callers write it.

use tidewheel_core::limits::{DAY_MS, LAG_BUDGET_MS_DEFAULT, SECOND_MS};

use super::fault::{At, Code, Faults};
use super::job_request::TargetRules;
use super::read::{self, Field};
use crate::known_fields;

/// What there is to be told of.
pub const EVENTS: &[&str] = &["dead_letter", "missed_run", "breaker_open", "lag"];

/// Notifications as they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationRequest {
    /// Where to; `None` is nowhere.
    pub url: Option<Box<str>>,
    /// Some of [`EVENTS`]; all of them unless said.
    pub events: Vec<&'static str>,
    /// How long a job may be due before that is told.
    pub lag_budget_ms: i64,
}

known_fields!(NotificationFields {
    url = "url",
    events = "events",
    lag_budget = "lag_budget",
    idempotency_key = "idempotency_key",
});

impl NotificationRequest {
    /// Reads what is asked for.
    pub fn read<R: TargetRules>(text: &str, rules: &R, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: NotificationFields<'_> = read::body(text, at, faults)?;
        let url = match fields.url {
            Some(field) if !field.is_null() => {
                let url = field.text(at, faults)?;
                if let Err(detail) = rules.check_url(&url) {
                    field.refuse(Code::InvalidTarget, at, faults, detail);
                }
                Some(url.into())
            }
            Some(_) | None => None,
        };
        let events = match fields.events {
            Some(field) if !field.is_null() => read_events(&field, at, faults)?,
            Some(_) | None => EVENTS.to_vec(),
        };
        let lag_budget_ms = match fields.lag_budget {
            Some(field) if !field.is_null() => field.duration_within(SECOND_MS, DAY_MS, at, faults)?,
            Some(_) | None => LAG_BUDGET_MS_DEFAULT,
        };
        Some(Self { url, events, lag_budget_ms })
    }
}

fn read_events(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Vec<&'static str>> {
    let event = |name: &str| EVENTS.iter().copied().find(|event| *event == name);
    let items = field.items(at, faults)?;
    let at = at.field("events");
    let mut events = Vec::new();
    for (index, raw) in items.into_iter().take(EVENTS.len() * 2).enumerate() {
        events.extend(Field::item(raw).one_of(EVENTS, event, &at.item(index), faults));
    }
    events.sort_unstable();
    events.dedup();
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Strict;

    impl TargetRules for Strict {
        fn check_url(&self, url: &str) -> Result<(), String> {
            if url.starts_with("https://") { Ok(()) } else { Err("not allowed".to_owned()) }
        }

        fn check_method(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn check_headers(&self, _: &[(Box<str>, Box<str>)]) -> Result<(), String> {
            Ok(())
        }
    }

    fn read(text: &str) -> Result<NotificationRequest, Vec<Code>> {
        let mut faults = Faults::default();
        let request = NotificationRequest::read(text, &Strict, &mut faults);
        if faults.is_empty() {
            Ok(request.unwrap())
        } else {
            Err(faults.into_list().into_iter().map(|fault| fault.code).collect())
        }
    }

    #[test]
    fn what_is_left_out_is_everything_and_no_url_is_nowhere() {
        let all = read(r#"{"url": "https://a.example/x"}"#).unwrap();
        assert_eq!((all.events.len(), all.lag_budget_ms), (4, LAG_BUDGET_MS_DEFAULT));
        let some =
            read(r#"{"url": "https://a.example/x", "events": ["lag", "lag"], "lag_budget": "5s"}"#).unwrap();
        assert_eq!((some.events, some.lag_budget_ms), (vec!["lag"], 5_000));
        assert_eq!(read(r#"{"url": null}"#).unwrap().url, None);
        assert_eq!(read("{}").unwrap().url, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, code) in [
            (r#"{"url": "http://10.0.0.1/"}"#, Code::InvalidTarget),
            (r#"{"url": 5}"#, Code::WrongType),
            (r#"{"url": "https://a", "events": ["death"]}"#, Code::InvalidValue),
            (r#"{"url": "https://a", "lag_budget": "1ms"}"#, Code::InvalidValue),
            (r#"{"uri": "https://a"}"#, Code::UnknownField),
        ] {
            assert_eq!(read(text), Err(vec![code]), "{text}");
        }
    }
}
