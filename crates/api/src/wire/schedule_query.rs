//! The part of an address after `?`, where schedules, their ledgers and calendars are read.

use std::borrow::Cow;
use std::sync::Arc;

use tidewheel_core::limits::{PAGE_COUNT_DEFAULT, PREVIEW_COUNT_MAX};
use tidewheel_core::schedule::State;

use super::fault::{At, Code, Faults};
use super::filter::no_state;
use super::query::{PARAMETERS_COUNT_MAX, boolean, decode, limit, refuse, unknown};

/// Parameters of a list of schedules.
pub const LIST: &[&str] = &["state", "type", "name", "calendar", "limit", "cursor", "payload"];
/// Parameters of a ledger, and of a list of calendars.
pub const PAGE: &[&str] = &["limit", "cursor"];
/// Parameters of a schedule's next fires.
pub const NEXT: &[&str] = &["count"];
/// Parameters of a preview.
pub const PREVIEW: &[&str] = &["limits"];

/// Fires told of one schedule unless asked otherwise.
const NEXT_COUNT_DEFAULT: usize = 10;

/// What a query says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleQuery {
    /// In one of these states; none is all.
    pub states: Vec<State>,
    /// Of this type.
    pub kind: Option<Arc<str>>,
    /// Of this name.
    pub name: Option<Arc<str>>,
    /// Naming this calendar.
    pub calendar: Option<Arc<str>>,
    /// Items on a page.
    pub limit: usize,
    /// Where the last page ended, for whoever handed it out to read.
    pub cursor: Option<String>,
    /// Whether payloads are wanted; they are part of what a schedule is.
    pub payload: bool,
    /// How many fires.
    pub count: usize,
    /// Whether a preview keeps to the tenant's limits.
    pub limits: bool,
}

impl ScheduleQuery {
    /// Reads a query that may have the `known` parameters.
    #[must_use]
    pub fn read(text: &str, known: &[&str], faults: &mut Faults) -> Self {
        let mut query = Self {
            states: Vec::new(),
            kind: None,
            name: None,
            calendar: None,
            limit: PAGE_COUNT_DEFAULT,
            cursor: None,
            payload: true,
            count: NEXT_COUNT_DEFAULT,
            limits: false,
        };
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_COUNT_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                faults.add(Code::MalformedRequest, &At::ROOT, "the query is not UTF-8 with percent-encoding");
                continue;
            };
            if !known.contains(&name.as_ref()) {
                unknown(&name, known, faults);
            } else if seen.contains(&name) && name != "state" {
                refuse(Code::InvalidParameter, &name, "it is given twice", faults);
            } else if let Err(detail) = query.set(&name, &value) {
                refuse(Code::InvalidParameter, &name, &detail, faults);
            }
            seen.push(name);
        }
        query
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if value.chars().any(char::is_control) {
            return Err("it holds a control character".to_owned());
        }
        match name {
            "state" => self.add_states(value)?,
            "type" => self.kind = Some(value.into()),
            "name" => self.name = Some(value.into()),
            "calendar" => self.calendar = Some(value.into()),
            "limit" => self.limit = limit(value)?,
            "cursor" => self.cursor = Some(value.to_owned()),
            "payload" => self.payload = boolean(value)?,
            "limits" => self.limits = boolean(value)?,
            // Only `count` is left of what is known.
            _ => {
                let count = value.parse().ok().filter(|count| (1..=PREVIEW_COUNT_MAX).contains(count));
                let refused = || format!("it is not a whole number between 1 and {PREVIEW_COUNT_MAX}");
                self.count = count.ok_or_else(refused)?;
            }
        }
        Ok(())
    }

    fn add_states(&mut self, text: &str) -> Result<(), String> {
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let Some(state) = State::from_name(name) else {
                return Err(no_state(name, &State::ALL.map(State::as_str)));
            };
            if !self.states.contains(&state) {
                self.states.push(state);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, known: &[&str]) -> Result<ScheduleQuery, Vec<(Code, String)>> {
        let mut faults = Faults::default();
        let query = ScheduleQuery::read(text, known, &mut faults);
        let found: Vec<_> = faults.into_list().into_iter().map(|fault| (fault.code, fault.detail)).collect();
        if found.is_empty() { Ok(query) } else { Err(found) }
    }

    #[test]
    fn everything_a_list_can_be_asked() {
        let text =
            "state=active,paused&state=active&type=a%2Fb&name=n&calendar=c&limit=7&cursor=x&payload=false";
        let query = read(text, LIST).unwrap();
        assert_eq!(query.states, [State::Active, State::Paused]);
        assert_eq!((query.kind.as_deref(), query.name.as_deref()), (Some("a/b"), Some("n")));
        assert_eq!((query.calendar.as_deref(), query.cursor.as_deref()), (Some("c"), Some("x")));
        assert_eq!((query.limit, query.payload), (7, false));
        assert_eq!((read("count=3", NEXT).unwrap().count, read("", NEXT).unwrap().count), (3, 10));
        assert!(read("limits=true", PREVIEW).unwrap().limits && !read("", PREVIEW).unwrap().limits);
    }

    #[test]
    fn what_is_wrong_with_a_query_is_named() {
        for (text, known, code, word) in [
            ("stat=active", LIST, Code::UnknownParameter, "`state`"),
            ("state=activ", LIST, Code::InvalidParameter, "`active`"),
            ("limit=0", LIST, Code::InvalidParameter, "1000"),
            ("name=a&name=b", LIST, Code::InvalidParameter, "twice"),
            ("count=0", NEXT, Code::InvalidParameter, "1000"),
            ("count=1001", NEXT, Code::InvalidParameter, "1000"),
            ("limit=5", NEXT, Code::UnknownParameter, "known ones are count"),
            ("type=%0a", LIST, Code::InvalidParameter, "control"),
            ("type=%ff", LIST, Code::MalformedRequest, "UTF-8"),
        ] {
            let faults = read(text, known).unwrap_err();
            assert_eq!((faults.len(), faults[0].0), (1, code), "{text}: {faults:?}");
            assert!(faults[0].1.contains(word), "{text}: {faults:?}");
        }
    }
}
