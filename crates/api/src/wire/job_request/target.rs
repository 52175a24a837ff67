//! Where a job is pushed to, as callers write it. Which targets are allowed is the server's to say.

use std::borrow::Cow;

use tidewheel_core::job::Target;

use super::read_timeout_field;
use crate::known_fields;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::read::Field;

const METHOD_DEFAULT: &str = "POST";

/// Says which targets are allowed; the errors are worded for the caller.
pub trait TargetRules {
    /// Judges a URL.
    ///
    /// # Errors
    /// When it is not one that can be pushed to.
    fn check_url(&self, url: &str) -> Result<(), String>;

    /// Judges a method.
    ///
    /// # Errors
    /// When targets are not called with it.
    fn check_method(&self, method: &str) -> Result<(), String>;

    /// Judges the headers a caller adds.
    ///
    /// # Errors
    /// When one cannot be sent, or is not the caller's to set.
    fn check_headers(&self, headers: &[(Box<str>, Box<str>)]) -> Result<(), String>;
}

/// The two ways to name a target.
pub(crate) struct TargetFields<'a> {
    /// In full.
    pub(crate) target: Option<Field<'a>>,
    /// In short.
    pub(crate) target_url: Option<Field<'a>>,
}

known_fields!(FullTarget { url = "url", method = "method", headers = "headers", timeout = "timeout" });

/// Reads a target and the timeout it names; one of the fields must be there.
pub(crate) fn read_target<R: TargetRules>(
    fields: &TargetFields<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<(Target, Option<i64>)> {
    let field = match (fields.target, fields.target_url) {
        (Some(target), None) => target,
        (None, Some(short)) => {
            let url = read_url(&short, rules, at, faults)?;
            return Some((Target { url, method: METHOD_DEFAULT.into(), headers: Vec::new() }, None));
        }
        (Some(_), Some(short)) => {
            short.refuse(Code::ConflictingFields, at, faults, "`target` and `target_url` exclude each other");
            return None;
        }
        (None, None) => return None,
    };
    let full: FullTarget<'_> = field.object(at, faults)?;
    let inner = at.field(field.name());
    let timeout_ms = full.timeout.and_then(|field| read_timeout_field(&field, &inner, faults));
    let method =
        full.method.map_or(Some(METHOD_DEFAULT.into()), |field| read_method(&field, rules, &inner, faults));
    let headers = full.headers.map_or(Some(Vec::new()), |field| read_headers(&field, rules, &inner, faults));
    let Some(url) = full.url else {
        faults.add(Code::MissingField, &inner.field("url"), "a target needs a URL");
        return None;
    };
    let url = read_url(&url, rules, &inner, faults)?;
    Some((Target { url, method: method?, headers: headers? }, timeout_ms))
}

fn read_url<R: TargetRules>(
    field: &Field<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Box<str>> {
    let url = field.text(at, faults)?;
    judged(rules.check_url(&url), field, at, faults)?;
    Some(url.into())
}

fn read_method<R: TargetRules>(
    field: &Field<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Box<str>> {
    let method = field.text(at, faults)?.to_ascii_uppercase();
    judged(rules.check_method(&method), field, at, faults)?;
    Some(method.into())
}

/// Headers sorted by name: their order means nothing, and equal requests must compare equal.
fn read_headers<R: TargetRules>(
    field: &Field<'_>,
    rules: &R,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Vec<(Box<str>, Box<str>)>> {
    let texts = field.texts(at, faults)?;
    let owned = |text: Cow<'_, str>| -> Box<str> { text.into() };
    let mut headers: Vec<_> = texts.into_iter().map(|(name, value)| (owned(name), owned(value))).collect();
    headers.sort_unstable();
    judged(rules.check_headers(&headers), field, at, faults)?;
    Some(headers)
}

fn judged(verdict: Result<(), String>, field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<()> {
    verdict.map_err(|detail| field.refuse(Code::InvalidTarget, at, faults, detail)).ok()
}
