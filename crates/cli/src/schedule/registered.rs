//! What is registered for job types, as far as it speaks for schedules that do not: the server fills in what a
//! schedule leaves out of its jobs, so a file says less than what comes of it.

use std::collections::BTreeMap;

use serde_json::Value;
use tidewheel_api::client::{Call, Client, Error};
use tidewheel_api::wire::schedule_request::TYPE_DEFAULT;
use tidewheel_core::limits::PAGE_COUNT_MAX;

use super::settled::{Settled, same};
use crate::document::Document;

/// The status of a server that knows no types.
const NOT_FOUND: u16 = 404;

/// All of a retry policy.
const RETRY: [&str; 5] =
    ["retry.max_attempts", "retry.policy", "retry.base", "retry.multiplier", "retry.max"];

/// The defaults of each job type that has any.
#[derive(Debug, Default)]
pub(super) struct Registered(BTreeMap<String, Settled>);

impl Registered {
    /// Asks the server. There are never more types than fit on a page.
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        let call = Call::get(&["types"]).query("limit", &PAGE_COUNT_MAX.to_string());
        let page: Document = match client.send(&call).await {
            Ok(answer) => answer.json()?,
            Err(error) if error.problem().is_some_and(|problem| problem.status == NOT_FOUND) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error),
        };
        Ok(Self::of(&page.list("items").unwrap_or_default()))
    }

    fn of(types: &[Document]) -> Self {
        let with_defaults = |of: &Document| Some((of.text("type")?, Settled::said(&of.inner("defaults")?)));
        Self(types.iter().filter_map(with_defaults).collect())
    }

    /// What holds for jobs of a schedule's type.
    fn defaults(&self, schedule: &Document) -> Option<&Settled> {
        let kind = schedule.first_text(&["type", "name"]);
        self.0.get(kind.as_deref().unwrap_or(TYPE_DEFAULT))
    }

    /// Has the type say what a schedule does not say itself: where its jobs go as a whole, and of `retry`, where only
    /// the number of attempts is said, the rest.
    pub(super) fn fill(&self, schedule: &Document, settled: &mut Settled) {
        let Some(defaults) = self.defaults(schedule) else { return };
        let says_where = schedule.first_text(&["queue", "target", "target_url"]).is_some();
        let says_when_again = schedule.text("retry").is_some();
        for (name, value) in &defaults.0 {
            let is_left_out = match Part::of(name) {
                Part::Destination => !says_where,
                Part::Retry => !says_when_again && !settled.0.contains_key(name),
                Part::Other => !settled.0.contains_key(name),
            };
            if is_left_out {
                settled.0.insert(name.clone(), value.clone());
            }
        }
    }

    /// What of a schedule must be said so that [`Registered::fill`] gives the whole of it: not what its type says as
    /// well, but everything in which the two differ, defaults or not.
    pub(super) fn to_say(&self, schedule: &Document, settled: &Settled) -> Settled {
        let mut said = settled.clone();
        let Some(defaults) = self.defaults(schedule) else { return said };
        for name in ["priority", "timeout"] {
            if let Some(default) = defaults.0.get(name) {
                said.leave_out_or_say(name, default);
            }
        }
        if defaults.0.keys().any(|name| Part::of(name) == Part::Retry) {
            say_retry(&mut said, defaults);
        }
        if defaults.0.keys().any(|name| Part::of(name) == Part::Destination) {
            say_destination(&mut said, defaults);
        }
        said
    }
}

/// What of a job a field belongs to, of what is left out or said as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Destination,
    Retry,
    Other,
}

impl Part {
    fn of(name: &str) -> Self {
        if name == "queue" || name.starts_with("target.") {
            Self::Destination
        } else if name.starts_with("retry.") {
            Self::Retry
        } else {
            Self::Other
        }
    }
}

/// The number of attempts can be said alone; of the rest, what is not said is at its own default, not at the type's.
fn say_retry(said: &mut Settled, defaults: &Settled) {
    let whole: Vec<(&str, Option<Value>)> = RETRY.iter().map(|name| (*name, said.value(name))).collect();
    let differs = |name: &str| {
        let (own, default) = (said.value(name), defaults.value(name));
        !own.zip(default).is_some_and(|(own, default)| same(&own, &default))
    };
    let different: Vec<&str> = RETRY.into_iter().filter(|name| differs(name)).collect();
    let is_said = |name: &str| match different.as_slice() {
        [] => false,
        ["retry.max_attempts"] => name == "retry.max_attempts",
        [..] => true,
    };
    let kept: Vec<(&str, Value)> = whole
        .into_iter()
        .filter(|(name, _)| is_said(name))
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    said.0.retain(|name, _| Part::of(name) != Part::Retry);
    said.0.extend(kept.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

fn say_destination(said: &mut Settled, defaults: &Settled) {
    let of = |settled: &Settled| {
        let fields = settled.0.iter().filter(|(name, _)| Part::of(name) == Part::Destination);
        fields.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    if of(said) == of(&defaults.clone().without_defaults()) {
        said.0.retain(|name, _| Part::of(name) != Part::Destination);
    } else if of(said).is_empty() {
        said.0.extend(said.value("queue").map(|queue| ("queue".to_owned(), queue)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn document(json: &str) -> Document {
        serde_json::from_str(json).unwrap()
    }

    fn registered() -> Registered {
        Registered::of(&[
            document(
                r#"{"type": "mail", "defaults": {"queue": "mail", "priority": "low", "timeout": "PT90S",
                    "retry": {"max_attempts": 3, "policy": "fixed", "base": "120m", "multiplier": 2, "max": "2h"}}}"#,
            ),
            document(
                r#"{"type": "hook", "defaults": {"target": {"url": "http://a/", "method": "POST", "headers": {}}}}"#,
            ),
            document(r#"{"type": "bare", "defaults": {}}"#),
        ])
    }

    fn filled(json: &str) -> Settled {
        Settled::filled(&document(json), &registered())
    }

    fn bare(json: &str) -> Settled {
        Settled::of(&document(json))
    }

    const RETRY_OF_MAIL: &str = r#""retry": {"max_attempts": 3, "policy": "fixed", "base": "2h"}"#;

    #[test]
    fn what_is_left_out_is_what_the_type_says() {
        let whole = format!(
            r#"{{"name": "a", "type": "mail", "queue": "mail", "priority": "low", "timeout": "1m30s", {RETRY_OF_MAIL}}}"#
        );
        assert_eq!(filled(r#"{"name": "a", "type": "mail"}"#), bare(&whole));
        // A name is a type, too.
        assert_eq!(
            filled(r#"{"name": "mail"}"#),
            bare(&whole.replace(r#""a", "type": "mail""#, r#""mail""#))
        );
        assert_eq!(filled(r#"{"name": "a", "type": "other"}"#), bare(r#"{"name": "a", "type": "other"}"#));
        let pushed = r#"{"name": "hook", "target_url": "http://a/"}"#;
        assert_eq!(filled(r#"{"name": "hook"}"#), bare(pushed));
        assert_eq!(filled(r#"{"name": "hook", "queue": "q"}"#), bare(r#"{"name": "hook", "queue": "q"}"#));
    }

    #[test]
    fn what_is_said_counts() {
        let said =
            r#"{"name": "mail", "queue": "default", "priority": "normal", "timeout": "30s", "retry": {}}"#;
        assert_eq!(filled(said), bare(r#"{"name": "mail"}"#));
        let attempts = filled(r#"{"name": "mail", "max_attempts": 9}"#);
        assert_eq!(attempts.0["retry.max_attempts"], 9);
        assert_eq!(attempts.0["retry.policy"], "fixed");
        assert_eq!(attempts.0["retry.base"], "2h");
    }

    #[test]
    fn what_is_to_be_said_gives_the_whole() {
        for shown in [
            r#"{"name": "mail", "queue": "mail", "priority": "low", "timeout": "1m30s",
                "retry": {"max_attempts": 3, "policy": "fixed", "base": "2h", "multiplier": 2.0, "max": "2h"}}"#,
            // All of it at the usual defaults, which are not the type's.
            r#"{"name": "mail", "queue": "default", "priority": "normal", "timeout": "30s",
                "retry": {"max_attempts": 5, "policy": "exponential_jitter", "base": "1s", "multiplier": 2.0, "max": "1h"}}"#,
            r#"{"name": "mail", "target": {"url": "http://a/"}, "priority": "high", "timeout": "5m",
                "retry": {"max_attempts": 7, "policy": "fixed", "base": "2h", "multiplier": 2.0, "max": "2h"}}"#,
            r#"{"name": "mail", "queue": "q", "priority": "high", "timeout": "5m",
                "retry": {"max_attempts": 3, "policy": "fixed", "base": "3h", "multiplier": 2.0, "max": "5h"}}"#,
            r#"{"name": "hook", "queue": "default", "priority": "normal"}"#,
            r#"{"name": "hook", "target": {"url": "http://a/", "method": "POST", "headers": {}}}"#,
            r#"{"name": "hook", "target": {"url": "http://a/", "method": "PUT", "headers": {"x": "y"}}}"#,
            r#"{"name": "bare", "queue": "q"}"#,
        ] {
            let (schedule, whole) = (document(shown), bare(shown));
            let written = registered().to_say(&schedule, &whole).written();
            let file: Map<String, Value> =
                written.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let file = Value::Object(file).to_string();
            assert_eq!(filled(&file), whole, "{file}");
        }
        let least = r#"{"name": "mail", "queue": "mail", "priority": "low", "timeout": "1m30s",
            "retry": {"max_attempts": 3, "policy": "fixed", "base": "2h", "multiplier": 2.0, "max": "2h"}}"#;
        let written = registered().to_say(&document(least), &bare(least)).written();
        assert_eq!(written, [("name", Value::from("mail"))], "nothing the type says as well");
    }
}
