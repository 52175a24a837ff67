//! Schedules over HTTP: making, looking, changing. Names and shapes are those that clients rely on.

use serde_json::{Value, json};
use tidewheel_core::time::Timestamp;
use tidewheel_server::http::HttpLimits;

use crate::http::harness::{Answer, Api};

async fn create(api: &Api, body: &Value) -> Value {
    let answer = api.post("/v1/schedules", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

fn id(schedule: &Value) -> &str {
    schedule["id"].as_str().unwrap()
}

fn path(schedule: &Value) -> String {
    format!("/v1/schedules/{}", id(schedule))
}

async fn put(api: &Api, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    api.call("PUT", path, headers, body.to_string()).await
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_schedule_is_answered_in_the_documented_shape() {
    let api = Api::new().await;
    let body = r#"{
      "cron_expr": "0 9 * * MON-FRI",
      "timezone": "America/New_York",
      "target_url": "https://acme.com/webhooks/morning-report",
      "payload": {"team": "ops"},
      "idempotency_key": "morning-report-ops"
    }"#;
    let answer = api.call("POST", "/v1/schedules", &[], body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let made = answer.json();
    assert!(id(&made).starts_with("sch_"), "{made}");
    assert_eq!(answer.header("location"), path(&made));
    assert_eq!(answer.header("etag"), "\"1\"");
    let asked = json!({"cron_expr": "0 9 * * MON-FRI", "timezone": "America/New_York", "count": 1});
    let previewed = api.post("/v1/schedules/preview", &asked).await.json();
    assert_eq!(made["next_fire_at"], previewed["fires"][0]["fire_at"]);
    assert_eq!(made["next_run_at"], made["next_fire_at"]);
    for (field, value) in [
        ("cron_expr", json!("0 9 * * MON-FRI")),
        ("timezone", json!("America/New_York")),
        ("tenant", json!("default")),
        ("state", json!("active")),
        ("paused", json!(false)),
        ("version", json!(1)),
        ("last_fire_at", Value::Null),
        ("name", Value::Null),
        ("type", json!("scheduled")),
        ("misfire", json!("fire_latest")),
        ("misfire_cap", Value::Null),
        ("misfire_grace", json!("1m")),
        ("overlap", json!("allow")),
        ("dst", json!({"gap": "next_valid", "fold": "first"})),
        ("exclude", Value::Null),
        ("window", json!("0s")),
        ("payload", json!({"team": "ops"})),
        ("idempotency_key", json!("morning-report-ops")),
        ("duplicate", json!(false)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(made["target"]["url"], "https://acme.com/webhooks/morning-report");
    let read = api.get(&path(&made)).await;
    assert_eq!((read.status.as_u16(), read.header("etag")), (200, "\"1\""));
    let mut read = read.json();
    read["duplicate"] = json!(false);
    assert_eq!(read, made);
    api.as_tenant("acme").get(&path(&made)).await.problem(404, "schedule_not_found");
    api.get("/v1/schedules/nonsense").await.problem(404, "schedule_not_found");
}

#[tokio::test]
async fn what_was_asked_for_comes_back_and_can_be_sent_again() {
    let api = Api::new().await;
    let fields = json!({
        "name": "full", "every": "1h30m", "timezone": "Europe/Berlin", "dst": {"gap": "skip", "fold": "both"},
        "start_at": "2027-01-01T00:00:00+01:00", "end_at": "2028-01-01T00:00:00Z",
        "exclude": {"dates": ["2027-12-25"], "calendar": null, "roll": "next_business_day"},
        "window": "10m", "misfire": "fire_all", "misfire_cap": 3, "misfire_grace": "2m", "overlap": "buffer_one",
        "type": "t", "payload": {"a": 1}, "queue": "q", "priority": "low", "timeout": "5s", "labels": {"a": "b"},
        "retry": {"max_attempts": 2, "policy": "fixed", "base": "2s", "multiplier": 2.0, "max": "1h"},
        "idempotency_key": "k", "note": "words", "paused": true,
    });
    let made = create(&api, &fields).await;
    for (name, value) in fields.as_object().unwrap() {
        match name.as_str() {
            "start_at" => assert_eq!(made[name], "2026-12-31T23:00:00.000Z"),
            "end_at" => assert_eq!(made[name], "2028-01-01T00:00:00.000Z"),
            _ => assert_eq!(&made[name], value, "{name}"),
        }
    }
    assert_eq!((&made["state"], &made["next_fire_at"]), (&json!("paused"), &Value::Null));
    let resumed = api.post(&format!("{}/resume", path(&made)), &json!({})).await.json();
    assert_eq!(resumed["next_fire_at"], "2026-12-31T23:00:00.000Z", "an interval begins at its start");
    // Only what can be set can be sent; the rest is refused by name.
    api.post("/v1/schedules", &made).await.problem(422, "unknown_field");
}

#[tokio::test]
async fn the_flat_form_makes_schedules_and_jobs() {
    let api = Api::new().await;
    let body = r#"{
      "tenant_id": "tenant_enterprise_77",
      "job_name": "daily-invoice-settlement",
      "job_type": "billing",
      "schedule_type": "CRON",
      "cron_expression": "0 9 * * *",
      "timezone": "America/New_York",
      "max_attempts": 3,
      "allow_overlap": false,
      "misfire_policy": "FIRE_ONCE",
      "payload": {
        "batch_size": 500,
        "payment_gateway": "stripe"
      }
    }"#;
    let request = http::Request::builder().method("POST").uri("/api/v1/jobs").body(body.into()).unwrap();
    let answer = api.send(request).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let made = answer.json();
    assert_eq!(
        made.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["job_id", "next_scheduled_run", "status"]
    );
    assert_eq!(made["status"], "ACTIVE");
    let run = made["next_scheduled_run"].as_str().unwrap();
    assert!(run.len() == 25 && run.contains("T09:00:00-0"), "the wall clock, and its offset: {run}");

    let tenant = api.as_tenant("tenant_enterprise_77");
    let schedule = tenant.get(&format!("/v1/schedules/{}", made["job_id"].as_str().unwrap())).await.json();
    assert_eq!(time(&schedule["next_fire_at"]), run.parse().unwrap());
    for (field, value) in [
        ("name", json!("daily-invoice-settlement")),
        ("type", json!("billing")),
        ("overlap", json!("skip")),
        ("misfire", json!("fire_latest")),
        ("payload", json!({"batch_size": 500, "payment_gateway": "stripe"})),
    ] {
        assert_eq!(schedule[field], value, "{field}");
    }
    assert_eq!(schedule["retry"]["max_attempts"], 3);
    let again = tenant.call("POST", "/v1/jobs", &[], body).await;
    again.problem(409, "name_taken");

    let once = json!({"schedule_type": "ONCE", "job_name": "n", "job_type": "t", "run_at": "2027-01-15T12:00:00Z",
        "timezone": "Europe/Berlin", "misfire_policy": "SKIP", "payload": 1});
    let made = api.post("/v1/jobs", &once).await;
    assert_eq!(
        (made.status.as_u16(), &made.json()["next_scheduled_run"]),
        (201, &json!("2027-01-15T13:00:00+01:00"))
    );
    let job = api.get(&format!("/v1/jobs/{}", made.json()["job_id"].as_str().unwrap())).await.json();
    assert_eq!((&job["type"], &job["labels"]), (&json!("t"), &json!({"job_name": "n"})));
    assert_eq!(job["expires_at"], "2027-01-15T12:01:00.000Z");
}

#[tokio::test]
async fn the_flat_form_has_its_key_in_the_header_or_in_the_body() {
    let api = Api::new().await;
    for form in [
        json!({"schedule_type": "ONCE", "job_name": "n", "job_type": "t", "run_at": "2027-01-15T12:00:00Z", "idempotency_key": "once"}),
        json!({"schedule_type": "CRON", "job_name": "n", "job_type": "t", "cron_expression": "@daily", "idempotency_key": "cron"}),
    ] {
        let made = api.post("/v1/jobs", &form).await;
        assert_eq!(made.status, 201, "{made:?}");
        let key = form["idempotency_key"].as_str().unwrap();
        for headers in [&[][..], &[("idempotency-key", key)]] {
            let again = api.call("POST", "/v1/jobs", headers, form.to_string()).await;
            assert_eq!(
                (again.status.as_u16(), again.json()["job_id"].clone()),
                (200, made.json()["job_id"].clone())
            );
        }
        let differs = api.call("POST", "/v1/jobs", &[("idempotency-key", "x")], form.to_string()).await;
        differs.problem(422, "conflicting_fields");
        let mut other = form.clone();
        other["payload"] = json!(1);
        api.post("/v1/jobs", &other).await.problem(409, "idempotency_conflict");
    }
    let long = json!({"schedule_type": "ONCE", "job_name": "n", "job_type": "t", "idempotency_key": "k".repeat(256)});
    api.post("/v1/jobs", &long).await.problem(422, "invalid_value");
}

#[tokio::test]
async fn what_is_wrong_with_the_flat_form_is_named_in_its_own_words() {
    let api = Api::new().await;
    let with = |more: Value| {
        let mut body =
            json!({"schedule_type": "CRON", "job_name": "n", "job_type": "t", "cron_expression": "@daily"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, status, code, pointer) in [
        (json!({"schedule_type": "DAILY"}), 422, "invalid_value", "/schedule_type"),
        (json!({"cron_expression": "x"}), 422, "invalid_cron", "/cron_expression"),
        (json!({"cron_expression": "* * * * * *"}), 422, "interval_too_short", "/cron_expression"),
        (json!({"cron_expression": null}), 422, "missing_field", "/cron_expression"),
        (json!({"timezone": "Mars"}), 422, "invalid_timezone", "/timezone"),
        (json!({"run_at": "2027-01-01T00:00:00Z"}), 422, "conflicting_fields", "/run_at"),
        (json!({"misfire_policy": "SKIPP"}), 422, "invalid_value", "/misfire_policy"),
        (json!({"cron_expr": "@daily"}), 422, "unknown_field", "/cron_expr"),
        (json!({"job_name": null}), 422, "missing_field", "/job_name"),
        (json!({"tenant_id": "a b"}), 400, "invalid_tenant", "/tenant_id"),
        (json!({"tenant_id": "other"}), 422, "conflicting_fields", "/tenant_id"),
    ] {
        let problem = api.post("/v1/jobs", &with(more.clone())).await.problem(status, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{more}");
    }
    assert_eq!(api.get("/v1/schedules").await.json(), json!({"items": [], "next_cursor": null}));
}

#[tokio::test]
async fn the_same_key_means_the_same_schedule_and_another_body_is_a_conflict() {
    let api = Api::new().await;
    let body = json!({"every": "1h", "idempotency_key": "k", "payload": 1});
    let first = create(&api, &body).await;
    let again = api.post("/v1/schedules", &body).await;
    assert_eq!(again.status, 200, "{again:?}");
    let again = again.json();
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    for other in [
        json!({"every": "2h", "idempotency_key": "k", "payload": 1}),
        json!({"every": "1h", "idempotency_key": "k", "payload": 2}),
        json!({"every": "1h", "idempotency_key": "k", "payload": 1, "paused": true}),
    ] {
        api.post("/v1/schedules", &other).await.problem(409, "idempotency_conflict");
    }
    let keyed =
        api.call("POST", "/v1/schedules", &[("idempotency-key", "h")], r#"{"every":"1h"}"#).await.json();
    let repeat = api.call("POST", "/v1/schedules", &[("idempotency-key", "h")], r#"{"every":"1h"}"#).await;
    assert_eq!((repeat.status.as_u16(), &repeat.json()["id"]), (200, &keyed["id"]));
    assert_eq!(keyed["idempotency_key"], Value::Null, "a key in the head is for the request alone");
    let both = api.call("POST", "/v1/schedules", &[("idempotency-key", "x")], body.to_string()).await;
    both.problem(422, "conflicting_fields");
    assert_eq!(api.as_tenant("acme").post("/v1/schedules", &body).await.status, 201);
}

#[tokio::test]
async fn a_schedule_can_be_changed_paused_resumed_and_deleted() {
    let api = Api::new().await;
    let made =
        create(&api, &json!({"cron_expr": "0 9 * * *", "name": "a", "note": "x", "payload": {"n": 1}})).await;
    let path = path(&made);
    let changed = api.patch(&path, &json!({"timezone": "Asia/Tokyo", "note": null})).await;
    assert_eq!((changed.status.as_u16(), changed.header("etag")), (200, "\"2\""), "{changed:?}");
    let changed = changed.json();
    assert_eq!((&changed["note"], &changed["payload"]), (&Value::Null, &json!({"n": 1})));
    assert!(changed["next_fire_at"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{changed}");
    assert_eq!(api.patch(&path, &json!({})).await.json()["version"], 2, "nothing changes nothing");

    let stale = [("if-match", "\"1\"")];
    api.call("PATCH", &path, &stale, r#"{"note":"y"}"#).await.problem(412, "stale_version");
    api.call("POST", &format!("{path}/pause"), &stale, "").await.problem(412, "stale_version");
    api.call("DELETE", &path, &stale, "").await.problem(412, "stale_version");
    let fresh = api.call("PATCH", &path, &[("if-match", "\"2\"")], r#"{"note":"y"}"#).await;
    assert_eq!((fresh.status.as_u16(), &fresh.json()["version"]), (200, &json!(3)));

    let paused = api.post(&format!("{path}/pause"), &json!({})).await.json();
    assert_eq!((&paused["state"], &paused["next_fire_at"]), (&json!("paused"), &Value::Null));
    assert_eq!(api.get(&format!("{path}/next")).await.json(), json!({"fires": [], "state": "paused"}));
    let waiting = api.get(&format!("/v1/jobs?schedule={}", id(&made))).await.json();
    assert_eq!(waiting["items"], json!([]), "what waited was taken out");
    let resumed = api.patch(&path, &json!({"paused": false, "cron_expr": "30 9 * * *"})).await.json();
    assert_eq!((&resumed["state"], &resumed["cron_expr"]), (&json!("active"), &json!("30 9 * * *")));
    assert!(resumed["next_fire_at"].as_str().unwrap().contains(":30:00"), "{resumed}");
    let paused = api.patch(&path, &json!({"paused": true, "note": "z"})).await.json();
    assert_eq!((&paused["paused"], &paused["note"]), (&json!(true), &json!("z")));

    for (patch, code) in [
        (json!({"cron_expr": "* * * * * *"}), "interval_too_short"),
        (json!({"cron_expr": "x"}), "invalid_cron"),
        (json!({"nope": 1}), "unknown_field"),
        (json!({"exclude": "nobody"}), "unknown_calendar"),
        (json!({"end_at": "2020-01-01T00:00:00Z"}), "invalid_value"),
    ] {
        api.patch(&path, &patch).await.problem(422, code);
    }
    let other = create(&api, &json!({"every": "1h", "name": "b"})).await;
    let taken = api.patch(&path, &json!({"name": "b"})).await.problem(409, "name_taken");
    assert!(
        taken["detail"].as_str().unwrap().contains(id(&other)) && taken["errors"][0]["pointer"] == "/name"
    );

    assert_eq!(api.delete(&path).await.status, 204);
    for answer in [
        api.delete(&path).await,
        api.get(&path).await,
        api.patch(&path, &json!({})).await,
        api.post(&format!("{path}/resume"), &json!({})).await,
        api.post(&format!("{path}/trigger"), &json!({})).await,
        api.get(&format!("{path}/firings")).await,
    ] {
        answer.problem(404, "schedule_not_found");
    }
}

#[tokio::test]
async fn a_refused_change_changes_nothing_and_does_not_pause() {
    let api = Api::new().await;
    create(&api, &json!({"every": "1h", "name": "taken"})).await;
    let path = path(&create(&api, &json!({"every": "1h", "name": "a"})).await);
    let before = api.get(&path).await.json();
    for paused in [true, false] {
        api.patch(&path, &json!({"paused": paused, "name": "taken"})).await.problem(409, "name_taken");
        assert_eq!(api.get(&path).await.json(), before);
    }
    let paused = api.patch(&path, &json!({"paused": true, "note": "z"})).await.json();
    assert_eq!(
        (&paused["state"], &paused["note"], &paused["version"]),
        (&json!("paused"), &json!("z"), &json!(2))
    );
}

#[tokio::test]
async fn a_name_leads_to_one_schedule_that_is_created_or_changed() {
    let api = Api::new().await;
    let path = "/v1/schedules/by-name/nightly";
    let body = json!({"cron_expr": "0 3 * * *", "queue": "q"});
    let made = put(&api, path, &[], &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(made.header("location").starts_with("/v1/schedules/sch_"));
    let made = made.json();
    assert_eq!((&made["name"], &made["type"]), (&json!("nightly"), &json!("nightly")));
    let again = put(&api, path, &[], &body).await;
    assert_eq!((again.status.as_u16(), &again.json()["version"]), (200, &json!(1)), "the same is no change");
    api.post(&format!("/v1/schedules/{}/pause", id(&made)), &json!({})).await;
    let other = put(&api, path, &[], &json!({"cron_expr": "0 4 * * *"})).await;
    assert_eq!(other.status, 200, "{other:?}");
    let other = other.json();
    assert_eq!((&other["id"], &other["queue"]), (&made["id"], &json!("default")), "replaced as a whole");
    assert_eq!(other["state"], "paused", "a pause by hand stays");

    put(&api, path, &[("if-none-match", "*")], &body).await.problem(412, "stale_version");
    put(&api, path, &[("if-match", "\"1\"")], &body).await.problem(412, "stale_version");
    let version = format!("\"{}\"", other["version"]);
    assert_eq!(put(&api, path, &[("if-match", &version)], &body).await.status, 200);
    put(&api, "/v1/schedules/by-name/new", &[("if-match", "*")], &body).await.problem(412, "stale_version");
    put(&api, path, &[], &json!({"every": "1h", "name": "x"})).await.problem(422, "conflicting_fields");
    put(&api, "/v1/schedules/by-name/a%20b", &[], &body).await.problem(422, "invalid_value");
    put(&api, path, &[], &json!({"every": "1s"})).await.problem(422, "interval_too_short");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let api = Api::new().await;
    let mut made = Vec::new();
    for n in 0..7 {
        let kind = if n % 2 == 0 { "even" } else { "odd" };
        made.push(
            create(&api, &json!({"every": "1h", "name": format!("n{n}"), "type": kind, "paused": n == 3}))
                .await,
        );
    }
    let mut walked = Vec::new();
    let mut path = "/v1/schedules?limit=3".to_owned();
    loop {
        let page = api.get(&path).await.json();
        walked.extend(page["items"].as_array().unwrap().iter().map(|item| id(item).to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/schedules?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    let mut wanted: Vec<_> = made.iter().map(|schedule| id(schedule).to_owned()).collect();
    wanted.sort();
    assert_eq!(walked, wanted, "each once");
    let count_of = async |query: &str| {
        api.get(&format!("/v1/schedules?{query}")).await.json()["items"].as_array().unwrap().len()
    };
    assert_eq!(count_of("type=odd").await, 3);
    assert_eq!(count_of("state=paused").await, 1);
    assert_eq!(count_of("state=active,ended&type=odd").await, 2);
    assert_eq!(count_of("name=n3").await, 1);
    assert_eq!(count_of("name=n3&state=active").await, 0);
    assert_eq!(count_of("name=none").await, 0);
    assert_eq!(api.get("/v1/schedules?name=n1&payload=false").await.json()["items"][0].get("payload"), None);
    api.get("/v1/schedules?stat=active").await.problem(400, "unknown_parameter");
    api.get("/v1/schedules?cursor=x").await.problem(400, "invalid_cursor");
    assert_eq!(api.as_tenant("acme").get("/v1/schedules").await.json()["items"], json!([]));
}

#[tokio::test]
async fn the_minimum_interval_is_the_operators_to_set() {
    let api = Api::new().await;
    for (body, code) in [
        (json!({"every": "59s"}), "interval_too_short"),
        (json!({"cron_expr": "*/30 * * * * *"}), "interval_too_short"),
        (json!({"every": "4000d"}), "invalid_value"),
    ] {
        let problem = api.post("/v1/schedules", &body).await.problem(422, code);
        assert!(problem["errors"][0]["pointer"].as_str().unwrap().len() > 5, "{problem}");
    }
    create(&api, &json!({"every": "60s"})).await;
    create(&api, &json!({"cron_expr": "30 0 0 * * *"})).await;
    let limits = HttpLimits { schedule_interval_ms_min: 2_000, ..HttpLimits::default() };
    let api = Api::with_limits(limits).await;
    create(&api, &json!({"every": "2s"})).await;
    create(&api, &json!({"cron_expr": "*/2 * * * * *"})).await;
    api.post("/v1/schedules", &json!({"every": "1s"})).await.problem(422, "interval_too_short");
}

#[tokio::test]
async fn a_time_the_clock_is_always_moved_over_is_refused_where_it_stands() {
    let api = Api::new().await;
    let of =
        |cron: &str, gap: &str| json!({"cron_expr": cron, "timezone": "Europe/Berlin", "dst": {"gap": gap}});
    for (body, code, pointer) in [
        (of("30 2 * 3 SUNL", "skip"), "invalid_value", "/dst"),
        (of("*/30 2 * 3 SUNL", "next_valid"), "invalid_cron", "/cron_expr"),
    ] {
        for path in ["/v1/schedules", "/v1/schedules/preview"] {
            let problem = api.post(path, &body).await.problem(422, code);
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("Europe/Berlin"), "{problem}");
        }
    }
    create(&api, &of("30 2 * 3 SUNL", "next_valid")).await;
}

#[tokio::test]
async fn windows_spread_what_is_previewed_and_stored_alike() {
    let api = Api::new().await;
    let made = create(&api, &json!({"cron_expr": "0 * * * *", "window": "60s"})).await;
    let (fire_at, run_at) = (time(&made["next_fire_at"]), time(&made["next_run_at"]));
    assert!((0..60_000).contains(&run_at.since_ms(fire_at)), "{made}");
    let next = api.get(&format!("{}/next?count=3", path(&made))).await.json();
    let fires = next["fires"].as_array().unwrap();
    assert_eq!(fires.len(), 3);
    assert_eq!((&fires[0]["fire_at"], &fires[0]["run_at"]), (&made["next_fire_at"], &made["next_run_at"]));
    let offsets: Vec<_> =
        fires.iter().map(|fire| time(&fire["run_at"]).since_ms(time(&fire["fire_at"]))).collect();
    assert!(offsets.iter().all(|offset| (0..60_000).contains(offset)), "{offsets:?}");
    assert!(offsets.iter().any(|offset| *offset != offsets[0]), "{offsets:?}");
    assert_eq!(api.get(&format!("{}/next", path(&made))).await.json()["fires"].as_array().unwrap().len(), 10);
    api.get(&format!("{}/next?count=1001", path(&made))).await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn calendars_are_kept_and_schedules_go_by_them() {
    let api = Api::new().await;
    let days = api.post("/v1/schedules/preview", &json!({"cron_expr": "0 9 * * *", "count": 3})).await.json();
    let date = |n: usize| days["fires"][n]["fire_at"].as_str().unwrap()[..10].to_owned();
    let path = "/v1/calendars/days-off";
    let body = json!({"cron_expr": "0 9 * * *", "exclude": "days-off"});
    let within = json!({"cron_expr": "0 9 * * *", "exclude": {"calendar": "days-off"}});
    for (body, pointer) in [(&body, "/exclude"), (&within, "/exclude/calendar")] {
        for path in ["/v1/schedules", "/v1/schedules/preview"] {
            let unknown = api.post(path, body).await.problem(422, "unknown_calendar");
            assert_eq!(unknown["errors"][0]["pointer"], pointer, "{path}: {unknown}");
        }
    }
    api.get(path).await.problem(404, "calendar_not_found");

    let made = put(&api, path, &[], &json!({"dates": [date(0), date(0)]})).await;
    assert_eq!((made.status.as_u16(), made.json()), (201, json!({"name": "days-off", "dates": [date(0)]})));
    let schedule = create(&api, &body).await;
    assert_eq!(schedule["next_fire_at"], days["fires"][1]["fire_at"]);
    let previewed = api.post("/v1/schedules/preview", &body).await.json();
    assert_eq!(previewed["fires"][0]["fire_at"], days["fires"][1]["fire_at"]);

    let changed = put(&api, path, &[], &json!({"dates": [date(0), date(1)]})).await;
    assert_eq!(changed.status, 200);
    let read = api.get(&self::path(&schedule)).await.json();
    assert_eq!(read["next_fire_at"], days["fires"][2]["fire_at"], "it goes by the new dates at once");
    let waiting = api.get(&format!("/v1/jobs?schedule={}", id(&schedule))).await.json();
    assert_eq!(waiting["items"].as_array().unwrap().len(), 1);
    assert_eq!(waiting["items"][0]["fire_at"], days["fires"][2]["fire_at"]);

    assert_eq!(api.get("/v1/calendars").await.json()["items"], json!([{"name": "days-off"}]));
    put(&api, "/v1/calendars/a", &[], &json!({"dates": []})).await;
    let first = api.get("/v1/calendars?limit=1").await.json();
    assert_eq!(first, json!({"items": [{"name": "a"}], "next_cursor": "a"}));
    let second = api.get("/v1/calendars?limit=1&cursor=a").await.json();
    assert_eq!(second, json!({"items": [{"name": "days-off"}], "next_cursor": null}));

    let used = api.delete(path).await.problem(409, "calendar_in_use");
    assert!(used["detail"].as_str().unwrap().contains(id(&schedule)));
    api.patch(&self::path(&schedule), &json!({"exclude": null})).await;
    assert_eq!(api.delete(path).await.status, 204);
    api.delete(path).await.problem(404, "calendar_not_found");
    put(&api, path, &[], &json!({"dates": ["christmas"]})).await.problem(422, "invalid_value");
    put(&api, path, &[], &json!({})).await.problem(422, "missing_field");
    put(&api, "/v1/calendars/a%20b", &[], &json!({"dates": []})).await.problem(422, "invalid_value");
}
