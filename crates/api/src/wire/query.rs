//! The part of an address after `?`.

use std::borrow::Cow;

use tidewheel_core::id::JobId;
use tidewheel_core::limits::{PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

use super::fault::{At, Code, Faults, nearest, shown};
use super::filter::JobFilter;

/// What stands before a label's key.
const LABEL_PREFIX: &str = "label.";
/// How a parameter for a label is written.
const LABEL_SHOWN: &str = "label.KEY";
/// Parameters of one query; more are not looked at.
pub(super) const PARAMETERS_COUNT_MAX: usize = 100;

/// Parameters that choose jobs of any state.
pub const FILTER: &[&str] = &["state", "type", "queue", "schedule", "label.", "from", "to"];
/// Parameters of a list of jobs.
pub const LIST: &[&str] =
    &["state", "type", "queue", "schedule", "label.", "from", "to", "limit", "cursor", "payload"];
/// Parameters of a list of dead letters.
pub const DEAD_LIST: &[&str] =
    &["type", "queue", "schedule", "label.", "from", "to", "limit", "cursor", "payload"];
/// Parameters that choose dead letters to be discarded.
pub const DEAD_DISCARD: &[&str] = &["type", "queue", "schedule", "label.", "from", "to", "cursor", "all"];
/// Parameters of one job.
pub const NONE: &[&str] = &[];
/// Parameters of a batch.
pub const BATCH: &[&str] = &["partial"];

/// What a query says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Which jobs.
    pub filter: JobFilter,
    /// How many at most.
    pub limit: usize,
    /// After which one.
    pub cursor: Option<JobId>,
    /// Whether payloads are wanted.
    pub payload: bool,
    /// Whether some items may be refused and the others taken.
    pub partial: bool,
    /// Whether everything is meant, in so many words.
    pub all: bool,
}

impl Query {
    /// Reads a query that may have the `known` parameters.
    #[must_use]
    pub fn read(text: &str, known: &[&str], faults: &mut Faults) -> Self {
        let mut query = Self {
            filter: JobFilter::default(),
            limit: PAGE_COUNT_DEFAULT,
            cursor: None,
            payload: false,
            partial: false,
            all: false,
        };
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_COUNT_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                faults.add(Code::MalformedRequest, &At::ROOT, "the query is not UTF-8 with percent-encoding");
                continue;
            };
            let family = if name.starts_with(LABEL_PREFIX) { LABEL_PREFIX } else { name.as_ref() };
            if !known.contains(&family) {
                unknown(&name, known, faults);
            } else if seen.contains(&name) && name != "state" {
                refuse(Code::InvalidParameter, &name, "it is given twice", faults);
            } else if let Err((code, detail)) = query.set(&name, &value) {
                refuse(code, &name, &detail, faults);
            }
            seen.push(name);
        }
        query.filter.labels.sort_unstable();
        query
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), (Code, String)> {
        let invalid = |detail: String| (Code::InvalidParameter, detail);
        if value.chars().any(char::is_control) {
            return Err(invalid("it holds a control character".to_owned()));
        }
        match name {
            "state" => self.filter.add_states(value).map_err(invalid)?,
            "type" => self.filter.kind = Some(value.into()),
            "queue" => self.filter.queue = Some(value.into()),
            "schedule" => {
                let id = value.parse::<ScheduleId>().map_err(|fault| invalid(format!("it is {fault}")))?;
                self.filter.schedule = Some(id);
            }
            "from" => self.filter.from = Some(time(value).map_err(invalid)?),
            "to" => self.filter.to = Some(time(value).map_err(invalid)?),
            "limit" => self.limit = limit(value).map_err(invalid)?,
            "cursor" => self.cursor = Some(cursor(value)?),
            "payload" => self.payload = boolean(value).map_err(invalid)?,
            "partial" => self.partial = boolean(value).map_err(invalid)?,
            "all" => self.all = boolean(value).map_err(invalid)?,
            label => {
                let key = label.strip_prefix(LABEL_PREFIX).unwrap_or(label);
                self.filter.labels.push((key.into(), value.into()));
            }
        }
        Ok(())
    }
}

/// Reads a cursor as a list hands it out.
pub(super) fn cursor(text: &str) -> Result<JobId, (Code, String)> {
    text.parse().map_err(|_| (Code::InvalidCursor, "it is not a cursor that a list handed out".to_owned()))
}

/// A cursor as a list hands it out.
#[must_use]
pub fn cursor_text(last: JobId) -> String {
    last.to_string()
}

pub(super) fn unknown(name: &str, known: &[&str], faults: &mut Faults) {
    let detail = match nearest(name, known) {
        Some(near) => {
            let near = if near == LABEL_PREFIX { LABEL_SHOWN } else { near };
            format!("there is no such parameter; the nearest known one is `{near}`")
        }
        None if known.is_empty() => "there is no such parameter; this call has none".to_owned(),
        None => {
            let known = known.join(", ").replace(LABEL_PREFIX, LABEL_SHOWN);
            format!("there is no such parameter; the known ones are {known}")
        }
    };
    refuse(Code::UnknownParameter, name, &detail, faults);
}

pub(super) fn refuse(code: Code, name: &str, detail: &str, faults: &mut Faults) {
    faults.add(code, &At::ROOT.field(name), format!("the query parameter {:?}: {detail}", shown(name)));
}

/// A plus sign that was not encoded has become a space; no instant has one.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    text.replace(' ', "+").parse().map_err(|fault| ToString::to_string(&fault))
}

pub(super) fn limit(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|limit| (1..=PAGE_COUNT_MAX).contains(limit))
        .ok_or_else(|| format!("it is not a whole number between 1 and {PAGE_COUNT_MAX}"))
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("it is neither true nor false".to_owned()),
    }
}

/// Undoes percent-encoding; `None` when the result is not UTF-8 or an escape is broken.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidewheel_core::job::State;

    use super::super::filter::ShownState;
    use super::*;

    fn read(text: &str, known: &[&str]) -> Result<Query, Vec<(Code, String)>> {
        let mut faults = Faults::default();
        let query = Query::read(text, known, &mut faults);
        let found: Vec<_> = faults.into_list().into_iter().map(|fault| (fault.code, fault.detail)).collect();
        if found.is_empty() { Ok(query) } else { Err(found) }
    }

    #[test]
    fn everything_a_list_can_be_asked() {
        let cursor = "job_01JDQ5M8ZK0000000000000000";
        let schedule = "sch_01JDQ5M8ZK0000000000000000";
        let query = read(
            &format!(
                "state=ready,running&state=dead&type=a%2Fb&queue=q&schedule={schedule}&label.team=ops+1&label.a=b\
                 &from=2026-12-01T09:00:00%2B01:00&to=2026-12-01T09:00:00+00:00&limit=1000&cursor={cursor}&payload=true"
            ),
            LIST,
        )
        .unwrap();
        assert_eq!(
            query.filter.states,
            [ShownState::Ready, ShownState::Stored(State::Running), ShownState::Stored(State::Dead)]
        );
        assert_eq!(query.filter.kind.as_deref(), Some("a/b"));
        assert_eq!(query.filter.schedule.unwrap().to_string(), schedule);
        assert_eq!(query.filter.labels, [("a".into(), "b".into()), ("team".into(), "ops 1".into())]);
        assert_eq!(query.filter.from.unwrap().to_string(), "2026-12-01T08:00:00.000Z");
        assert_eq!(query.filter.to.unwrap().to_string(), "2026-12-01T09:00:00.000Z");
        assert_eq!((query.limit, query.payload), (1_000, true));
        assert_eq!(cursor_text(query.cursor.unwrap()), cursor);
    }

    #[test]
    fn what_is_wrong_with_a_query_is_named() {
        use Code::{InvalidCursor, InvalidParameter, MalformedRequest, UnknownParameter};
        for (text, known, code, word) in [
            ("stat=ready", LIST, UnknownParameter, "`state`"),
            ("x=1", NONE, UnknownParameter, "none"),
            ("state=redy", LIST, InvalidParameter, "`ready`"),
            ("limit=0", LIST, InvalidParameter, "1000"),
            ("limit=1001", LIST, InvalidParameter, "1000"),
            ("limit=-1", LIST, InvalidParameter, "1000"),
            ("limit=1&limit=2", LIST, InvalidParameter, "twice"),
            ("cursor=zzz", LIST, InvalidCursor, "cursor"),
            ("from=yesterday", LIST, InvalidParameter, "RFC 3339"),
            ("payload=maybe", LIST, InvalidParameter, "true"),
            ("type=%0a", LIST, InvalidParameter, "control"),
            ("type=%ff", LIST, MalformedRequest, "UTF-8"),
            ("type=%4", LIST, MalformedRequest, "percent"),
            ("state=dead", DEAD_LIST, UnknownParameter, "type, queue, schedule, label.KEY, "),
            ("labl.=1", LIST, UnknownParameter, "`label.KEY`"),
            ("state=asleep", LIST, InvalidParameter, "write one of scheduled, ready, "),
            ("schedule=nightly", LIST, InvalidParameter, "it is not a schedule id"),
            ("schedule=", LIST, InvalidParameter, "sch_"),
            ("to=9999-12-31T23:59:59Z", LIST, InvalidParameter, "later than 9999-12-30T22:00:00.000Z"),
        ] {
            let faults = read(text, known).unwrap_err();
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert_eq!(faults[0].0, code, "{text}: {faults:?}");
            assert!(faults[0].1.contains(word), "{text}: {faults:?}");
        }
        assert_eq!(read("a=1&b=2", LIST).unwrap_err().len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
            drop(read(&text, LIST));
        }
    }
}
