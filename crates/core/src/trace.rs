//! W3C trace context: the trace a job was submitted in, kept with it and passed on to whoever runs it.
//!
//! What cannot be read is left aside, as the recommendation has it: a bad `traceparent` means that there is none, a bad
//! `tracestate` that there is only a `traceparent`.

use std::fmt;

use crate::limits::{TRACE_STATE_BYTES_MAX, TRACE_STATE_MEMBERS_COUNT_MAX};

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const PARENT_CHARS: usize = 55;
const TRACE_ID_CHARS: usize = 32;
const SPAN_ID_CHARS: usize = 16;
const BYTE_CHARS: usize = 2;
const VERSION_INVALID: u8 = 0xff;
const SAMPLED: u8 = 1;
/// The flags that mean something today; the others must not be passed on.
const FLAGS_KNOWN: u8 = SAMPLED | 2;
/// Members of a trace state longer than this are the first to go when there is too much of it.
const MEMBER_LONG_BYTES: usize = 128;
const KEY_CHARS_MAX: usize = 256;
const KEY_TENANT_CHARS_MAX: usize = 241;
const KEY_SYSTEM_CHARS_MAX: usize = 14;
const VALUE_CHARS_MAX: usize = 256;

/// Names a trace. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl TraceId {
    /// The id with this number; zero is none, and becomes one.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(if number == 0 { 1 } else { number })
    }

    /// Its number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Names a span within its trace. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl SpanId {
    /// The id with this number; zero is none, and becomes one.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(if number == 0 { 1 } else { number })
    }

    /// Its number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// Which trace something belongs to, and which span it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of whoever passed it on.
    pub span_id: SpanId,
    flags: u8,
    state: Box<str>,
}

impl TraceContext {
    /// A context without a state.
    #[must_use]
    pub fn new(trace_id: TraceId, span_id: SpanId, is_sampled: bool) -> Self {
        Self { trace_id, span_id, flags: if is_sampled { SAMPLED } else { 0 }, state: Box::default() }
    }

    /// Reads what came as `traceparent` and `tracestate`; the second may be empty.
    #[must_use]
    pub fn read(parent: &str, state: &str) -> Option<Self> {
        let (head, more) = parent.split_at_checked(PARENT_CHARS)?;
        let mut parts = head.split('-');
        let version = u8::try_from(hex(parts.next()?, BYTE_CHARS)?).ok()?;
        let trace_id = hex(parts.next()?, TRACE_ID_CHARS).filter(|number| *number != 0)?;
        let span_id = hex(parts.next()?, SPAN_ID_CHARS).filter(|number| *number != 0)?;
        let flags = u8::try_from(hex(parts.next()?, BYTE_CHARS)?).ok()?;
        // A later version may have more to say, after another dash.
        let is_whole = if version == 0 { more.is_empty() } else { more.is_empty() || more.starts_with('-') };
        if version == VERSION_INVALID || !is_whole || parts.next().is_some() {
            return None;
        }
        Some(Self {
            trace_id: TraceId(trace_id),
            span_id: SpanId(u64::try_from(span_id).ok()?),
            flags: flags & FLAGS_KNOWN,
            state: read_state(state).unwrap_or_default().into(),
        })
    }

    /// What a store kept of a context; none if it makes no sense.
    #[must_use]
    pub fn from_parts(trace_id: u128, span_id: u64, flags: u8, state: &str) -> Option<Self> {
        let is_sound = trace_id != 0 && span_id != 0 && state.len() <= TRACE_STATE_BYTES_MAX;
        is_sound.then(|| Self {
            trace_id: TraceId(trace_id),
            span_id: SpanId(span_id),
            flags: flags & FLAGS_KNOWN,
            state: state.into(),
        })
    }

    /// The flags that are passed on.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether whoever passed it on records the trace.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, seen from another span.
    #[must_use]
    pub fn with_span(&self, span_id: SpanId) -> Self {
        Self { span_id, ..self.clone() }
    }

    /// As the header `traceparent` has it.
    #[must_use]
    pub fn parent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags)
    }

    /// As the header `tracestate` has it; empty when there is none.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }
}

/// A number of so many digits, in lower case.
fn hex(text: &str, chars: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != chars || !is_hex {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// Reads a list of `key=value`, without what is too much of it; none if any of it is wrong.
fn read_state(text: &str) -> Option<String> {
    let mut members: Vec<(&str, &str)> = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        let is_new = members.iter().all(|(known, _)| *known != key);
        if !is_key(key) || !is_value(value) || !is_new || members.len() >= TRACE_STATE_MEMBERS_COUNT_MAX {
            return None;
        }
        members.push((key, value));
    }
    let length = |(key, value): &(&str, &str)| key.len() + value.len() + 1;
    let total = |members: &[(&str, &str)]| members.iter().map(length).sum::<usize>() + members.len();
    while total(&members) > TRACE_STATE_BYTES_MAX + 1 {
        match members.iter().rposition(|member| length(member) > MEMBER_LONG_BYTES) {
            Some(long) => drop(members.remove(long)),
            None => drop(members.pop()),
        }
    }
    let members: Vec<String> = members.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(members.join(","))
}

fn is_key(key: &str) -> bool {
    let is_part = |part: &str, chars_max: usize, first: fn(u8) -> bool| {
        (1..=chars_max).contains(&part.len())
            && part.bytes().next().is_some_and(first)
            && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
    };
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    match key.split_once('@') {
        None => is_part(key, KEY_CHARS_MAX, is_letter),
        Some((tenant, system)) => {
            is_part(tenant, KEY_TENANT_CHARS_MAX, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && is_part(system, KEY_SYSTEM_CHARS_MAX, is_letter)
        }
    }
}

fn is_value(value: &str) -> bool {
    (1..=VALUE_CHARS_MAX).contains(&value.len())
        && !value.ends_with(' ')
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_well_formed_is_passed_on_as_it_came() {
        let context =
            TraceContext::read(PARENT, "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7 ,,a@b=x y").unwrap();
        assert_eq!(context.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.parent(), PARENT);
        assert_eq!(context.state(), "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7,a@b=x y");
        let child = context.with_span(SpanId::new(7));
        assert_eq!(child.parent(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-01");
        assert_eq!(child.state(), context.state());
        let parts = (context.trace_id.as_u128(), context.span_id.as_u64());
        assert_eq!(
            TraceContext::from_parts(parts.0, parts.1, context.flags(), context.state()),
            Some(context)
        );
    }

    #[test]
    fn a_bad_parent_means_none() {
        for parent in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47ü-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::read(parent, ""), None, "{parent}");
        }
    }

    #[test]
    fn of_a_later_version_is_taken_what_is_known() {
        let later = PARENT.replace("00-4bf", "cc-4bf").replace("-01", "-ff") + "-what the future is like";
        let context = TraceContext::read(&later, "").unwrap();
        assert_eq!(context.parent(), PARENT.replace("-01", "-03"));
    }

    #[test]
    fn a_bad_state_is_left_aside_alone() {
        let many =
            (0..=TRACE_STATE_MEMBERS_COUNT_MAX).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        for state in
            ["a", "A=1", "a=", "=1", "a=1,a=2", "1a=1", "a@=1", "a=ü", "a=b=c", "a b=1", "@a=1", &many]
        {
            let context = TraceContext::read(PARENT, state).unwrap();
            assert_eq!(context.state(), "", "{state}");
        }
    }

    #[test]
    fn of_too_much_state_the_long_go_first_and_then_the_last() {
        let long = format!("long={}", "x".repeat(200));
        let short: Vec<String> = (0..20).map(|n| format!("k{n:02}={}", "y".repeat(26))).collect();
        let state = format!("{long},{}", short.join(","));
        let kept = TraceContext::read(PARENT, &state).unwrap();
        assert!(
            kept.state().len() <= TRACE_STATE_BYTES_MAX && kept.state().len() > TRACE_STATE_BYTES_MAX - 31
        );
        assert!(state.ends_with(&format!(",{}", short.join(","))));
        assert!(short.join(",").starts_with(kept.state()), "{}", kept.state());
    }
}
