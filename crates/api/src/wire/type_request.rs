//! A job type as an operator registers it: what its payloads look like, who may submit it, and what holds for jobs that
//! do not say.

use std::sync::Arc;

use tidewheel_core::job::{Destination, Priority};
use tidewheel_core::limits::{SCHEMA_BYTES_MAX, TYPE_NOTE_BYTES_MAX, TYPE_SUBMITTERS_COUNT_MAX};
use tidewheel_core::names::check_queue;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::Template;
use tidewheel_core::time::format_duration;

use super::fault::{At, Code, Faults};
use super::job_request::{
    JobRequest, LeftOut, TargetFields, TargetRules, named, read_priority, read_retry, read_target,
    read_timeout,
};
use super::key_request::ROLES;
use super::read::{self, Field};
use super::write::{self, JsonWriter};
use crate::known_fields;

/// How the id of a key begins.
const KEY_ID_PREFIX: &str = "key_";
/// How long the rest of it is.
const KEY_ID_HEX_COUNT: usize = 16;

/// A job type as it is to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TypeRequest {
    /// The type in the body, if there is one; it must be that of the address.
    pub kind: Option<String>,
    /// The JSON Schema its payloads must match, as it was sent.
    pub schema: Option<Box<str>>,
    /// Ids of keys and names of roles that may submit it; `None` is everybody who may submit at all.
    pub submitters: Option<Vec<Box<str>>>,
    /// What holds for jobs that do not say.
    pub defaults: TypeDefaults,
    /// What people should know.
    pub note: Option<Box<str>>,
}

/// What holds for jobs of a type that do not say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TypeDefaults {
    /// Where they go.
    pub destination: Option<Destination>,
    /// How urgent they are.
    pub priority: Option<Priority>,
    /// When to try again.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take.
    pub timeout_ms: Option<i64>,
}

known_fields!(TypeFields {
    kind = "type",
    schema = "schema",
    submitters = "submitters",
    defaults = "defaults",
    note = "note",
    idempotency_key = "idempotency_key",
});

known_fields!(DefaultFields {
    queue = "queue",
    target = "target",
    target_url = "target_url",
    priority = "priority",
    retry = "retry",
    max_attempts = "max_attempts",
    timeout = "timeout",
});

impl TypeRequest {
    /// Reads a type. Whether its schema can be used is not checked yet.
    pub fn read<R: TargetRules>(text: &str, rules: &R, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: TypeFields<'_> = read::body(text, at, faults)?;
        let kind = fields.kind.and_then(|field| field.text(at, faults)).map(String::from);
        let schema = fields.schema.and_then(|field| read_schema(&field, at, faults));
        let submitters = fields.submitters.and_then(|field| read_submitters(&field, at, faults));
        let note = fields.note.and_then(|field| read_note(&field, at, faults));
        let defaults = match fields.defaults {
            Some(field) => {
                let inner: DefaultFields<'_> = field.object(at, faults)?;
                read_defaults(&inner, rules, &at.field("defaults"), faults)
            }
            None => TypeDefaults::default(),
        };
        Some(Self { kind, schema, submitters, defaults, note })
    }

    /// Writes it, as it is read.
    pub fn write(&self, out: &mut JsonWriter, kind: &str) {
        out.object(|out| {
            out.key("type").text(kind);
            match &self.schema {
                Some(schema) => out.key("schema").raw(schema.as_bytes()),
                None => out.key("schema").null(),
            }
            match &self.submitters {
                Some(submitters) => out.key("submitters").array(|out| {
                    for submitter in submitters {
                        out.text(submitter);
                    }
                }),
                None => out.key("submitters").null(),
            }
            out.key("defaults").object(|out| self.defaults.write(out));
            out.key("note").text_or_null(self.note.as_deref());
        });
    }
}

impl TypeDefaults {
    /// Says what a job did not say itself.
    pub fn fill(&self, job: &mut JobRequest) {
        let JobRequest { destination, priority, retry, timeout_ms, left_out, .. } = job;
        self.fill_parts(*left_out, (destination, priority, retry, timeout_ms));
    }

    /// Says what a new schedule did not say of its jobs.
    pub fn fill_template(&self, left_out: LeftOut, template: &mut Template) {
        let Template { destination, priority, retry, timeout_ms, .. } = template;
        self.fill_parts(left_out, (destination, priority, retry, timeout_ms));
    }

    fn fill_parts(
        &self,
        left_out: LeftOut,
        (destination, priority, retry, timeout_ms): (
            &mut Destination,
            &mut Priority,
            &mut RetryPolicy,
            &mut i64,
        ),
    ) {
        if let Some(default) = self.destination.as_ref().filter(|_| left_out.destination) {
            *destination = default.clone();
        }
        if let Some(default) = self.priority.filter(|_| left_out.priority) {
            *priority = default;
        }
        if let Some(default) = self.retry.filter(|_| left_out.retry) {
            let max_attempts = if left_out.max_attempts { default.max_attempts } else { retry.max_attempts };
            *retry = RetryPolicy { max_attempts, ..default };
        }
        if let Some(default) = self.timeout_ms.filter(|_| left_out.timeout) {
            *timeout_ms = default;
        }
    }

    fn write(&self, out: &mut JsonWriter) {
        match &self.destination {
            Some(Destination::Queue(queue)) => out.key("queue").text(queue),
            Some(Destination::Target(target)) => out.key("target").object(|out| {
                out.key("url").text(&target.url);
                out.key("method").text(&target.method);
                out.key("headers").object(|out| {
                    for (name, value) in &target.headers {
                        out.key(name).text(value);
                    }
                });
            }),
            None => {}
        }
        if let Some(priority) = self.priority {
            out.key("priority").text(priority.as_str());
        }
        if let Some(retry) = &self.retry {
            write::retry(out, retry);
        }
        if let Some(timeout_ms) = self.timeout_ms {
            out.key("timeout").plain(format_duration(timeout_ms));
        }
    }
}

fn read_schema(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let raw = field.raw();
    if !raw.starts_with('{') {
        field.refuse(Code::WrongType, at, faults, "a schema is an object");
        return None;
    }
    if raw.len() > SCHEMA_BYTES_MAX {
        let detail = format!("the schema has {} bytes; at most {SCHEMA_BYTES_MAX} are allowed", raw.len());
        field.refuse(Code::InvalidSchema, at, faults, detail);
        return None;
    }
    Some(raw.into())
}

fn read_submitters(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Vec<Box<str>>> {
    let items = field.items(at, faults)?;
    if items.len() > TYPE_SUBMITTERS_COUNT_MAX {
        let detail = format!("at most {TYPE_SUBMITTERS_COUNT_MAX} can be named");
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    let at = at.field(field.name());
    let mut submitters: Vec<Box<str>> = Vec::with_capacity(items.len());
    for (index, raw) in items.into_iter().enumerate() {
        let (item, at) = (Field::item(raw), at.item(index));
        let Some(text) = item.text(&at, faults) else { continue };
        if ROLES.contains(&&*text) || is_key_id(&text) {
            submitters.push(text.into());
        } else {
            let detail = format!("name the id of a key (key_…), or a role: {}", ROLES.join(", "));
            item.refuse(Code::InvalidValue, &at, faults, detail);
        }
    }
    submitters.sort_unstable();
    submitters.dedup();
    Some(submitters)
}

fn is_key_id(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(KEY_ID_PREFIX) else { return false };
    rest.len() == KEY_ID_HEX_COUNT && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read_note(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let note = field.free_text(at, faults)?;
    if note.len() > TYPE_NOTE_BYTES_MAX {
        let detail = format!("it has {} bytes; at most {TYPE_NOTE_BYTES_MAX} are allowed", note.len());
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    Some(note.into())
}

fn read_defaults<R: TargetRules>(
    fields: &DefaultFields<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> TypeDefaults {
    let (destination, of_target) = read_destination(fields, rules, at, faults);
    let says_timeout = fields.timeout.is_some() || of_target.is_some();
    let timeout_ms = says_timeout.then(|| read_timeout(fields.timeout, of_target, at, faults));
    let priority = fields.priority.and_then(|field| read_priority(&field, at, faults));
    let says_retry = fields.retry.or(fields.max_attempts).is_some();
    let retry = says_retry.then(|| read_retry(fields.retry, fields.max_attempts, at, faults));
    TypeDefaults { destination, priority, retry, timeout_ms }
}

/// Where jobs go, and the timeout the target names.
fn read_destination<R: TargetRules>(
    fields: &DefaultFields<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> (Option<Destination>, Option<i64>) {
    if let (Some(queue), Some(target)) = (fields.queue, fields.target.or(fields.target_url)) {
        let detail = format!("`queue` and `{}` exclude each other: a job is pulled or pushed", target.name());
        queue.refuse(Code::ConflictingFields, at, faults, detail);
        return (None, None);
    }
    if let Some(field) = fields.queue {
        let queue = field.text(at, faults);
        let queue = queue.filter(|queue| named(check_queue(queue), &field, at, faults).is_some());
        return (queue.map(|queue| Destination::Queue(Arc::from(queue))), None);
    }
    let named = TargetFields { target: fields.target, target_url: fields.target_url };
    match read_target(&named, rules, at, faults) {
        Some((target, timeout_ms)) => (Some(Destination::Target(Arc::new(target))), timeout_ms),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AnyTarget;

    impl TargetRules for AnyTarget {
        fn check_url(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn check_method(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn check_headers(&self, _: &[(Box<str>, Box<str>)]) -> Result<(), String> {
            Ok(())
        }
    }

    fn read(text: &str) -> Result<TypeRequest, Vec<Code>> {
        let mut faults = Faults::default();
        let request = TypeRequest::read(text, &AnyTarget, &mut faults);
        if faults.is_empty() {
            Ok(request.unwrap())
        } else {
            Err(faults.into_list().into_iter().map(|fault| fault.code).collect())
        }
    }

    #[test]
    fn a_type_reads_as_it_is_written() {
        for text in [
            "{}",
            r#"{"schema": {"type": "object"}, "submitters": ["producer", "key_0123456789abcdef"], "note": "a\nb",
                "defaults": {"queue": "mail", "priority": "high", "max_attempts": 3, "timeout": "5s"}}"#,
            r#"{"submitters": [], "defaults": {"target": {"url": "https://a.example/", "method": "put",
                "headers": {"x-a": "b"}, "timeout": "7s"}, "retry": {"policy": "fixed", "base": "2s"}}}"#,
        ] {
            let request = read(text).unwrap();
            let mut out = JsonWriter::default();
            request.write(&mut out, "t");
            let again = read(std::str::from_utf8(&out.into_bytes()).unwrap()).unwrap();
            assert_eq!(again, TypeRequest { kind: Some("t".to_owned()), ..request }, "{text}");
        }
    }

    #[test]
    fn what_is_no_type_is_refused() {
        let large = |bytes: usize| format!(r#"{{"schema": {{"title": "{}"}}}}"#, "x".repeat(bytes - 13));
        assert_eq!(read(&large(SCHEMA_BYTES_MAX)).unwrap().schema.unwrap().len(), SCHEMA_BYTES_MAX);
        let note = |bytes: usize| format!(r#"{{"note": "{}"}}"#, "x".repeat(bytes));
        assert!(read(&note(TYPE_NOTE_BYTES_MAX)).is_ok());
        let many = |count: usize| {
            let keys: Vec<String> = (0..count).map(|n| format!("\"key_{n:016x}\"")).collect();
            format!(r#"{{"submitters": [{}]}}"#, keys.join(","))
        };
        assert!(read(&many(TYPE_SUBMITTERS_COUNT_MAX)).is_ok());
        for (text, code) in [
            (large(SCHEMA_BYTES_MAX + 1), Code::InvalidSchema),
            (note(TYPE_NOTE_BYTES_MAX + 1), Code::InvalidValue),
            (many(TYPE_SUBMITTERS_COUNT_MAX + 1), Code::InvalidValue),
            (r#"{"schema": true}"#.to_owned(), Code::WrongType),
            (r#"{"submitters": ["root"]}"#.to_owned(), Code::InvalidValue),
            (r#"{"submitters": ["key_1"]}"#.to_owned(), Code::InvalidValue),
            (r#"{"defaults": {"run_at": 5}}"#.to_owned(), Code::UnknownField),
            (r#"{"defaults": {"queue": "a", "target_url": "b"}}"#.to_owned(), Code::ConflictingFields),
            (r#"{"defaults": {"priority": "urgent"}}"#.to_owned(), Code::InvalidValue),
        ] {
            assert_eq!(read(&text), Err(vec![code]), "{}", &text[..text.len().min(80)]);
        }
    }
}
