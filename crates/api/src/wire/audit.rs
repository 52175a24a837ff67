//! Records of the audit trail as lines of JSON, and back: a line has all that its hash is made of, so an export can be
//! checked anywhere.

use serde::{Deserialize, Serialize};
use tidewheel_core::audit::{Change, Changes, Digest, Kind, Record, Step};
use tidewheel_core::job::State;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

/// Something somebody asked for. As JSON, with its fields in this order and no spaces, it is the content of a record,
/// whose hash rests on it: fields may be added at the end only, and left out while they have their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Whom it concerns.
    pub tenant: String,
    /// Who asked: the id of a key, or `anonymous`.
    pub actor: String,
    /// From where.
    pub address: Option<String>,
    /// What: `schedules.pause`.
    pub action: String,
    /// About what: the id or name.
    pub object: Option<String>,
    /// The call: method and route.
    pub call: String,
    /// The call's own id, as the caller chose it or as it was made.
    pub request_id: Option<String>,
    /// What was answered.
    pub status: u16,
    /// The fields that were sent, by name.
    pub fields: Vec<String>,
    /// How many calls it stands for: more than one where they are summed up.
    pub count: u64,
}

impl Act {
    /// The content of its record.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        // Texts and numbers are always JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The act in a record's content, if it is one, byte for byte.
    #[must_use]
    pub fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok().filter(|act: &Self| act.content() == content)
    }
}

/// What became of a job, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeLine {
    /// Whose job.
    pub tenant: String,
    /// Which.
    pub job: String,
    /// Its state before; none if it was new.
    pub from: Option<String>,
    /// Its state after; none if it was discarded.
    pub to: Option<String>,
    /// The attempt it was at.
    pub attempt: u32,
}

impl From<&Change> for ChangeLine {
    fn from(change: &Change) -> Self {
        let name = |state: Option<State>| state.map(|state| state.as_str().to_owned());
        Self {
            tenant: change.tenant.as_str().to_owned(),
            job: change.step.id.to_string(),
            from: name(change.step.from),
            to: name(change.step.to),
            attempt: change.step.attempt,
        }
    }
}

impl ChangeLine {
    fn change(&self) -> Option<Change> {
        let state = |name: &Option<String>| match name {
            None => Some(None),
            Some(name) => State::from_name(name).map(Some),
        };
        Some(Change {
            tenant: Tenant::new(&self.tenant).ok()?,
            step: Step {
                id: self.job.parse().ok()?,
                from: state(&self.from)?,
                to: state(&self.to)?,
                attempt: self.attempt,
            },
        })
    }
}

/// A record, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its chain.
    pub chain: u16,
    /// Its number there.
    pub seq: u64,
    /// When.
    pub at: String,
    /// `act` or `changes`.
    pub kind: String,
    /// What was asked for.
    #[serde(flatten)]
    pub act: Option<Act>,
    /// What became of jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<ChangeLine>>,
    /// Content that makes no sense, in hexadecimal digits: the record was damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Changes of other tenants' jobs are left out, so the line cannot be checked by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// The hash of the record before it.
    pub previous: String,
    /// Its own.
    pub hash: String,
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It shows less than the record has.
    #[error("the line leaves out what concerns other tenants; export as an admin, without filters, to check")]
    Partial,
    /// Something in it makes no sense.
    #[error("`{0}` makes no sense")]
    Nonsense(&'static str),
}

impl Line {
    /// A record as a line.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let mut line = Self {
            chain: record.chain,
            seq: record.seq,
            at: record.at.to_string(),
            kind: record.kind.as_str().to_owned(),
            act: None,
            changes: None,
            unreadable: None,
            partial: false,
            previous: record.previous.to_string(),
            hash: record.hash.to_string(),
        };
        match record.kind {
            Kind::Act => line.act = Act::read(&record.content),
            Kind::Changes => {
                let changes: Result<Vec<Change>, _> = Changes::of(&record.content).collect();
                let whole = changes.ok().filter(|changes| Changes::pack(changes) == *record.content);
                line.changes = whole.map(|changes| changes.iter().map(ChangeLine::from).collect());
            }
        }
        if line.act.is_none() && line.changes.is_none() {
            line.unreadable = Some(record.content.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        line
    }

    /// The record that the line shows.
    ///
    /// # Errors
    /// When it does not show all of one.
    pub fn record(&self) -> Result<Record, LineFault> {
        if self.partial {
            return Err(LineFault::Partial);
        }
        let at: Timestamp = self.at.parse().map_err(|_| LineFault::Nonsense("at"))?;
        let digest = |text: &str, name| text.parse::<Digest>().map_err(|_| LineFault::Nonsense(name));
        Ok(Record {
            chain: self.chain,
            seq: self.seq,
            at,
            kind: Kind::from_name(&self.kind).ok_or(LineFault::Nonsense("kind"))?,
            content: self.content()?.into(),
            previous: digest(&self.previous, "previous")?,
            hash: digest(&self.hash, "hash")?,
        })
    }

    fn content(&self) -> Result<Vec<u8>, LineFault> {
        if let Some(digits) = &self.unreadable {
            return hexadecimal(digits).ok_or(LineFault::Nonsense("unreadable"));
        }
        if let Some(changes) = &self.changes {
            let changes: Option<Vec<Change>> = changes.iter().map(ChangeLine::change).collect();
            return changes.map(|changes| Changes::pack(&changes)).ok_or(LineFault::Nonsense("changes"));
        }
        self.act.as_ref().map(Act::content).ok_or(LineFault::Nonsense("action"))
    }
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidewheel_core::audit::Link;
    use tidewheel_core::id::JobId;

    use super::*;

    fn act() -> Act {
        Act {
            tenant: "acme".to_owned(),
            actor: "key_1".to_owned(),
            address: Some("192.0.2.1".to_owned()),
            action: "schedules.pause".to_owned(),
            object: Some("sch_\"1\"".to_owned()),
            call: "post /v1/schedules/{id}/pause".to_owned(),
            request_id: None,
            status: 200,
            fields: vec!["cron".to_owned()],
            count: 1,
        }
    }

    fn round_trip(kind: Kind, content: Vec<u8>) -> (Record, Line) {
        let at = Timestamp::from_ms(1_796_118_896_123);
        let record = Link::START.clone().append(3, at, kind, Bytes::from(content));
        let text = serde_json::to_string(&Line::of(&record)).unwrap();
        (record, serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_line_has_all_of_its_record() {
        let change = |n, to| Change {
            tenant: Tenant::new("acme").unwrap(),
            step: Step { id: JobId::new(Timestamp::from_ms(7), n), from: None, to, attempt: 2 },
        };
        let changes = Changes::pack(&[change(1, Some(State::Running)), change(2, None)]);
        for (kind, content) in [(Kind::Act, act().content()), (Kind::Changes, changes)] {
            let (record, line) = round_trip(kind, content);
            assert_eq!(line.unreadable, None);
            assert_eq!(line.record(), Ok(record.clone()));
            assert!(record.is_sound());
        }
    }

    #[test]
    fn damaged_content_is_shown_as_it_is() {
        for (kind, content) in [
            (Kind::Act, b"{".to_vec()),
            // The same to a reader of JSON, but not what was written.
            (Kind::Act, [act().content().as_slice(), b" "].concat()),
            (Kind::Changes, vec![1, 2, 3]),
        ] {
            let (record, line) = round_trip(kind, content);
            assert!(line.unreadable.is_some());
            assert_eq!(line.record(), Ok(record));
        }
    }

    #[test]
    fn what_was_altered_in_a_line_shows() {
        let (_, line) = round_trip(Kind::Act, act().content());
        let altered = Line { act: Some(Act { actor: "key_2".to_owned(), ..act() }), ..line.clone() };
        assert!(line.record().unwrap().is_sound());
        assert!(!altered.record().unwrap().is_sound());
        assert_eq!(Line { partial: true, ..line }.record(), Err(LineFault::Partial));
    }

    /// Chains outlive the program.
    #[test]
    fn the_content_of_an_act_stays_what_it_is() {
        let text = r#"{"tenant":"acme","actor":"key_1","address":"192.0.2.1","action":"schedules.pause","object":"sch_\"1\"","call":"post /v1/schedules/{id}/pause","request_id":null,"status":200,"fields":["cron"],"count":1}"#;
        assert_eq!(String::from_utf8(act().content()).unwrap(), text);
        assert_eq!(Act::read(text.as_bytes()), Some(act()));
    }
}
