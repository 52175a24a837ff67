//! Batches over HTTP: their three forms, all or nothing, item by item, and their bounds.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tidewheel_server::http::HttpLimits;

use crate::http::harness::Api;

/// A body that arrives in pieces of a few bytes.
struct Trickle(Vec<Bytes>);

impl Trickle {
    fn body(text: &str, piece: usize) -> Body {
        let mut pieces: Vec<_> = text.as_bytes().chunks(piece).map(Bytes::copy_from_slice).collect();
        pieces.reverse();
        Body::new(Self(pieces))
    }
}

impl http_body::Body for Trickle {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.pop().map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn job(kind: &str) -> Value {
    json!({"type": kind, "delay": "1h"})
}

async fn count(api: &Api) -> Value {
    api.get("/v1/jobs/count").await.json()["count"].clone()
}

#[tokio::test]
async fn all_three_forms_are_taken_in_the_order_sent() {
    let api = Api::new().await;
    let kinds = ["a", "b", "c"];
    let jobs: Vec<_> = kinds.iter().map(|kind| job(kind)).collect();
    let lines = jobs.iter().map(|job| format!("{job}\n")).collect::<String>();
    for (body, kind) in [
        (json!(jobs).to_string(), "application/json"),
        (json!({"jobs": jobs}).to_string(), "application/json"),
        (serde_json::to_string_pretty(&json!({"jobs": jobs})).unwrap(), "application/json"),
        (lines.clone(), "application/x-ndjson"),
        (lines.clone(), "application/json"),
    ] {
        for piece in [7, 100_000] {
            let answer = api
                .call("POST", "/v1/jobs/batch", &[("content-type", kind)], Trickle::body(&body, piece))
                .await;
            assert_eq!(answer.status, 201, "{answer:?}");
            let answer = answer.json();
            assert_eq!(answer["count"], 3);
            for (item, kind) in answer["jobs"].as_array().unwrap().iter().zip(kinds) {
                assert_eq!(item.as_object().unwrap().keys().collect::<Vec<_>>(), ["duplicate", "id"]);
                assert_eq!(item["duplicate"], false);
                let job = api.get(&format!("/v1/jobs/{}", item["id"].as_str().unwrap())).await.json();
                assert_eq!(job["type"], kind);
            }
        }
    }
    assert_eq!(count(&api).await, 30);
    let empty = api.post("/v1/jobs/batch", &json!([])).await;
    assert_eq!((empty.status.as_u16(), empty.json()), (201, json!({"jobs": [], "count": 0})));
}

#[tokio::test]
async fn one_bad_job_keeps_all_out_and_every_fault_is_told() {
    let api = Api::new().await;
    let jobs = json!([job("a"), {"type": "b", "dealy": "1h"}, job("c"), {"queue": "q", "delay": "x"}]);
    let problem = api.post("/v1/jobs/batch", &jobs).await.problem(422, "invalid_request");
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/1/dealy", "/3/type", "/3/delay"]);
    let wrapped = api.post("/v1/jobs/batch", &json!({"jobs": jobs})).await.problem(422, "invalid_request");
    assert_eq!(wrapped["errors"][0]["pointer"], "/jobs/1/dealy");
    let payload = "x".repeat(65_535);
    let large = api.post("/v1/jobs/batch", &json!([job("a"), {"type": "t", "payload": payload}])).await;
    assert_eq!(large.problem(413, "payload_too_large")["errors"][0]["pointer"], "/1/payload");
    for body in [
        "",
        "[",
        "[{\"type\":\"t\"}",
        "[{\"type\":\"t\"},]",
        "{\"jobs\":",
        "[1]x",
        "{\"type\":\"t\"",
        "[\"\u{1}\"]",
    ] {
        let answer = api.call("POST", "/v1/jobs/batch", &[], body.to_owned()).await;
        answer.problem(400, "malformed_json");
    }
    assert_eq!(count(&api).await, 0);
}

#[tokio::test]
async fn what_is_no_json_is_told_with_its_place_in_the_body() {
    let api = Api::new().await;
    for (name, good) in [("jobs", r#"{"type":"a"}"#), ("schedules", r#"{"every":"1h"}"#)] {
        for (body, line, column) in [
            (format!("{good}\n\n{good}\n  {{\"x\" 1}}\n"), 4, 8),
            (format!("[{good},\n{good}, {{\n\"x\" 1}}]"), 3, 5),
            (format!("[{good},{good},{{\"x\" 1}}]"), 1, 2 * good.len() + 9),
        ] {
            let place = format!(" at line {line} column {column}");
            let path = format!("/v1/{name}/batch");
            let problem = api.call("POST", &path, &[], body.clone()).await.problem(400, "malformed_json");
            assert_eq!(problem["errors"][0]["pointer"], "/2", "{problem}");
            assert!(problem["detail"].as_str().unwrap().ends_with(&place), "{place}: {problem}");
            let each = api.call("POST", &format!("{path}?partial=true"), &[], body).await.json();
            let detail = each[name][2]["error"]["detail"].as_str().unwrap();
            assert!(detail.ends_with(&place), "{place}: {detail}");
        }
    }
    let one = api.call("POST", "/v1/jobs", &[], "\n {\"type\" 1}").await.problem(400, "malformed_json");
    assert!(one["detail"].as_str().unwrap().ends_with(" at line 2 column 10"), "{one}");
}

#[tokio::test]
async fn what_is_wrong_with_the_wrapper_is_told_by_name_however_it_arrives() {
    let api = Api::new().await;
    let one = job("a");
    for (body, code, pointer) in [
        (json!({"jobz": []}).to_string(), "unknown_field", "/jobz"),
        (json!({"jobz": [one]}).to_string(), "unknown_field", "/jobz"),
        (format!("{{\"jobs\": [{one}], \"note\": 1}}"), "unknown_field", "/note"),
        (json!({"jobs": {}}).to_string(), "wrong_type", "/jobs"),
        (json!({"jobs": null}).to_string(), "wrong_type", "/jobs"),
        (json!({}).to_string(), "missing_field", "/jobs"),
    ] {
        for path in ["/v1/jobs/batch", "/v1/jobs/batch?partial=true"] {
            for piece in 1..=body.len() {
                let answer = api.call("POST", path, &[], Trickle::body(&body, piece)).await;
                let problem = answer.problem(422, code);
                assert_eq!(
                    problem["errors"][0]["pointer"], pointer,
                    "{body} in pieces of {piece}: {problem}"
                );
            }
        }
        let body = body.replace("jobs", "schedules");
        let problem = api.call("POST", "/v1/schedules/batch", &[], body.clone()).await.problem(422, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer.replace("jobs", "schedules"), "{body}");
    }
    assert_eq!(count(&api).await, 0);
}

#[tokio::test]
async fn partial_batches_take_what_they_can_and_answer_for_each() {
    let api = Api::new().await;
    let first = api.submit(&json!({"type": "a", "delay": "1h", "idempotency_key": "k"})).await;
    let jobs = json!([
        job("a"),
        {"typ": "b"},
        {"type": "a", "delay": "1h", "idempotency_key": "k"},
        {"type": "other", "delay": "1h", "idempotency_key": "k"},
        job("z"),
    ]);
    let answer = api.post("/v1/jobs/batch?partial=true", &jobs).await;
    assert_eq!(answer.status, 201);
    let answer = answer.json();
    assert_eq!((&answer["count"], &answer["refused"]), (&json!(3), &json!(2)));
    let items = answer["jobs"].as_array().unwrap();
    assert!(items[0]["id"].is_string() && items[4]["id"].is_string());
    assert_eq!(items[1]["error"]["status"], 422);
    assert_eq!(items[1]["error"]["errors"][0]["pointer"], "/typ");
    assert_eq!((&items[2]["id"], &items[2]["duplicate"]), (&json!(first), &json!(true)));
    assert_eq!(items[3]["error"]["code"], "idempotency_conflict");
    assert_eq!(count(&api).await, 3);

    let none = api.post("/v1/jobs/batch?partial=true", &json!([5])).await;
    assert_eq!((none.status.as_u16(), &none.json()["count"]), (200, &json!(0)));
    api.post("/v1/jobs/batch?partal=true", &json!([])).await.problem(400, "unknown_parameter");
}

#[tokio::test]
async fn keys_make_a_batch_repeatable() {
    let api = Api::new().await;
    let body = json!([job("a"), {"type": "b", "delay": "1h", "idempotency_key": "own"}]).to_string();
    let send = || api.call("POST", "/v1/jobs/batch", &[("idempotency-key", "B")], body.clone());
    let (first, again) = (send().await.json(), send().await);
    assert_eq!(again.status, 201);
    for (first, again) in
        first["jobs"].as_array().unwrap().iter().zip(again.json()["jobs"].as_array().unwrap())
    {
        assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    }
    for (index, key) in ["B:0", "own"].into_iter().enumerate() {
        let id = first["jobs"][index]["id"].as_str().unwrap();
        assert_eq!(api.get(&format!("/v1/jobs/{id}")).await.json()["idempotency_key"], key);
    }

    // A conflict keeps everything out.
    let clash = json!([job("new"), {"type": "other", "delay": "1h", "idempotency_key": "own"}]);
    let problem = api.post("/v1/jobs/batch", &clash).await.problem(409, "idempotency_conflict");
    assert_eq!(problem["errors"][0]["pointer"], "/1/idempotency_key");
    assert_eq!(count(&api).await, 2);
    // The longest key there is does for a batch, too.
    let long = "k".repeat(255);
    let body = json!([job("a")]).to_string();
    let headers = [("idempotency-key", long.as_str())];
    let send = || api.call("POST", "/v1/jobs/batch", &headers, body.clone());
    let (first, again) = (send().await, send().await.json());
    assert_eq!(first.status, 201);
    assert_eq!(again["jobs"][0]["id"], first.json()["jobs"][0]["id"]);
    let id = first.json()["jobs"][0]["id"].as_str().unwrap().to_owned();
    let key = api.get(&format!("/v1/jobs/{id}")).await.json()["idempotency_key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("kkk") && key.ends_with(":0") && key.len() <= 255, "{key}");
}

#[tokio::test]
async fn a_batch_has_its_key_in_the_header_or_beside_its_jobs() {
    let api = Api::new().await;
    let jobs = json!([job("a"), {"type": "b", "delay": "1h", "idempotency_key": "own"}]);
    let send = async |headers: &[(&str, &str)], body: String, piece: usize| {
        api.call("POST", "/v1/jobs/batch", headers, Trickle::body(&body, piece)).await
    };
    let header = [("idempotency-key", "B")];
    let first = send(&header, jobs.to_string(), 100).await;
    assert_eq!(first.status, 201, "{first:?}");
    let ids = |answer: &Value| {
        let items = answer["jobs"].as_array().unwrap().iter();
        items.map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    let before = format!("{{\"idempotency_key\": \"B\", \"jobs\": {jobs}}}");
    let after = format!("{{\"jobs\": {jobs}, \"idempotency_key\": \"B\"}}");
    for body in [&before, &after] {
        for (headers, piece) in [(&[][..], 1), (&[][..], 7), (&header[..], 1_000)] {
            let again = send(headers, body.clone(), piece).await;
            assert_eq!(again.status, 201, "{again:?}");
            let again = again.json();
            assert_eq!(ids(&again), ids(&first.json()), "{again}");
            assert!(again["jobs"].as_array().unwrap().iter().all(|item| item["duplicate"] == true));
        }
        let other = send(&[("idempotency-key", "C")], body.clone(), 100).await;
        let problem = other.problem(422, "conflicting_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
    }
    let more = json!({"jobs": [job("a")], "idempotency_key": "B"});
    api.post("/v1/jobs/batch", &more).await.problem(409, "idempotency_conflict");
    for (key, status, code) in [
        (json!(5), 422, "wrong_type"),
        (json!(""), 422, "invalid_value"),
        (json!("k".repeat(256)), 422, "invalid_value"),
        (json!("a\nb"), 400, "control_character"),
    ] {
        for path in ["/v1/jobs/batch", "/v1/jobs/batch?partial=true"] {
            let refused = api.post(path, &json!({"jobs": [job("a")], "idempotency_key": key})).await;
            assert_eq!(refused.problem(status, code)["errors"][0]["pointer"], "/idempotency_key");
        }
    }
    // The key of the batch is no item's own, and none is none.
    let own = json!({"idempotency_key": "D", "jobs": [{"type": "t", "idempotency_key": "D"}]});
    let problem = api.post("/v1/jobs/batch", &own).await.problem(422, "conflicting_fields");
    assert_eq!(problem["errors"][0]["pointer"], "/jobs/0/idempotency_key");
    let each = api.post("/v1/jobs/batch?partial=true", &own).await.json();
    assert_eq!(each["jobs"][0]["error"]["code"], "conflicting_fields", "{each}");
    assert_eq!(count(&api).await, 2);
    let unkeyed = json!({"idempotency_key": null, "jobs": [job("a")]});
    for _ in 0..2 {
        let taken = api.post("/v1/jobs/batch", &unkeyed).await;
        assert_eq!((taken.status.as_u16(), &taken.json()["jobs"][0]["duplicate"]), (201, &json!(false)));
    }
    // Jobs that stand alone, one to a line, may begin with their keys.
    let lines = "{\"idempotency_key\":\"x\",\"type\":\"t\"}\n{\"idempotency_key\":\"y\",\"type\":\"t\"}\n";
    let taken = send(&[], lines.to_owned(), 3).await;
    assert_eq!((taken.status.as_u16(), &taken.json()["count"]), (201, &json!(2)), "{taken:?}");
}

#[tokio::test]
async fn a_batch_shares_the_keys_of_all_calls() {
    let api = Api::new().await;
    let batch = async |key: &str, body: Value| {
        api.call("POST", "/v1/jobs/batch", &[("idempotency-key", key)], body.to_string()).await
    };
    let single = async |key: &str| {
        api.post("/v1/jobs", &json!({"type": "a", "delay": "1h", "idempotency_key": key})).await
    };
    assert_eq!(single("one").await.status, 201);
    batch("one", json!([job("a")])).await.problem(409, "idempotency_conflict");
    assert_eq!(batch("many", json!([job("a")])).await.status, 201);
    single("many").await.problem(409, "idempotency_conflict");
    let own = |key: &str| json!([{"type": "a", "delay": "1h", "idempotency_key": key}]);
    assert_eq!(batch("others", own("o1")).await.status, 201);
    assert_eq!(batch("others", own("o1")).await.status, 201);
    batch("others", own("o2")).await.problem(409, "idempotency_conflict");
    assert_eq!(batch("none", json!([])).await.status, 201);
    batch("none", json!([job("a")])).await.problem(409, "idempotency_conflict");
    // What is refused takes no key.
    assert_ne!(batch("mended", json!([{"type": 1}])).await.status, 201);
    batch("mended", json!([{"type": "b", "delay": "1h", "idempotency_key": "o1"}]))
        .await
        .problem(409, "idempotency_conflict");
    assert_eq!(batch("mended", json!([job("a")])).await.status, 201);
    assert_eq!(count(&api).await, 4);
}

#[tokio::test]
async fn a_batchs_key_is_for_that_batch_and_no_other() {
    let api = Api::new().await;
    let beat = |every: &str| json!({"type": "a", "every": every});
    for (path, one, new, list) in [
        ("/v1/jobs/batch", job("a"), job("new"), "/v1/jobs"),
        ("/v1/schedules/batch", beat("1h"), beat("2h"), "/v1/schedules"),
    ] {
        let send =
            async |body: Value| api.call("POST", path, &[("idempotency-key", list)], body.to_string()).await;
        let body = json!([one, one]);
        assert_eq!(send(body.clone()).await.status.as_u16(), 201);
        for other in [json!([one, one, new]), json!([one]), json!([one, new]), json!([new, one, one])] {
            send(other).await.problem(409, "idempotency_conflict");
        }
        let again = send(body).await;
        let name = list.rsplit('/').next().unwrap();
        let items = again.json()[name].as_array().unwrap().clone();
        assert!(items.len() == 2 && items.iter().all(|item| item["duplicate"] == true), "{again:?}");
        assert_eq!(api.get(list).await.json()["items"].as_array().unwrap().len(), 2, "nothing new");
    }
}

#[tokio::test]
async fn a_partial_batch_under_a_key_goes_on_where_it_was_left() {
    let api = Api::new().await;
    let send = async |body: Value| {
        let headers = [("idempotency-key", "P")];
        api.call("POST", "/v1/jobs/batch?partial=true", &headers, body.to_string()).await.json()
    };
    let first = send(json!([job("a"), {"type": 1}, job("c")])).await;
    assert_eq!((&first["count"], &first["refused"]), (&json!(2), &json!(1)));
    let mended = send(json!([job("a"), job("b"), job("c")])).await;
    let duplicates: Vec<_> =
        mended["jobs"].as_array().unwrap().iter().map(|item| item["duplicate"].clone()).collect();
    assert_eq!(duplicates, [true, false, true], "{mended}");
}

#[tokio::test]
async fn the_number_of_jobs_is_bounded_at_the_job() {
    let api = Api::new().await;
    let lines = |count: usize| "{\"type\":\"t\",\"delay\":\"1h\"}\n".repeat(count);
    let fits = api.call("POST", "/v1/jobs/batch", &[], lines(10_000)).await;
    assert_eq!((fits.status.as_u16(), &fits.json()["count"]), (201, &json!(10_000)));
    api.call("POST", "/v1/jobs/batch", &[], lines(10_001)).await.problem(413, "batch_too_large");
    assert_eq!(count(&api).await, 10_000);
}

#[tokio::test]
async fn bytes_are_bounded_for_one_item_one_body_and_all_bodies_together() {
    let limits = HttpLimits {
        body_bytes_max: 100,
        batch_bytes_max: 400,
        bodies_bytes_max: 300,
        ..HttpLimits::default()
    };
    let api = Api::with_limits(limits).await;
    let line =
        |bytes: usize| format!("{{\"type\":\"t\",\"delay\":\"1h\",\"payload\":\"{}\"}}\n", "x".repeat(bytes));
    api.call("POST", "/v1/jobs/batch", &[], line(100)).await.problem(413, "body_too_large");
    // As text of unknown length, and as text that says how long it is.
    let long = line(20).repeat(8);
    assert!(long.len() > 400);
    api.call("POST", "/v1/jobs/batch", &[], Trickle::body(&long, 50)).await.problem(503, "overloaded");
    let length = long.len().to_string();
    let declared =
        api.call("POST", "/v1/jobs/batch", &[("content-length", &length)], Trickle::body(&long, 50)).await;
    declared.problem(413, "body_too_large");
    let answer = api.call("POST", "/v1/jobs/batch", &[], line(20).repeat(3)).await;
    assert_eq!(answer.status, 201, "what was held has been given back: {answer:?}");
}
