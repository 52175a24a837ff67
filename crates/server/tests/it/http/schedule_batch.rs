//! Batches of schedules over HTTP: their three forms, all or nothing, item by item.

use serde_json::{Value, json};

use crate::http::harness::Api;

async fn count(api: &Api) -> usize {
    api.get("/v1/schedules?limit=1000").await.json()["items"].as_array().unwrap().len()
}

fn named(name: &str) -> Value {
    json!({"every": "1h", "name": name})
}

#[tokio::test]
async fn all_three_forms_are_taken_in_the_order_sent() {
    let api = Api::new().await;
    for (form, kind) in ["array", "object", "lines"].iter().zip([
        "application/json",
        "application/json",
        "application/x-ndjson",
    ]) {
        let names: Vec<_> = (0..3).map(|n| format!("{form}-{n}")).collect();
        let schedules: Vec<_> = names.iter().map(|name| named(name)).collect();
        let body = match *form {
            "array" => json!(schedules).to_string(),
            "object" => json!({"schedules": schedules}).to_string(),
            _ => schedules.iter().map(|schedule| format!("{schedule}\n")).collect(),
        };
        let answer = api.call("POST", "/v1/schedules/batch", &[("content-type", kind)], body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let answer = answer.json();
        assert_eq!(answer["count"], 3);
        for (item, name) in answer["schedules"].as_array().unwrap().iter().zip(names) {
            let made = api.get(&format!("/v1/schedules/{}", item["id"].as_str().unwrap())).await.json();
            assert_eq!((&made["name"], &item["duplicate"]), (&json!(name), &json!(false)));
        }
    }
    assert_eq!(count(&api).await, 9);
    let empty = api.post("/v1/schedules/batch", &json!([])).await;
    assert_eq!((empty.status.as_u16(), empty.json()), (201, json!({"schedules": [], "count": 0})));
}

#[tokio::test]
async fn one_fault_or_one_name_that_is_taken_keeps_all_out() {
    let api = Api::new().await;
    let batch = json!({"schedules": [named("a"), {"every": "1s"}, {"cron_expr": "x"}]});
    let problem = api.post("/v1/schedules/batch", &batch).await.problem(422, "invalid_request");
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|fault| &fault["pointer"]).collect();
    assert_eq!(pointers, ["/schedules/2/cron_expr", "/schedules/1/every"]);
    assert_eq!(count(&api).await, 0);

    assert_eq!(api.post("/v1/schedules", &named("b")).await.status, 201);
    let taken = api.post("/v1/schedules/batch", &json!([named("a"), named("b"), named("c")])).await;
    assert_eq!(taken.problem(409, "name_taken")["errors"][0]["pointer"], "/1/name");
    assert_eq!(count(&api).await, 1, "what was made is taken back");
    assert_eq!(api.get("/v1/jobs/count").await.json()["count"], 1);
    let twice = api.post("/v1/schedules/batch", &json!([named("d"), named("d")])).await;
    twice.problem(409, "name_taken");
    assert_eq!(count(&api).await, 1);
}

#[tokio::test]
async fn with_partial_each_item_is_answered_for() {
    let api = Api::new().await;
    let batch = json!([named("a"), {"every": "1s"}, named("a"), {"nope": 1}]);
    let answer = api.post("/v1/schedules/batch?partial=true", &batch).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let answer = answer.json();
    assert_eq!((&answer["count"], &answer["refused"]), (&json!(1), &json!(3)));
    let codes: Vec<_> =
        answer["schedules"].as_array().unwrap().iter().map(|item| &item["error"]["code"]).collect();
    assert_eq!(
        codes,
        [&Value::Null, &json!("interval_too_short"), &json!("name_taken"), &json!("invalid_request")]
    );
    let none = api.post("/v1/schedules/batch?partial=true", &json!([named("a")])).await;
    assert_eq!((none.status.as_u16(), &none.json()["count"]), (200, &json!(0)));
}

#[tokio::test]
async fn a_batch_that_is_sent_again_makes_nothing_twice() {
    let api = Api::new().await;
    let batch = json!([named("a"), {"every": "2h", "idempotency_key": "own"}]).to_string();
    let send = || api.call("POST", "/v1/schedules/batch", &[("idempotency-key", "k")], batch.clone());
    let (first, again) = (send().await.json(), send().await.json());
    for (first, again) in
        first["schedules"].as_array().unwrap().iter().zip(again["schedules"].as_array().unwrap())
    {
        assert_eq!((&first["id"], &again["duplicate"]), (&again["id"], &json!(true)));
    }
    assert_eq!(count(&api).await, 2);
}

#[tokio::test]
async fn a_batch_has_its_key_in_the_header_or_beside_its_schedules() {
    let api = Api::new().await;
    let schedules = json!([named("a"), {"every": "2h", "idempotency_key": "own"}]);
    let send = async |headers: &[(&str, &str)], body: &str| {
        api.call("POST", "/v1/schedules/batch", headers, body.to_owned()).await
    };
    let header = [("idempotency-key", "B")];
    let first = send(&header, &schedules.to_string()).await;
    assert_eq!(first.status, 201, "{first:?}");
    let ids = |answer: &Value| {
        let items = answer["schedules"].as_array().unwrap().iter();
        items.map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    let before = format!("{{\"idempotency_key\": \"B\", \"schedules\": {schedules}}}");
    let after = format!("{{\"schedules\": {schedules}, \"idempotency_key\": \"B\"}}");
    for body in [&before, &after] {
        for headers in [&[][..], &header[..]] {
            let again = send(headers, body).await;
            assert_eq!(again.status, 201, "{again:?}");
            let again = again.json();
            assert_eq!(ids(&again), ids(&first.json()), "{again}");
            assert!(again["schedules"].as_array().unwrap().iter().all(|item| item["duplicate"] == true));
        }
        let other = send(&[("idempotency-key", "C")], body).await;
        let problem = other.problem(422, "conflicting_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
    }
    let other = json!({"schedules": [named("b")], "idempotency_key": "B"});
    api.post("/v1/schedules/batch", &other).await.problem(409, "idempotency_conflict");
    for (key, status, code) in [
        (json!(5), 422, "wrong_type"),
        (json!(""), 422, "invalid_value"),
        (json!("a\nb"), 400, "control_character"),
    ] {
        for path in ["/v1/schedules/batch", "/v1/schedules/batch?partial=true"] {
            let refused = api.post(path, &json!({"schedules": [named("b")], "idempotency_key": key})).await;
            assert_eq!(refused.problem(status, code)["errors"][0]["pointer"], "/idempotency_key");
        }
    }
    // The key of the batch is no item's own, and none is none.
    let own = json!({"idempotency_key": "D", "schedules": [{"every": "1h", "idempotency_key": "D"}]});
    let problem = api.post("/v1/schedules/batch", &own).await.problem(422, "conflicting_fields");
    assert_eq!(problem["errors"][0]["pointer"], "/schedules/0/idempotency_key");
    let each = api.post("/v1/schedules/batch?partial=true", &own).await.json();
    assert_eq!(each["schedules"][0]["error"]["code"], "conflicting_fields", "{each}");
    assert_eq!(count(&api).await, 2);
    let unkeyed = json!({"idempotency_key": null, "schedules": [{"every": "1h"}]});
    for _ in 0..2 {
        let made = api.post("/v1/schedules/batch", &unkeyed).await;
        assert_eq!((made.status.as_u16(), &made.json()["schedules"][0]["duplicate"]), (201, &json!(false)));
    }
    // Schedules that stand alone, one to a line, may begin with their keys.
    let lines =
        "{\"idempotency_key\":\"x\",\"every\":\"1h\"}\n{\"idempotency_key\":\"y\",\"every\":\"1h\"}\n";
    let made = send(&[], lines).await;
    assert_eq!((made.status.as_u16(), &made.json()["count"]), (201, &json!(2)), "{made:?}");
}

#[tokio::test]
async fn a_batch_shares_the_keys_of_all_calls() {
    let api = Api::new().await;
    let send = async |path: &str, key: &str, body: Value| {
        api.call("POST", path, &[("idempotency-key", key)], body.to_string()).await
    };
    let batch = async |key: &str, body: Value| send("/v1/schedules/batch", key, body).await;
    let job = json!({"type": "t", "delay": "1h"});
    assert_eq!(send("/v1/jobs", "job", job.clone()).await.status, 201);
    batch("job", json!([named("a")])).await.problem(409, "idempotency_conflict");
    assert_eq!(send("/v1/schedules", "schedule", named("one")).await.status, 201);
    batch("schedule", json!([named("a")])).await.problem(409, "idempotency_conflict");
    assert_eq!(send("/v1/jobs/batch", "jobs", json!([])).await.status, 201);
    batch("jobs", json!([])).await.problem(409, "idempotency_conflict");
    assert_eq!(count(&api).await, 1);

    assert_eq!(batch("many", json!([named("a")])).await.status, 201);
    send("/v1/jobs", "many", job.clone()).await.problem(409, "idempotency_conflict");
    send("/v1/schedules", "many", named("z")).await.problem(409, "idempotency_conflict");
    send("/v1/jobs/batch", "many", json!([job])).await.problem(409, "idempotency_conflict");
    let own = |key: &str| json!([{"every": "1h", "idempotency_key": key}]);
    for _ in 0..2 {
        assert_eq!(batch("others", own("o1")).await.status, 201);
    }
    batch("others", own("o2")).await.problem(409, "idempotency_conflict");
    assert_eq!(batch("none", json!([])).await.status, 201);
    batch("none", json!([named("b")])).await.problem(409, "idempotency_conflict");
    // What is refused takes no key.
    batch("mended", json!([{"every": "1s"}])).await.problem(422, "interval_too_short");
    batch("mended", json!([named("a")])).await.problem(409, "name_taken");
    assert_eq!(batch("mended", json!([named("b")])).await.status, 201);
    assert_eq!(count(&api).await, 4);
}

#[tokio::test]
async fn the_longest_key_does_for_a_batch_and_no_item_has_it_for_its_own() {
    let api = Api::new().await;
    let long = "k".repeat(255);
    let headers = [("idempotency-key", long.as_str())];
    let send = async |path: &str| {
        api.call("POST", path, &headers, json!([{"every": "1h"}, {"every": "1h"}]).to_string()).await
    };
    let (first, again) = (send("/v1/schedules/batch").await, send("/v1/schedules/batch").await.json());
    assert_eq!(first.status, 201, "{first:?}");
    let first = first.json();
    for (first, again) in
        first["schedules"].as_array().unwrap().iter().zip(again["schedules"].as_array().unwrap())
    {
        assert_eq!((&first["id"], &again["duplicate"]), (&again["id"], &json!(true)));
    }
    assert_eq!(count(&api).await, 2);
    // Answered for one by one they are other requests under that key.
    send("/v1/schedules/batch?partial=true").await.problem(409, "idempotency_conflict");

    for (name, mut item) in [("jobs", json!({"type": "t"})), ("schedules", named("n"))] {
        let path = format!("/v1/{name}/batch");
        item["idempotency_key"] = json!(name);
        let body = json!([item]).to_string();
        let refused = api.call("POST", &path, &[("idempotency-key", name)], body.clone()).await;
        let problem = refused.problem(422, "conflicting_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/0/idempotency_key", "{name}");
        let one_by_one = format!("{path}?partial=true");
        let refused = api.call("POST", &one_by_one, &[("idempotency-key", name)], body).await.json();
        assert_eq!(refused[name][0]["error"]["code"], "conflicting_fields", "{refused}");
    }
}

#[tokio::test]
async fn a_partial_batch_under_a_key_goes_on_where_it_was_left() {
    let api = Api::new().await;
    let send = async |body: Value| {
        let headers = [("idempotency-key", "P")];
        api.call("POST", "/v1/schedules/batch?partial=true", &headers, body.to_string()).await.json()
    };
    let first = send(json!([named("a"), {"every": "1s"}, named("c")])).await;
    assert_eq!((&first["count"], &first["refused"]), (&json!(2), &json!(1)));
    let mended = send(json!([named("a"), named("b"), named("c")])).await;
    let duplicates: Vec<_> =
        mended["schedules"].as_array().unwrap().iter().map(|item| item["duplicate"].clone()).collect();
    assert_eq!(duplicates, [true, false, true], "{mended}");
}

#[tokio::test]
async fn ten_thousand_are_taken_and_one_more_is_not() {
    let api = Api::new().await;
    let mut lines = "{\"every\":\"1h\"}\n".repeat(10_000);
    let answer = api.call("POST", "/v1/schedules/batch", &[], lines.clone()).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["count"]), (201, &json!(10_000)));
    lines.push_str("{\"every\":\"1h\"}\n");
    api.call("POST", "/v1/schedules/batch", &[], lines).await.problem(413, "batch_too_large");
}
