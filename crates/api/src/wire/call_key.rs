//! The idempotency key a call may carry in its body, and what the body says besides.

use std::sync::Arc;

use super::fault::{At, Faults};
use super::job_request::read_key;
use super::read::{self, Field};
use crate::known_fields;

/// The field.
pub(super) const NAME: &str = "idempotency_key";

/// What the key in a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyIs {
    /// The call's: no part of what is asked for.
    Apart,
    /// A field like any other: what a schedule is to have.
    Part,
}

known_fields!(BareFields { idempotency_key = "idempotency_key" });

/// Reads the body of a call that needs none: it may be empty, or hold a key.
pub fn read_bare(text: &str, faults: &mut Faults) -> Option<()> {
    read::optional_body::<BareFields<'_>>(text, &At::ROOT, faults).map(|_| ())
}

/// The key in a body.
pub fn body_key(text: &str, faults: &mut Faults) -> Option<Arc<str>> {
    // Most bodies have none, and need no second scan to say so.
    if !text.contains(NAME) {
        return None;
    }
    let entries = read::entries(text)?;
    let (_, raw) = entries.iter().find(|(name, raw)| name == NAME && *raw != "null")?;
    read_key(&Field::item(raw), &At::ROOT.field(NAME), faults)
}

/// The key of a body that is not read as a whole, of which this is the value of the field.
pub fn found_key(raw: &str, faults: &mut Faults) -> Option<Arc<str>> {
    if raw == "null" {
        return None;
    }
    read_key(&Field::item(raw), &At::ROOT.field(NAME), faults)
}

/// What a body says, its key aside if `KeyIs::Apart`: the same for every order of its fields and however it is
/// spaced.
#[must_use]
pub fn canonical(text: &str, key: KeyIs) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let Some(mut entries) = read::entries(text) else {
        squeeze(text, &mut out);
        return out;
    };
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, raw) in entries {
        if key == KeyIs::Apart && name == NAME {
            continue;
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b'\0');
        squeeze(raw, &mut out);
        out.push(b'\0');
    }
    out
}

/// Leaves out what JSON does not count: blanks outside of strings.
fn squeeze(text: &str, out: &mut Vec<u8>) {
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        if !in_string && byte.is_ascii_whitespace() {
            continue;
        }
        match byte {
            b'"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = in_string && byte == b'\\' && !is_escaped;
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        canonical(a, KeyIs::Apart) == canonical(b, KeyIs::Apart)
    }

    #[test]
    fn spacing_order_and_the_key_make_no_difference() {
        assert!(same(r#"{"a": [1, 2], "b":"x y"}"#, "{\n\"b\":\"x y\",\"a\":[1,2]}"));
        assert!(same(r#"{"a":1,"idempotency_key":"k"}"#, r#"{"a":1}"#));
        assert!(same("", "  \n"));
        for (a, b) in [
            (r#"{"a":"x y"}"#, r#"{"a":"xy"}"#),
            (r#"{"a":"\" x"}"#, r#"{"a":"\"x"}"#),
            (r#"{"a":"\\", "b":" "}"#, r#"{"a":"\\", "b":""}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#"{"a":12}"#, r#"{"a":1}"#),
            ("", r#"{"a":1}"#),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
        let (with, without) = (r#"{"idempotency_key":"k"}"#, "{}");
        assert_ne!(canonical(with, KeyIs::Part), canonical(without, KeyIs::Part));
    }

    #[test]
    fn a_key_is_read_and_checked() {
        let read = |text: &str| {
            let mut faults = Faults::default();
            let key = body_key(text, &mut faults);
            (key.as_deref().map(str::to_owned), faults.count())
        };
        assert_eq!(read(r#"{"a":1,"idempotency_key":"k"}"#), (Some("k".to_owned()), 0));
        assert_eq!(read(r#"{"idempotency_key":null}"#), (None, 0));
        assert_eq!(read(r#"{"a":"idempotency_key"}"#), (None, 0));
        assert_eq!(read(""), (None, 0));
        for refused in [r#"{"idempotency_key":""}"#, r#"{"idempotency_key":7}"#] {
            assert_eq!(read(refused), (None, 1), "{refused}");
        }
        let mut faults = Faults::default();
        assert!(read_bare(" ", &mut faults).is_some() && faults.is_empty());
        read_bare(r#"{"reason":"x"}"#, &mut faults);
        assert_eq!(faults.count(), 1);
    }
}
