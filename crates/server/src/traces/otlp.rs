//! Spans as OTLP has them: the messages of `opentelemetry.proto.collector.trace.v1`, as far as they are needed, with the
//! numbers of the published files. Those are stable, and a dozen messages are less than the crates that bring all of them.

use prost::Message;
use tidewheel_core::time::Timestamp;

use super::span::{Kind, Span, Value};

const NANOS_PER_MS: u64 = 1_000_000;
const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 3")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
struct ExportAnswer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// A request with these spans.
pub(super) fn request(service_name: &str, spans: Vec<Span>) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let resource = Resource {
        attributes: vec![
            attribute("service.name", Value::Text(service_name.to_owned())),
            attribute("service.version", Value::Text(version.clone())),
        ],
    };
    let scope_spans = ScopeSpans {
        scope: Some(Scope { name: "tidewheel".to_owned(), version }),
        spans: spans.into_iter().map(message).collect(),
    };
    let all = ResourceSpans { resource: Some(resource), scope_spans: vec![scope_spans] };
    ExportRequest { resource_spans: vec![all] }.encode_to_vec()
}

/// How many spans the collector says it did not take, and why. An answer that is none is taken for a plain yes.
pub(super) fn rejected(answer: &[u8]) -> (u64, String) {
    let partial = ExportAnswer::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.map_or_else(Default::default, |partial| {
        (u64::try_from(partial.rejected_spans).unwrap_or(0), partial.error_message)
    })
}

fn message(span: Span) -> SpanMessage {
    SpanMessage {
        trace_id: span.trace_id.as_u128().to_be_bytes().to_vec(),
        span_id: span.span_id.as_u64().to_be_bytes().to_vec(),
        trace_state: span.state.into(),
        parent_span_id: span.parent.map(|parent| parent.as_u64().to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: match span.kind {
            Kind::Internal => 1,
            Kind::Client => 3,
            Kind::Producer => 4,
        },
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status: span.error.map(|error| Status { message: error.to_owned(), code: STATUS_ERROR }),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Number(number) => Any::Number(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_ms()).unwrap_or(0).saturating_mul(NANOS_PER_MS)
}
