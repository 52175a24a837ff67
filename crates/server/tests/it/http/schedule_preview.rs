//! Previews over HTTP: the table of known answers, and what is refused.

use serde_json::{Value, json};
use tidewheel_core::time::Timestamp;

use crate::http::harness::Api;

fn fires(answer: &Value) -> Vec<Timestamp> {
    answer["fires"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fire| fire["fire_at"].as_str().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn every_case_of_the_table_has_its_answer() {
    let api = Api::new().await;
    let table = include_str!("../../../../core/tests/data/cron.jsonl");
    let mut refused = 0;
    for line in table.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let asked =
            json!({"cron_expr": case["expr"], "timezone": case["tz"], "from": case["from"], "count": 5});
        match case["error"].as_str() {
            Some(kind) => {
                let code = if kind == "zone" { "invalid_timezone" } else { "invalid_cron" };
                let answer = api.post("/v1/schedules/preview", &asked).await;
                assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (422, &json!(code)), "{case}");
                refused += 1;
            }
            None => {
                let skipped = case.get("next_gap_skipped").filter(|next| !next.is_null());
                let runs = [("next_valid", &case["next"]), ("skip", skipped.unwrap_or(&case["next"]))];
                for (gap, wanted) in runs {
                    let wanted: Vec<Timestamp> = wanted
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|at| at.as_str().unwrap().parse().unwrap())
                        .collect();
                    let mut asked = asked.clone();
                    asked["dst"] = json!({"gap": gap});
                    asked["count"] = json!(wanted.len());
                    let answer = api.post("/v1/schedules/preview", &asked).await;
                    assert_eq!(answer.status, 200, "{case}: {answer:?}");
                    assert_eq!(fires(&answer.json()), wanted, "{case}");
                }
            }
        }
    }
    assert!(refused > 20);
}

#[tokio::test]
async fn a_preview_says_why_a_fire_is_where_it_is() {
    let api = Api::new().await;
    let first = async |body: Value| api.post("/v1/schedules/preview", &body).await.json()["fires"][0].clone();
    let gap = first(
        json!({"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin", "from": "2026-03-28T12:00:00Z"}),
    );
    assert_eq!(
        gap.await,
        json!({"fire_at": "2026-03-29T01:00:00.000Z", "run_at": "2026-03-29T01:00:00.000Z", "note": "dst_gap"})
    );
    let fold = first(
        json!({"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin", "from": "2026-10-24T12:00:00Z"}),
    );
    assert_eq!(fold.await["note"], "dst_fold");
    let rolled = first(json!({"cron_expr": "0 9 25 12 *", "from": "2026-12-01T00:00:00Z",
        "exclude": {"dates": ["2026-12-25"], "roll": "next_business_day"}}));
    let rolled = rolled.await;
    assert_eq!((&rolled["fire_at"], &rolled["note"]), (&json!("2026-12-28T09:00:00.000Z"), &json!("rolled")));
    let every =
        first(json!({"every": "5s", "start_at": "2026-12-01T00:00:02Z", "from": "2026-12-01T00:00:02Z"}));
    assert_eq!(every.await["fire_at"], "2026-12-01T00:00:07.000Z", "`from` is excluded");
}

#[tokio::test]
async fn an_interval_is_previewed_as_it_would_fire_if_it_were_made_or_changed_now() {
    const HOUR_MS: i64 = 3_600_000;
    let api = Api::new().await;
    let preview = async |body: Value| fires(&api.post("/v1/schedules/preview", &body).await.json());
    let before = api.engine.clock().now();
    for from in [json!("2026-01-01T00:00:00Z"), json!(before.to_string())] {
        let told = preview(json!({"every": "1h", "from": from, "count": 2})).await;
        let after = api.engine.clock().now();
        assert!(told[0] >= before.plus_ms(HOUR_MS) && told[0] <= after.plus_ms(HOUR_MS), "{told:?}");
        assert_eq!(told[1], told[0].plus_ms(HOUR_MS));
    }
    let made = api.post("/v1/schedules", &json!({"name": "n", "type": "t", "every": "6h"})).await.json();
    let id = made["id"].as_str().unwrap();
    let told = preview(json!({"every": "10h", "schedule": id, "count": 3})).await;
    let changed = api.call("PATCH", &format!("/v1/schedules/{id}"), &[], r#"{"every": "10h"}"#).await.json();
    assert_eq!(changed["next_fire_at"], told[0].to_string());
    // It counts on from where it did: from when it was made.
    let first: Timestamp = made["next_fire_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(told[0], first.plus_ms(4 * HOUR_MS));
    let unknown = json!({"every": "1h", "schedule": id.replace(&id[6..], &"0".repeat(id.len() - 6))});
    api.post("/v1/schedules/preview", &unknown).await.problem(404, "schedule_not_found");
    let nonsense = json!({"every": "1h", "schedule": "x"});
    api.post("/v1/schedules/preview", &nonsense).await.problem(422, "invalid_value");
}

#[tokio::test]
async fn fires_end_with_the_instants_that_can_be_written() {
    let api = Api::new().await;
    let asked = async |body: Value| {
        let answer = api.post("/v1/schedules/preview", &body).await;
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        fires(&answer.json())
    };
    let told = asked(json!({"every": "3653d", "count": 1000})).await;
    assert!(told.len() < 1_000 && told.last().is_some_and(|last| *last <= Timestamp::LATEST), "{told:?}");
    let long = json!({"type": "t", "every": "3653d", "window": "1d"});
    let made = api.post("/v1/schedules", &long).await.json();
    let next =
        api.get(&format!("/v1/schedules/{}/next?count=1000", made["id"].as_str().unwrap())).await.json();
    assert_eq!(fires(&next).len(), told.len(), "each of them is an instant");
    for fire in next["fires"].as_array().unwrap() {
        assert!(fire["run_at"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{fire}");
    }

    // What fires now and then does so until then.
    for (expression, from) in [("0 0 29 2 *", "9997-01-01T00:00:00Z"), ("0 12 * * *", "9999-12-30T13:00:00Z")]
    {
        assert_eq!(asked(json!({"cron_expr": expression, "from": from})).await, [], "{expression}");
        assert_eq!(asked(json!({"cron_expr": expression, "start_at": from})).await, [], "{expression}");
        let made = json!({"type": "t", "cron_expr": expression, "start_at": from});
        let refused = api.post("/v1/schedules", &made).await.problem(422, "invalid_value");
        assert_eq!(refused["errors"][0]["pointer"], "/start_at", "{refused}");
    }
    let last = asked(json!({"cron_expr": "0 12 * * *", "from": "9999-12-29T13:00:00Z"})).await;
    assert_eq!(last, ["9999-12-30T12:00:00Z".parse::<Timestamp>().unwrap()]);
    // Berlin's clocks go from 02:00 to 03:00 on the last Sunday of March.
    for from in ["2026-01-01T00:00:00Z", "9998-01-01T00:00:00Z", "9999-12-30T13:00:00Z"] {
        let never = json!({"cron_expr": "*/30 2 * 3 SUNL", "timezone": "Europe/Berlin", "from": from});
        let refused = api.post("/v1/schedules/preview", &never).await.problem(422, "invalid_cron");
        assert_eq!(refused["errors"][0]["pointer"], "/cron_expr", "{refused}");
    }
    let never = json!({"cron_expr": "0 0 30 2 *", "from": "9997-01-01T00:00:00Z"});
    api.post("/v1/schedules/preview", &never).await.problem(422, "invalid_cron");

    for field in ["from", "start_at", "end_at"] {
        let mut late = json!({"cron_expr": "@daily"});
        late[field] = json!("9999-12-31T23:59:59Z");
        let refused = api.post("/v1/schedules/preview", &late).await.problem(422, "invalid_value");
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"), "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("9999-12-30T22:00:00.000Z"), "{refused}");
    }
}

#[tokio::test]
async fn a_preview_makes_nothing_and_has_its_own_bounds() {
    let api = Api::new().await;
    let asked = |more: Value| {
        let mut body = json!({"cron_expr": "* * * * * *"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let answer = api.post("/v1/schedules/preview", &asked(json!({}))).await.json();
    assert_eq!(fires(&answer).len(), 5, "no minimum interval applies, and five is the default");
    assert!(fires(&answer)[0] > api.engine.clock().now().plus_ms(-60_000));
    let many = api.post("/v1/schedules/preview", &asked(json!({"count": 1000}))).await.json();
    assert_eq!(fires(&many).len(), 1_000);
    let ended = asked(json!({"from": "2026-01-01T00:00:00Z", "end_at": "2026-01-01T00:00:02Z"}));
    assert_eq!(fires(&api.post("/v1/schedules/preview", &ended).await.json()).len(), 2);
    for (body, code, pointer, word) in [
        (asked(json!({"count": 1001})), "invalid_value", "/count", "1000"),
        (asked(json!({"count": 0})), "invalid_value", "/count", "1"),
        (asked(json!({"from": "now"})), "invalid_time", "/from", "RFC 3339"),
        (asked(json!({"every": "1h"})), "conflicting_fields", "/every", "cron_expr"),
        (asked(json!({"payload": 1})), "unknown_field", "/payload", "cron_expr"),
        (json!({}), "missing_field", "/cron_expr", "every"),
        (json!({"cron_expr": "0 25 * * *"}), "invalid_cron", "/cron_expr", "at byte 2"),
        (
            json!({"cron_expr": "@daily", "timezone": "Europe/Pari"}),
            "invalid_timezone",
            "/timezone",
            "Europe/Paris",
        ),
    ] {
        let problem = api.post("/v1/schedules/preview", &body).await.problem(422, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{body}: {problem}");
    }
    assert_eq!(api.get("/v1/schedules").await.json()["items"], json!([]));
    assert_eq!(api.get("/v1/jobs/count").await.json()["count"], 0);
}

#[tokio::test]
async fn a_preview_of_a_schedule_that_exists_shows_where_in_its_window_its_jobs_start() {
    let api = Api::new().await;
    let made = json!({"cron_expr": "0 3 1 * *", "window": "6h", "queue": "q"});
    let made = api.post("/v1/schedules", &made).await.json();
    let id = made["id"].as_str().unwrap();
    let job = api.get(&format!("/v1/jobs?schedule={id}")).await.json()["items"][0].clone();
    let from: Timestamp = made["next_fire_at"].as_str().unwrap().parse().unwrap();
    let preview = async |more: Value| {
        let mut body = json!({"cron_expr": "0 3 1 * *", "from": from.plus_ms(-1).to_string(), "count": 12});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.post("/v1/schedules/preview", &body).await.json()["fires"].as_array().unwrap().clone()
    };
    let spread_ms = |fires: &[Value]| -> Vec<i64> {
        let time = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
        fires.iter().map(|fire| time(&fire["run_at"]).since_ms(time(&fire["fire_at"]))).collect()
    };
    let shown = preview(json!({"schedule": id, "window": "6h"})).await;
    assert_eq!((&shown[0]["fire_at"], &shown[0]["run_at"]), (&job["fire_at"], &job["run_at"]), "{job}");
    assert_eq!(shown[0]["run_at"], made["next_run_at"]);
    let spread = spread_ms(&shown);
    assert!(spread.iter().all(|ms| (0..6 * 3_600_000).contains(ms)), "{spread:?}");
    assert!(spread.iter().any(|ms| *ms != spread[0]), "{spread:?}");
    assert_eq!(preview(json!({"schedule": id})).await, shown, "in the window it has");

    let narrow = spread_ms(&preview(json!({"schedule": id, "window": "1s"})).await);
    assert!(narrow.iter().all(|ms| (0..1_000).contains(ms)), "{narrow:?}");
    for unknown in [json!({"schedule": id, "window": "0s"}), json!({"window": "6h"})] {
        assert_eq!(spread_ms(&preview(unknown).await), [0; 12]);
    }
}

#[tokio::test]
async fn a_preview_keeps_to_the_minimum_interval_if_it_is_asked_to() {
    let api = Api::new().await;
    let often = json!({"every": "2s"});
    assert_eq!(api.post("/v1/schedules/preview?limits=false", &often).await.status, 200);
    let path = "/v1/schedules/preview?limits=true";
    for (field, value) in [("every", "2s"), ("cron_expr", "*/30 * * * * *")] {
        let refused = api.post(path, &json!({ field: value })).await.problem(422, "interval_too_short");
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"), "{refused}");
    }
    assert_eq!(api.post(path, &json!({"every": "60s"})).await.status, 200);
    api.post("/v1/schedules/preview?limit=true", &often).await.problem(400, "unknown_parameter");
}
