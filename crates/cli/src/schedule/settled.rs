//! A schedule's fields in one form: short forms spelled out, objects flattened to dotted names, durations and times
//! written one way, what is registered for its type filled in, defaults left out. Two schedules are the same when their
//! settled forms are.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tidewheel_api::wire::job_request::QUEUE_DEFAULT;
use tidewheel_api::wire::schedule_request::TYPE_DEFAULT;
use tidewheel_core::limits::{MISFIRE_CAP_COUNT_DEFAULT, MISFIRE_GRACE_MS_DEFAULT, TIMEOUT_MS_DEFAULT};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::{Timestamp, format_duration, parse_duration};

use super::registered::Registered;
use crate::document::Document;

/// What a user may say of a schedule, in the order a file is written.
pub(super) const FIELDS: [&str; 27] = [
    "name",
    "note",
    "cron_expr",
    "every",
    "timezone",
    "start_at",
    "end_at",
    "window",
    "dst",
    "exclude",
    "misfire",
    "misfire_cap",
    "misfire_grace",
    "overlap",
    "allow_overlap",
    "type",
    "payload",
    "target",
    "target_url",
    "queue",
    "priority",
    "retry",
    "max_attempts",
    "timeout",
    "labels",
    "idempotency_key",
    "paused",
];

/// The settled fields that decide when a schedule fires, by how their names begin.
const TIMING: [&str; 8] =
    ["cron_expr", "every", "timezone", "start_at", "end_at", "window", "dst.", "exclude."];

const DURATIONS: [&str; 6] = ["every", "window", "misfire_grace", "timeout", "retry.base", "retry.max"];
const TIMES: [&str; 2] = ["start_at", "end_at"];

/// The fields that are not at their defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Settled(pub(super) BTreeMap<String, Value>);

/// One field that differs. An absent value is the default.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The field, with dots into objects.
    pub(crate) field: String,
    /// What it is.
    pub(crate) before: Option<Value>,
    /// What it would be.
    pub(crate) after: Option<Value>,
}

impl Change {
    /// Whether it decides when the schedule fires.
    pub(crate) fn is_of_timing(&self) -> bool {
        is_of_timing(&self.field)
    }
}

fn is_of_timing(field: &str) -> bool {
    TIMING.iter().any(|name| if name.ends_with('.') { field.starts_with(name) } else { field == *name })
}

impl Settled {
    /// From what the server shows; fields that are not the user's to set are left out.
    pub(super) fn of(document: &Document) -> Self {
        Self::said(document).without_defaults()
    }

    /// From what a user wrote: what the server makes of it.
    pub(super) fn filled(document: &Document, registered: &Registered) -> Self {
        let mut settled = Self::said(document);
        registered.fill(document, &mut settled);
        settled.without_defaults()
    }

    /// What is said, defaults or not.
    pub(super) fn said(document: &Document) -> Self {
        let mut settled = Self::default();
        for (name, value) in document.fields().filter(|(name, _)| FIELDS.contains(name)) {
            // Text that came as JSON is JSON; nothing is lost by the fallback.
            settled.take(name, serde_json::from_str(value.get()).unwrap_or_default());
        }
        settled.normalise();
        settled
    }

    fn take(&mut self, name: &str, value: Value) {
        match (name, value) {
            // For a payload, null is what one gets by default, too.
            (_, Value::Null) => {}
            ("target_url", value) => self.put("target.url", value),
            ("max_attempts", value) => self.put("retry.max_attempts", value),
            ("allow_overlap", value) => {
                self.put("overlap", if value == Value::Bool(true) { "allow" } else { "skip" }.into());
            }
            ("exclude", Value::String(calendar)) => self.put("exclude.calendar", calendar.into()),
            ("exclude", Value::Array(dates)) => self.put("exclude.dates", dates.into()),
            ("target" | "retry" | "dst" | "exclude" | "labels", Value::Object(inner)) => {
                for (key, value) in inner {
                    match (name, key.as_str()) {
                        ("target", "timeout") => self.take("timeout", value),
                        _ => self.take(&format!("{name}.{key}"), value),
                    }
                }
            }
            (name, value) => self.put(name, value),
        }
    }

    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn normalise(&mut self) {
        for (name, value) in &mut self.0 {
            let name = name.as_str();
            if DURATIONS.contains(&name) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if let Ok(ms) = parse_duration(&text) {
                    *value = format_duration(ms).into();
                }
            } else if TIMES.contains(&name)
                && let Some(Ok(at)) = value.as_str().map(str::parse::<Timestamp>)
            {
                *value = at.to_string().into();
            } else if name == "exclude.dates"
                && let Some(dates) = value.as_array_mut()
            {
                dates.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                dates.dedup();
            } else if name == "target.method"
                && let Some(method) = value.as_str()
            {
                *value = method.to_ascii_uppercase().into();
            }
        }
    }

    /// The same without what the server takes where nothing is said.
    pub(super) fn without_defaults(mut self) -> Self {
        let pushed = self.0.contains_key("target.url");
        // The type of the server's making.
        let kind = self.0.get("name").cloned().unwrap_or_else(|| TYPE_DEFAULT.into());
        let capped = self.0.get("misfire").is_some_and(|policy| policy == "fire_all");
        let wait_max = self.wait_max();
        self.0.retain(|name, value| {
            let idle = match name.as_str() {
                "queue" => pushed,
                "misfire_cap" => !capped,
                "type" => *value == kind,
                "retry.max" => return *value != wait_max,
                _ => false,
            };
            !idle && !default_of(name).is_some_and(|default| same(&default, value))
        });
        self
    }

    /// The longest wait where nothing is said of it: the first one, if that is longer than the usual longest.
    fn wait_max(&self) -> Value {
        let base = self.0.get("retry.base").and_then(Value::as_str);
        let base_ms = base.and_then(|base| parse_duration(base).ok()).unwrap_or_default();
        format_duration(base_ms.max(RetryPolicy::default().max_ms)).into()
    }

    /// What a field is, be it said or the default.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        match (self.0.get(name), name) {
            (Some(value), _) => Some(value.clone()),
            (None, "retry.max") => Some(self.wait_max()),
            (None, name) => default_of(name),
        }
    }

    /// Says a field in any case, unless it is what comes of leaving it out.
    pub(super) fn leave_out_or_say(&mut self, name: &str, left_out: &Value) {
        match self.value(name) {
            Some(value) if !same(&value, left_out) => self.put(name, value),
            Some(_) | None => drop(self.0.remove(name)),
        }
    }

    /// Whether the schedule waits to be resumed.
    pub(super) fn is_paused(&self) -> bool {
        self.0.get("paused") == Some(&Value::Bool(true))
    }

    /// What differs between what is and what would be. A pause stays as it is unless the file says otherwise:
    /// whoever paused a schedule by hand had a reason.
    pub(super) fn changes(&self, after: &Self, pause_is_said: bool) -> Vec<Change> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        let changes =
            names.into_iter().filter(|name| pause_is_said || *name != "paused").filter_map(|name| {
                let (before, after) = (self.0.get(name), after.0.get(name));
                let equal = match (before, after) {
                    (Some(before), Some(after)) => same(before, after),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                (!equal).then(|| Change {
                    field: name.clone(),
                    before: before.cloned(),
                    after: after.cloned(),
                })
            });
        changes.collect()
    }

    /// The fields as a user would write them, in the order of [`FIELDS`].
    pub(super) fn written(&self) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        for name in FIELDS {
            if let Some(value) = self.0.get(name) {
                fields.push((name, value.clone()));
                continue;
            }
            let prefix = format!("{name}.");
            let inner: Map<String, Value> = self
                .0
                .iter()
                .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.clone())))
                .collect();
            match (name, inner.len()) {
                (_, 0) => {}
                ("target", 1) => fields.extend(inner.get("url").map(|url| ("target_url", url.clone()))),
                ("retry", 1) if inner.contains_key("max_attempts") => {
                    fields.extend(inner.get("max_attempts").map(|count| ("max_attempts", count.clone())));
                }
                (_, _) => fields.push((name, Value::Object(inner))),
            }
        }
        fields
    }
}

/// What the server takes where nothing is said; for the longest wait, see [`Settled::wait_max`].
fn default_of(name: &str) -> Option<Value> {
    let retry = RetryPolicy::default();
    Some(match name {
        "timezone" => "UTC".into(),
        "window" => "0s".into(),
        "dst.gap" => "next_valid".into(),
        "dst.fold" => "first".into(),
        "exclude.dates" => Value::Array(Vec::new()),
        "exclude.roll" => "none".into(),
        "misfire" => "fire_latest".into(),
        "misfire_cap" => MISFIRE_CAP_COUNT_DEFAULT.into(),
        "misfire_grace" => format_duration(MISFIRE_GRACE_MS_DEFAULT).into(),
        "overlap" => "allow".into(),
        "queue" => QUEUE_DEFAULT.into(),
        "target.method" => "POST".into(),
        "target.headers" => Value::Object(Map::new()),
        "priority" => "normal".into(),
        "retry.max_attempts" => retry.max_attempts.into(),
        "retry.policy" => "exponential_jitter".into(),
        "retry.base" => format_duration(retry.base_ms).into(),
        "retry.multiplier" => retry.multiplier.into(),
        "timeout" => format_duration(TIMEOUT_MS_DEFAULT).into(),
        "paused" => false.into(),
        _ => return None,
    })
}

/// Whether two values mean the same: `2` and `2.0` do.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(json: &str) -> Settled {
        Settled::of(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let short = r#"{"every": 90, "target_url": "http://a/", "max_attempts": 3, "allow_overlap": false, "timeout": "PT60S",
            "start_at": "2026-12-01T10:00:00+01:00", "exclude": ["2026-12-26", "2026-12-25"], "payload": {"b": 1, "a": 2.0}}"#;
        let long = r#"{"id": "sch_1", "name": null, "cron_expr": null, "every": "1m30s", "timezone": "UTC", "window": "0s",
            "target": {"url": "http://a/", "method": "post", "headers": {}}, "queue": null, "overlap": "skip", "timeout": "1m",
            "retry": {"max_attempts": 3, "policy": "exponential_jitter", "base": "1s", "multiplier": 2, "max": "1h"},
            "start_at": "2026-12-01T09:00:00.000Z", "dst": {"gap": "next_valid", "fold": "first"},
            "exclude": {"dates": ["2026-12-25", "2026-12-26"], "calendar": null, "roll": "none"}, "misfire": "fire_latest",
            "misfire_cap": 10, "misfire_grace": "1m", "paused": false, "payload": {"a": 2, "b": 1}, "labels": {},
            "next_fire_at": "2026-12-01T09:00:00.000Z"}"#;
        assert_eq!(settled(short).changes(&settled(long), true), []);
        assert_ne!(settled(short), Settled::default());
    }

    #[test]
    fn the_longest_wait_is_no_shorter_than_the_first() {
        // As the server has it: the base beyond the usual longest wait is the longest, too.
        let shown = r#"{"retry": {"base": "2h", "max": "2h"}}"#;
        for said in
            [r#"{"retry": {"base": "2h"}}"#, r#"{"retry": {"base": "120m"}}"#, r#"{"retry": {"base": 7200}}"#]
        {
            assert_eq!(settled(said), settled(shown), "{said}");
        }
        assert_ne!(settled(r#"{"retry": {"base": "2h", "max": "3h"}}"#), settled(shown));
        assert_ne!(settled(r#"{"retry": {"max": "2h"}}"#), settled(r#"{}"#));
    }

    #[test]
    fn a_type_of_the_servers_making_is_the_default() {
        assert_eq!(settled(r#"{"name": "a", "type": "a"}"#), settled(r#"{"name": "a"}"#));
        assert_eq!(settled(r#"{"type": "scheduled"}"#), Settled::default());
        assert_ne!(settled(r#"{"name": "a", "type": "scheduled"}"#), settled(r#"{"name": "a"}"#));
    }

    #[test]
    fn changes_are_told_field_by_field_with_defaults_left_out() {
        let before =
            settled(r#"{"cron_expr": "0 9 * * *", "window": "5m", "labels": {"a": "1"}, "paused": true}"#);
        let after =
            settled(r#"{"cron_expr": "0 9 * * *", "timezone": "Europe/Paris", "labels": {"a": "2"}}"#);
        let changes = before.changes(&after, false);
        let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["labels.a", "timezone", "window"], "a pause by hand stays");
        assert_eq!(changes[2].after, None);
        assert_eq!(changes.iter().map(Change::is_of_timing).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(before.changes(&after, true).len(), 4);
    }

    #[test]
    fn what_is_written_settles_to_the_same() {
        for json in [
            r#"{"name": "a", "every": "5m", "target_url": "http://a/", "max_attempts": 3}"#,
            r#"{"cron_expr": "@daily", "target": {"url": "http://a/", "method": "PUT", "headers": {"x": "y"}}, "retry": {"base": "5s"}}"#,
            r#"{"cron_expr": "@daily", "exclude": {"calendar": "c", "roll": "next_business_day"}, "labels": {"k.l": "v"},
                "misfire": "fire_all", "misfire_cap": 3, "paused": true, "payload": [1, null], "dst": {"fold": "both"}}"#,
        ] {
            let once = settled(json);
            let written: Map<String, Value> =
                once.written().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(settled(&Value::Object(written).to_string()), once, "{json}");
        }
    }
}
