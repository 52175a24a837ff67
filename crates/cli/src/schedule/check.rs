//! What is wrong with a schedule of a file, found before anything is changed: it is read by the server's own reader. What
//! only the server knows is left to it: its time zones, the networks it pushes to, calendars and limits.

use serde_json::Value;
use tidewheel_api::wire::fault::{At, Code, Fault, Faults, shown};
use tidewheel_api::wire::job_request::TargetRules;
use tidewheel_api::wire::schedule_request::ScheduleReader;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::push::{AddressPolicy, TargetFault, check_headers, check_method};

/// The fields that are true or false. In YAML, `yes` and `off` are texts.
const BOOLEANS: [&str; 2] = ["paused", "allow_overlap"];

/// Reads schedules as the server does.
pub(super) struct Checker {
    zones: Zones,
    targets: Targets,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { zones: Zones::bundled(), targets: Targets(AddressPolicy::public_only()) }
    }

    /// What is wrong with a schedule, given as a JSON object: each fault with its field.
    pub(super) fn faults(&self, schedule: &str) -> Vec<String> {
        // Intervals count from now, which makes none of them wrong.
        let now = Timestamp::from_ms(0);
        let reader = ScheduleReader { now, rules: &self.targets, zones: &self.zones };
        let mut faults = Faults::default();
        reader.read(schedule, &At::ROOT, &mut faults);
        if faults.is_empty() {
            return Vec::new();
        }
        let values: Value = serde_json::from_str(schedule).unwrap_or_default();
        // The server may know zones that came later than this program; it is asked about them with the times to come.
        let faults = faults.into_list().into_iter().filter(|fault| fault.code != Code::InvalidTimezone);
        let mut faults: Vec<Fault> = faults.collect();
        // What is of the wrong type need not be told to be wrong in other ways, too.
        faults.dedup_by(|later, first| first.code == Code::WrongType && later.pointer == first.pointer);
        faults.iter().map(|fault| told(fault, &values)).collect()
    }
}

/// A fault with its field, and what to write where that can be said.
fn told(fault: &Fault, schedule: &Value) -> String {
    let Fault { code, pointer, detail } = fault;
    let field = dotted(pointer);
    let found = schedule.pointer(pointer).filter(|_| *code == Code::WrongType);
    let remedy = match found {
        Some(found) if BOOLEANS.contains(&field.as_str()) => {
            format!(" ({}); write {field}: true or {field}: false", shown(&found.to_string()))
        }
        Some(found @ (Value::Number(_) | Value::Bool(_))) if detail.starts_with("expected a string,") => {
            format!("; put it in quotes: \"{found}\"")
        }
        Some(_) | None => String::new(),
    };
    if field.is_empty() { format!("{detail}{remedy}") } else { format!("{field}: {detail}{remedy}") }
}

/// A JSON pointer as fields are named elsewhere: `retry.base`.
fn dotted(pointer: &str) -> String {
    let steps = pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    steps.collect::<Vec<_>>().join(".")
}

/// Judges targets as far as every server does. Which networks are open is each operator's choice.
struct Targets(AddressPolicy);

impl TargetRules for Targets {
    fn check_url(&self, url: &str) -> Result<(), String> {
        match self.0.check_url(url) {
            Ok(_) | Err(TargetFault::Localhost(_) | TargetFault::Address(_)) => Ok(()),
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn check_method(&self, method: &str) -> Result<(), String> {
        check_method(method).map(drop).map_err(|fault| fault.to_string())
    }

    fn check_headers(&self, headers: &[(Box<str>, Box<str>)]) -> Result<(), String> {
        let pairs = headers.iter().map(|(name, value)| (&**name, &**value));
        check_headers(pairs).map(drop).map_err(|fault| fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a schedule that says this beside its name and its interval.
    fn faults(fields: &str) -> Vec<String> {
        Checker::new().faults(&format!(r#"{{"name":"n","every":"5m",{fields}}}"#))
    }

    #[test]
    fn what_is_neither_true_nor_false_is_told_with_what_to_write() {
        for field in BOOLEANS {
            for (value, kind) in [
                (r#""yes""#, "a string"),
                (r#""true""#, "a string"),
                (r#""off""#, "a string"),
                ("1", "a number"),
                ("[]", "an array"),
            ] {
                let wanted = format!(
                    "{field}: expected true or false, found {kind} ({value}); write {field}: true or {field}: false"
                );
                assert_eq!(faults(&format!(r#""{field}":{value}"#)), [wanted]);
            }
            for value in ["true", "false", "null"] {
                assert_eq!(faults(&format!(r#""{field}":{value}"#)), [""; 0], "{field}: {value}");
            }
        }
    }

    #[test]
    fn every_field_is_read_as_the_server_reads_it() {
        for (fields, wanted) in [
            (r#""labels":{"a":5}"#, "labels.a: expected a string, found a number; put it in quotes: \"5\""),
            (r#""labels":["a"]"#, "labels: expected an object"),
            (r#""max_attempts":"3""#, "max_attempts: "),
            (r#""note":true"#, "note: expected a string, found a boolean; put it in quotes: \"true\""),
            (r#""priority":"urgent""#, "priority: "),
            (r#""misfire":"all""#, "misfire: \"all\" is none of fire_all, fire_latest, skip"),
            (r#""misfire_cap":3"#, "misfire_cap: `misfire_cap` is for `misfire: fire_all` only"),
            (r#""misfire_grace":"soon""#, "misfire_grace: "),
            (r#""overlap":"never""#, "overlap: \"never\" is none of"),
            (r#""retry":{"base":"soon"}"#, "retry.base: "),
            (r#""retry":5"#, "retry: expected an object, found a number"),
            (r#""timeout":[]"#, "timeout: "),
            (r#""type":"a b""#, "type: "),
            (r#""timezone":5"#, "timezone: expected a string, found a number; put it in quotes: \"5\""),
            (r#""exclude":5"#, "exclude: expected an object, found a number"),
            (r#""exclude":["tomorrow"]"#, "exclude.0: \"tomorrow\" is not a date"),
            (r#""window":"25h""#, "window: "),
            (r#""target_url":"ftp://a/""#, "target_url: the target's scheme is `ftp`"),
            (
                r#""target":{"url":"http://a/","method":"TRACE"}"#,
                "target.method: the target's method `TRACE`",
            ),
            (
                r#""target":{"url":"http://a/","headers":{"Host":"b"}}"#,
                "target.headers: header `host` is set",
            ),
            (r#""idempotency_key":"""#, "idempotency_key: "),
            (r#""tenant":"acme""#, "tenant: there is no field \"tenant\""),
        ] {
            let found = faults(fields);
            assert_eq!(found.len(), 1, "{fields}: {found:?}");
            assert!(found[0].starts_with(wanted), "{fields}: {found:?}");
        }
    }

    #[test]
    fn what_only_the_server_knows_is_left_to_it() {
        for fields in [
            r#""timezone":"Mars/Base""#,
            r#""target_url":"http://localhost:8080/hook""#,
            r#""target_url":"http://10.0.0.1/hook""#,
            r#""exclude":"a-calendar""#,
        ] {
            assert_eq!(faults(fields), [""; 0], "{fields}");
        }
        assert_eq!(Checker::new().faults(r#"{"name":"n","every":"2s"}"#), [""; 0], "the tenant's limits");
    }
}
