//! What the flags of `job submit` and `dlq replay` say about a job, as JSON. A payload is sent byte for byte.

use std::fs;
use std::io::Read;

use serde_json::value::RawValue;
use tidewheel_core::job::Priority;
use tidewheel_core::time::parse_duration;

use crate::failure::Failure;

/// A JSON object under construction, in the order its fields are added.
#[derive(Debug, Default)]
pub(crate) struct Body(String);

impl Body {
    /// Adds a field whose value is JSON already.
    pub(crate) fn json(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    /// Adds a text field, if there is a text.
    pub(crate) fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.json(name, &quoted(value));
        }
    }

    /// Adds a field that maps names to texts, if there are any.
    pub(crate) fn map(&mut self, name: &str, entries: &[(String, String)]) {
        if !entries.is_empty() {
            let mut map = Self::default();
            for (key, value) in entries {
                map.text(key, Some(value));
            }
            self.json(name, &map.finish());
        }
    }

    /// The object.
    pub(crate) fn finish(self) -> String {
        if self.0.is_empty() { "{}".to_owned() } else { self.0 + "}" }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads `--payload`: JSON itself, `@FILE`, or `-` for stdin. The JSON is checked and kept as written.
pub(crate) fn payload(argument: &str) -> Result<String, Failure> {
    let unreadable = |fault: std::io::Error| Failure::Usage(format!("--payload {argument}: {fault}"));
    let text = match argument.strip_prefix('@') {
        Some(path) => fs::read_to_string(path).map_err(unreadable)?,
        None if argument == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
            text
        }
        None => argument.to_owned(),
    };
    let text = text.trim();
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(fault) => Err(Failure::Usage(format!(
            "--payload is not JSON: {fault}; a text needs quotes inside the shell's, such as '\"text\"'"
        ))),
    }
}

/// Checks a duration; it is sent as written.
pub(crate) fn duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned()).map_err(|fault| fault.to_string())
}

/// Checks a priority's name.
pub(crate) fn priority(text: &str) -> Result<String, String> {
    let names = || Priority::ALL.map(Priority::as_str).join(", ");
    Priority::from_name(text).map(|_| text.to_owned()).ok_or_else(|| format!("priorities are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_keeps_order_and_bytes() {
        let mut body = Body::default();
        body.text("type", Some("a\"b"));
        body.text("queue", None);
        body.json("payload", &payload(" {\"n\": 1.50, \"n\": 1e400} ").ok().unwrap());
        body.map("labels", &[("z".to_owned(), "1".to_owned()), ("a".to_owned(), "\n".to_owned())]);
        assert_eq!(
            body.finish(),
            r#"{"type":"a\"b","payload":{"n": 1.50, "n": 1e400},"labels":{"z":"1","a":"\n"}}"#
        );
        assert_eq!(Body::default().finish(), "{}");
    }

    #[test]
    fn a_payload_is_json_or_a_file_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[1, 2]\n").unwrap();
        assert_eq!(payload(&format!("@{}", file.path().display())).ok().as_deref(), Some("[1, 2]"));
        for wrong in ["hello", "{", "@/nonexistent/file", ""] {
            assert!(matches!(payload(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn durations_and_priorities_are_checked_before_anything_is_sent() {
        assert_eq!(duration("1h30m").as_deref(), Ok("1h30m"));
        assert!(duration("soon").is_err());
        assert!(priority("urgent").unwrap_err().contains("critical, high, normal, low"));
    }
}
