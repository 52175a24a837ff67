//! The part of an address after `?`, where the audit trail is read.

use std::borrow::Cow;

use tidewheel_core::audit::{Kind, Place};
use tidewheel_core::limits::PAGE_COUNT_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::fault::{At, Code, Faults};
use super::query::{PARAMETERS_COUNT_MAX, decode, limit, refuse, time, unknown};

/// Parameters of the audit trail.
const KNOWN: &[&str] =
    &["tenant", "actor", "action", "object", "kind", "from", "to", "order", "limit", "cursor", "format"];

/// What a query for the audit trail says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditRequest {
    /// What concerns this tenant.
    pub tenant: Option<Tenant>,
    /// Asked for by this one.
    pub actor: Option<String>,
    /// Of this action, or all that begin with it and a dot.
    pub action: Option<String>,
    /// About this: a job, a schedule, a key.
    pub object: Option<String>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// At or after this instant.
    pub from: Option<Timestamp>,
    /// Before this one.
    pub to: Option<Timestamp>,
    /// Oldest first; if it is not said, a page is newest first and an export oldest first.
    pub oldest_first: Option<bool>,
    /// Records on a page.
    pub limit: Option<usize>,
    /// After which record.
    pub cursor: Option<Place>,
    /// A line for each record, as many as there are.
    pub lines: bool,
}

impl AuditRequest {
    /// Reads a query.
    #[must_use]
    pub fn read(text: &str, faults: &mut Faults) -> Self {
        let mut request = Self::default();
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_COUNT_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                faults.add(Code::MalformedRequest, &At::ROOT, "the query is not UTF-8 with percent-encoding");
                continue;
            };
            if !KNOWN.contains(&name.as_ref()) {
                unknown(&name, KNOWN, faults);
            } else if seen.contains(&name) {
                refuse(Code::InvalidParameter, &name, "it is given twice", faults);
            } else if let Err((code, detail)) = request.set(&name, &value) {
                refuse(code, &name, &detail, faults);
            }
            seen.push(name);
        }
        request
    }

    /// Records on a page.
    #[must_use]
    pub fn page_limit(&self) -> usize {
        self.limit.unwrap_or(PAGE_COUNT_DEFAULT)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), (Code, String)> {
        let invalid = |detail: String| (Code::InvalidParameter, detail);
        let one_of = |names: &str| invalid(format!("it is none of {names}"));
        match name {
            "tenant" => {
                self.tenant = Some(Tenant::new(value).map_err(|fault| invalid(fault.to_string()))?);
            }
            "actor" => self.actor = Some(value.to_owned()),
            "action" => self.action = Some(value.to_owned()),
            "object" => self.object = Some(value.to_owned()),
            "kind" => self.kind = Some(Kind::from_name(value).ok_or_else(|| one_of("act and changes"))?),
            "from" => self.from = Some(time(value).map_err(invalid)?),
            "to" => self.to = Some(time(value).map_err(invalid)?),
            "order" => {
                self.oldest_first = Some(match value {
                    "oldest" => true,
                    "newest" => false,
                    _ => return Err(one_of("oldest and newest")),
                });
            }
            "limit" => self.limit = Some(limit(value).map_err(invalid)?),
            "cursor" => {
                let refused =
                    || (Code::InvalidCursor, "it is not a cursor that a list handed out".to_owned());
                self.cursor = Some(read_cursor(value).ok_or_else(refused)?);
            }
            // Only `format` is left of what is known.
            _ => {
                self.lines = match value {
                    "json" => false,
                    "ndjson" => true,
                    _ => return Err(one_of("json and ndjson")),
                };
            }
        }
        Ok(())
    }
}

fn read_cursor(text: &str) -> Option<Place> {
    let mut parts = text.split('-');
    let (at, chain, seq) = (parts.next()?, parts.next()?, parts.next()?);
    let place = Place {
        at: Timestamp::from_ms(at.parse().ok()?),
        chain: chain.parse().ok()?,
        seq: seq.parse().ok()?,
    };
    parts.next().is_none().then_some(place)
}

/// A cursor as a list hands it out.
#[must_use]
pub fn audit_cursor(last: Place) -> String {
    format!("{}-{}-{}", last.at.as_ms(), last.chain, last.seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read_and_what_is_wrong_is_told() {
        let mut faults = Faults::default();
        let text = "tenant=a&actor=key_1&action=keys&object=x&kind=act&from=2026-01-01T00:00:00Z\
                    &to=2026-01-02T00:00:00Z&order=oldest&limit=7&cursor=5-3-9&format=ndjson";
        let request = AuditRequest::read(text, &mut faults);
        assert!(faults.is_empty());
        let place = Place { at: Timestamp::from_ms(5), chain: 3, seq: 9 };
        assert_eq!((request.cursor, request.lines, request.oldest_first), (Some(place), true, Some(true)));
        assert_eq!(audit_cursor(place), "5-3-9");
        for wrong in [
            "kind=x",
            "order=x",
            "format=x",
            "cursor=1-2",
            "cursor=1-2-3-4",
            "limit=0",
            "actors=x",
            "tenant=",
        ] {
            let mut faults = Faults::default();
            drop(AuditRequest::read(wrong, &mut faults));
            assert!(!faults.is_empty(), "{wrong}");
        }
    }
}
