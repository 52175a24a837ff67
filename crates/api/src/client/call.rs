//! One request: what to ask for, and whether asking twice is harmless.

use bytes::Bytes;
use http::Method;

/// A call of the API, to be sent by [`super::Client::send`].
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    query: String,
    body: Option<Bytes>,
    content_type: &'static str,
    key: Option<String>,
    repeatable: bool,
}

impl Call {
    /// A call of `/v1/` and these segments, each escaped as needed.
    #[must_use]
    pub fn new(method: Method, segments: &[&str]) -> Self {
        Self::under("/v1", method, segments)
    }

    /// Reads what is outside `/v1`, such as `/metrics`.
    #[must_use]
    pub fn get_outside(segments: &[&str]) -> Self {
        Self::under("", Method::GET, segments)
    }

    fn under(root: &str, method: Method, segments: &[&str]) -> Self {
        let mut path = String::from(root);
        for segment in segments {
            path.push('/');
            escape(segment, &mut path);
        }
        let repeatable = super::reads(&method);
        Self {
            method,
            path,
            query: String::new(),
            body: None,
            content_type: "application/json",
            key: None,
            repeatable,
        }
    }

    /// Reads something.
    #[must_use]
    pub fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    /// Changes something.
    #[must_use]
    pub fn post(segments: &[&str]) -> Self {
        Self::new(Method::POST, segments)
    }

    /// Removes something.
    #[must_use]
    pub fn delete(segments: &[&str]) -> Self {
        Self::new(Method::DELETE, segments)
    }

    /// Adds `name=value` to the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        escape(name, &mut self.query);
        self.query.push('=');
        escape(value, &mut self.query);
        self
    }

    /// Sends this JSON document.
    #[must_use]
    pub fn json(self, document: impl Into<Bytes>) -> Self {
        Self { body: Some(document.into()), content_type: "application/json", ..self }
    }

    /// Sends these JSON documents, one per line.
    #[must_use]
    pub fn ndjson(self, lines: impl Into<Bytes>) -> Self {
        Self { body: Some(lines.into()), content_type: "application/x-ndjson", ..self }
    }

    /// Sends this idempotency key in the header, which makes the call safe to repeat.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), repeatable: true, ..self }
    }

    /// Declares the call safe to repeat for another reason: its body holds the key, or doing it twice is like once.
    #[must_use]
    pub fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// Whether the client may send it again when it is unclear what became of it.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// What follows the server's URL.
    #[must_use]
    pub fn path_and_query(&self) -> String {
        format!("{}{}", self.path, self.query)
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn body(&self) -> Option<Bytes> {
        self.body.clone()
    }

    pub(super) fn content_type(&self) -> &'static str {
        self.content_type
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

/// Percent-encodes all but the unreserved characters, so that no value can become a path, a query or a fragment.
fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values_stay_values() {
        let call = Call::get(&["jobs", "../x?y#z"]).query("label.a b", "1&2=3").query("type", "é");
        assert_eq!(call.path_and_query(), "/v1/jobs/..%2Fx%3Fy%23z?label.a%20b=1%262%3D3&type=%C3%A9");
    }

    #[test]
    fn only_harmless_calls_are_repeatable() {
        assert!(Call::get(&["jobs"]).is_repeatable());
        assert!(!Call::post(&["jobs"]).is_repeatable());
        assert!(!Call::delete(&["dead-letters", "x"]).is_repeatable());
        assert!(Call::post(&["jobs"]).idempotency_key("k").is_repeatable());
        assert!(Call::delete(&["dead-letters", "x"]).repeatable().is_repeatable());
    }
}
