//! Traces from outside: a real server process, a target, and a collector that reads OTLP.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use serde_json::{Value, json};

use crate::harness::target::{Target, answer};
use crate::harness::{Server, request, until};
use crate::otlp::{Any, ExportTraceServiceRequest, Span};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// All spans a collector was sent, whose they are included.
fn spans(collector: &Target) -> Vec<(String, Span)> {
    let mut spans = Vec::new();
    for hit in collector.hits() {
        assert_eq!((hit.method.as_str(), hit.path.as_str()), ("POST", "/v1/traces"));
        assert_eq!(hit.header("content-type"), "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(&*hit.body).unwrap();
        for of_resource in request.resource_spans {
            let attributes = &of_resource.resource.unwrap().attributes;
            let name = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
            let Some(Any::Text(name)) = name.value.clone().unwrap().value else { panic!("{name:?}") };
            let all = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(all.map(|span| (name.clone(), span)));
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn facts(span: &Span) -> BTreeMap<String, String> {
    let text = |value: Option<Any>| match value {
        Some(Any::Text(text)) => text,
        Some(Any::Int(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let facts = span.attributes.iter();
    facts.map(|fact| (fact.key.clone(), text(fact.value.clone().unwrap().value))).collect()
}

/// The spans of a job by their names, once there are so many.
fn spans_of(collector: &Target, job: &str, count: usize) -> BTreeMap<String, Vec<Span>> {
    until(&format!("{count} spans of {job}"), || {
        let (mut named, mut seen) = (BTreeMap::<String, Vec<Span>>::new(), BTreeSet::new());
        for (_, span) in spans(collector) {
            // What a collector did not answer in time is sent again.
            if facts(&span)["tidewheel.job.id"] == job && seen.insert(span.span_id.clone()) {
                named.entry(span.name.clone()).or_default().push(span);
            }
        }
        (named.values().map(Vec::len).sum::<usize>() >= count).then_some(named)
    })
}

fn submit(server: &Server, headers: &[(&str, &str)], body: &Value) -> String {
    let answer = request(server.address, "POST", "/v1/jobs", headers, body.to_string().as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_is_told_of_in_the_trace_it_was_submitted_in() {
    let data = tempfile::tempdir().unwrap();
    let collector = Target::ok();
    // Fails once, then works.
    let target = Target::answering(|hit| {
        answer(if hit.header("tidewheel-attempt") == "1" { 503 } else { 200 }, "", "")
    });
    let server = Server::start_with(
        data.path(),
        &["--otlp-endpoint", &collector.url(""), "--otlp-service-name", "shop", "--otlp-sample-ratio", "0"]
            .into_iter()
            .chain(["--log-format", "json", "--log-level", "info,tidewheel_server=debug"])
            .collect::<Vec<_>>(),
    );
    let body = json!({"type": "t", "target_url": target.url("/x"), "retry": {"base": "1ms"}});
    let id = submit(&server, &[("traceparent", PARENT), ("tracestate", "a=1"), ("TraceState", "b=2")], &body);
    let hits = target.until_hits(2);
    for hit in &hits {
        assert_eq!(hit.header("traceparent").split('-').nth(1), Some(TRACE));
        assert_eq!(hit.header("tracestate"), "a=1,b=2");
    }
    let named = spans_of(&collector, &id, 5);
    let [submitted] = &named["tidewheel.submit"][..] else { panic!("{named:#?}") };
    assert_eq!(hex(&submitted.parent_span_id), "00f067aa0ba902b7");
    assert_eq!((named["tidewheel.wait"].len(), named["tidewheel.attempt"].len()), (2, 2));
    for span in named.values().flatten() {
        assert_eq!((hex(&span.trace_id).as_str(), span.trace_state.as_str()), (TRACE, "a=1,b=2"));
        assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.name == "tidewheel.submit" || span.parent_span_id == submitted.span_id);
    }
    for (attempt, (hit, outcome)) in
        named["tidewheel.attempt"].iter().zip(hits.iter().zip(["failed", "succeeded"]))
    {
        assert_eq!(hit.header("traceparent").split('-').nth(2), Some(hex(&attempt.span_id).as_str()));
        let facts = facts(attempt);
        assert_eq!(
            (facts["tidewheel.outcome"].as_str(), facts["server.address"].as_str()),
            (outcome, "127.0.0.1")
        );
        assert_eq!(
            attempt.status.as_ref().map_or(0, |status| status.code),
            if outcome == "failed" { 2 } else { 0 }
        );
    }
    assert!(spans(&collector).iter().all(|(service, _)| service == "shop"));
    assert_eq!(server.get(&format!("/v1/jobs/{id}"))["trace_id"], TRACE);
    let (_, log) = server.terminate();
    let lines = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let about: Vec<Value> = lines.filter(|line| line["job_id"] == *id).collect();
    assert!(!about.is_empty() && about.iter().all(|line| line["trace_id"] == TRACE), "{about:?}");
}

#[test]
fn a_job_without_a_trace_is_in_one_of_its_own_and_what_is_left_is_sent_at_the_end() {
    let data = tempfile::tempdir().unwrap();
    let (collector, target) = (Target::ok(), Target::ok());
    let server = Server::start_with(data.path(), &["--otlp-endpoint", &collector.url("/")]);
    let id = server.submit(&json!({"type": "t", "target_url": target.url("/x")}));
    let parent = target.until_hits(1)[0].header("traceparent").to_owned();
    assert!(parent.starts_with("00-") && parent.ends_with("-01"), "{parent}");
    server.until_state(&id, "succeeded");
    assert_eq!(server.terminate().0, Some(0));
    let named = spans_of(&collector, &id, 3);
    assert!(named["tidewheel.submit"][0].parent_span_id.is_empty());
    for span in named.values().flatten() {
        assert_eq!(parent.split('-').nth(1), Some(hex(&span.trace_id).as_str()));
    }
}

#[test]
fn a_collector_that_refuses_costs_spans_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let (collector, target) = (Target::answering(|_| answer(400, "", "no")), Target::ok());
    let server = Server::start_with(data.path(), &["--otlp-endpoint", &collector.url("")]);
    let id = server.submit(&json!({"type": "t", "target_url": target.url("/x")}));
    server.until_state(&id, "succeeded");
    until("dropped spans", || {
        let page = server.request("GET", "/metrics", "").text();
        let dropped = "tidewheel_spans_dropped_total{reason=\"export_failed\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(dropped))?;
        (line != "0").then_some(())
    });
}

#[test]
fn without_a_collector_contexts_are_kept_and_passed_on_all_the_same() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let batch = json!([
        {"type": "t", "queue": "q", "payload": 0},
        {"type": "t", "queue": "q", "payload": 1, "traceparent": own, "tracestate": "x=y"},
        {"type": "t", "queue": "q", "payload": 2, "traceparent": "nonsense"},
    ]);
    let headers = [("traceparent", PARENT), ("tracestate", "a=1")];
    let answer =
        request(server.address, "POST", "/v1/jobs/batch", &headers, batch.to_string().as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    for bad in ["00-xyz", &PARENT.to_uppercase()] {
        submit(&server, &[("traceparent", bad)], &json!({"type": "t", "queue": "q", "payload": 3}));
    }
    // They are in the store, not only in memory.
    server.kill();
    let server = Server::start(data.path());
    let mut taken: Vec<Value> = Vec::new();
    while taken.len() < 5 {
        let ask = json!({"worker": "w", "max": 5, "wait": "20s"});
        let jobs = server.post("/v1/queues/q/take", &ask).json()["jobs"].as_array().unwrap().clone();
        assert!(!jobs.is_empty());
        taken.extend(jobs);
    }
    for job in &taken {
        let (parent, state) = (job["traceparent"].as_str(), job["tracestate"].as_str());
        let trace = parent.map(|parent| parent.split('-').nth(1).unwrap());
        let (expected, ended, of_state) = match job["payload"].as_u64().unwrap() {
            0 | 2 => (Some(TRACE), "-01", Some("a=1")),
            1 => (Some("0af7651916cd43dd8448eb211c80319c"), "-00", Some("x=y")),
            _ => (None, "", None),
        };
        assert_eq!((trace, state), (expected, of_state), "{job}");
        assert!(parent.unwrap_or_default().ends_with(ended), "{job}");
        assert!(parent != Some(own) && parent != Some(PARENT), "the span is the attempt's");
    }
}
