//! Schedules at work: occurrences that start one after another, overlap, triggers, backfills, and the ledger.

use std::time::Duration;

use serde_json::{Value, json};
use tidewheel_core::limits::{HOUR_MS, MINUTE_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::{Timestamp, format_duration};
use tidewheel_server::clock::{Clock, SystemClock};
use tidewheel_server::http::HttpLimits;
use tidewheel_store::{ScheduleCommand, ScheduleOrder};

use crate::http::harness::Api;

/// A server on which schedules may fire every second.
async fn quick() -> Api {
    Api::with_limits(HttpLimits { schedule_interval_ms_min: 1_000, ..HttpLimits::default() }).await
}

async fn create(api: &Api, body: &Value) -> String {
    let answer = api.post("/v1/schedules", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn firings(api: &Api, id: &str) -> Vec<Value> {
    let page = api.get(&format!("/v1/schedules/{id}/firings?limit=1000")).await;
    assert_eq!(page.status, 200, "{page:?}");
    page.json()["items"].as_array().unwrap().clone()
}

async fn succeed(api: &Api, taken: &Value) {
    let outcome = json!({"token": taken["token"], "status": "succeeded"});
    let answer = api.post(&format!("/v1/jobs/{}/outcome", taken["id"].as_str().unwrap()), &outcome).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Asks until the ledger shows what is waited for.
async fn until(api: &Api, id: &str, is_there: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    loop {
        let rows = firings(api, id).await;
        if is_there(&rows) {
            return rows;
        }
        tokio::task::yield_now().await;
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn occurrences_start_one_after_another_and_are_in_the_ledger() {
    let api = quick().await;
    let id = create(
        &api,
        &json!({"every": "1s", "type": "tick", "queue": "q", "idempotency_key": "k", "payload": {"a":1}}),
    )
    .await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let taken = api.take_one("q").await;
        assert_eq!((&taken["type"], &taken["schedule_id"]), (&json!("tick"), &json!(id)));
        assert_eq!((&taken["payload"], &taken["catch_up"]), (&json!({"a": 1}), &json!(false)));
        assert_eq!(taken["idempotency_key"], format!("k:{}", taken["fire_at"].as_str().unwrap()));
        succeed(&api, &taken).await;
        seen.push(taken);
    }
    for pair in seen.windows(2) {
        assert_eq!(time(&pair[1]["fire_at"]).since_ms(time(&pair[0]["fire_at"])), 1_000, "no drift");
    }
    let rows = firings(&api, &id).await;
    let fired: Vec<_> = rows.iter().rev().take(3).collect();
    for (row, taken) in fired.into_iter().zip(&seen) {
        assert_eq!((&row["fire_at"], &row["job_id"]), (&taken["fire_at"], &taken["id"]));
        assert_eq!((&row["outcome"], &row["state"]), (&json!("fired"), &json!("succeeded")));
        assert_eq!((&row["attempts"], &row["catch_up"]), (&json!(1), &json!(false)));
        assert!(row["lag"].is_string() && row["started_at"].is_string() && row["reason"].is_null(), "{row}");
        assert_eq!(row["run_at"], row["fire_at"]);
    }
    let schedule = api.get(&format!("/v1/schedules/{id}")).await.json();
    assert!(time(&schedule["last_fire_at"]) >= time(&seen[2]["fire_at"]));
    assert_eq!(schedule["version"], 1, "fires are no edits");
}

#[tokio::test]
async fn what_is_made_late_behind_a_late_one_is_shown_as_late_as_it_is() {
    let api = quick().await;
    let id = create(&api, &json!({"every": "1s", "queue": "q"})).await;
    // Nobody works for longer than two fires take.
    SystemClock::new().sleep(Duration::from_millis(2_500)).await;
    for _ in 0..2 {
        succeed(&api, &api.take_one("q").await).await;
    }
    let rows = firings(&api, &id).await;
    let [second, first] = rows.as_slice() else { panic!("{rows:?}") };
    assert!(time(&second["run_at"]) > time(&second["fire_at"]), "{second}");
    for row in [first, second] {
        let late_ms = time(&row["started_at"]).since_ms(time(&row["fire_at"]));
        assert_eq!(row["lag"], format_duration(late_ms), "{row}");
    }
}

#[tokio::test]
async fn an_occurrence_that_comes_too_early_waits_and_the_chain_goes_on_behind_it() {
    let api = quick().await;
    let id = create(&api, &json!({"every": "1s", "queue": "q", "overlap": "buffer_one"})).await;
    let first = api.take_one("q").await;
    // While the first runs, the second is held, and those after it are skipped.
    let skipped = |row: &Value| row["outcome"] == "skipped" && row["reason"] == "overlap";
    let taker = tokio::spawn({
        let api = api.as_tenant("default");
        async move { api.take_one("q").await }
    });
    until(&api, &id, |rows| rows.iter().any(skipped)).await;
    assert!(!taker.is_finished());
    let held_for = json!(time(&first["fire_at"]).plus_ms(1_000).to_string());
    let waiting = api.get("/v1/jobs?state=scheduled").await.json();
    let held = waiting["items"].as_array().unwrap().iter().find(|job| job["fire_at"] == held_for).unwrap();
    let told = api.get(&format!("/v1/jobs/{}/explain", held["id"].as_str().unwrap())).await.json();
    assert_eq!((&told["waits_for"], &told["expected_start"]), (&json!("overlap"), &Value::Null), "{told}");
    succeed(&api, &first).await;
    let second = taker.await.unwrap();
    assert_eq!(time(&second["fire_at"]).since_ms(time(&first["fire_at"])), 1_000);
    succeed(&api, &second).await;
    assert!(time(&api.take_one("q").await["fire_at"]) > time(&second["fire_at"]).plus_ms(1_000));
}

#[tokio::test]
async fn a_later_occurrence_ends_the_run_before_it() {
    let api = quick().await;
    create(&api, &json!({"every": "1s", "queue": "q", "overlap": "cancel_running"})).await;
    let first = api.take_one("q").await;
    let second = api.take_one("q").await;
    assert_ne!(first["id"], second["id"]);
    let ended = api.get(&format!("/v1/jobs/{}", first["id"].as_str().unwrap())).await.json();
    assert_eq!(ended["state"], "cancelled");
    let late = json!({"token": first["token"], "status": "succeeded"});
    let path = format!("/v1/jobs/{}/outcome", first["id"].as_str().unwrap());
    assert_eq!(api.post(&path, &late).await.status, 409);
}

#[tokio::test]
async fn a_cancelled_occurrence_is_skipped_and_the_next_one_takes_its_place() {
    let api = Api::new().await;
    let id = create(&api, &json!({"every": "1h"})).await;
    let waiting = api.get(&format!("/v1/jobs?schedule={id}")).await.json()["items"][0].clone();
    api.post(&format!("/v1/jobs/{}/cancel", waiting["id"].as_str().unwrap()), &json!({})).await;
    let rows = firings(&api, &id).await;
    assert_eq!((&rows[0]["outcome"], &rows[0]["reason"]), (&json!("skipped"), &json!("cancelled")));
    let next = api.get(&format!("/v1/schedules/{id}")).await.json();
    assert_eq!(time(&next["next_fire_at"]).since_ms(time(&waiting["fire_at"])), HOUR_MS);
    let jobs = api.get(&format!("/v1/jobs?schedule={id}&state=scheduled")).await.json();
    assert_eq!(jobs["items"][0]["fire_at"], next["next_fire_at"]);
}

#[tokio::test]
async fn a_trigger_runs_now_and_leaves_the_chain_alone() {
    let api = Api::new().await;
    let id = create(&api, &json!({"every": "1h", "queue": "q"})).await;
    let before = api.get(&format!("/v1/schedules/{id}")).await.json();
    let answer = api.call("POST", &format!("/v1/schedules/{id}/trigger"), &[], "").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let triggered = answer.json();
    assert_eq!(triggered["schedule_id"], id);
    assert_eq!(answer.header("location"), format!("/v1/jobs/{}", triggered["job_id"].as_str().unwrap()));
    let taken = api.take_one("q").await;
    assert_eq!((&taken["id"], &taken["schedule_id"]), (&triggered["job_id"], &json!(id)));
    let rows = firings(&api, &id).await;
    assert_eq!((&rows[0]["outcome"], &rows[0]["state"]), (&json!("triggered"), &json!("running")));
    assert_eq!(api.get(&format!("/v1/schedules/{id}")).await.json()["next_fire_at"], before["next_fire_at"]);
}

#[tokio::test]
async fn a_backfill_makes_up_for_a_stretch_once_and_at_its_rate() {
    let api = Api::new().await;
    let id = create(&api, &json!({"cron_expr": "0 * * * *", "queue": "q"})).await;
    let path = format!("/v1/schedules/{id}/backfill");
    let body = json!({"from": "2024-11-01T00:00:00Z", "to": "2024-11-01T09:00:00Z", "rate": 0.5});
    let now = api.engine.clock().now();
    let answer = api.post(&path, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!((&answer["count"], &answer["duplicates"]), (&json!(10), &json!(0)), "both ends count");
    assert_eq!(answer["next_from"], Value::Null);
    assert!((18_000..60_000).contains(&time(&answer["last_run_at"]).since_ms(now)), "{answer}");
    let again = api.post(&path, &body).await.json();
    assert_eq!((&again["count"], &again["duplicates"]), (&json!(0), &json!(10)));

    let first = api.take_one("q").await;
    assert_eq!((&first["fire_at"], &first["catch_up"]), (&json!("2024-11-01T00:00:00.000Z"), &json!(true)));
    let rows = firings(&api, &id).await;
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["outcome"] == "backfilled" && row["catch_up"] == true), "{rows:?}");
    assert_eq!(rows[0]["fire_at"], "2024-11-01T09:00:00.000Z", "newest first");

    let minutely = create(&api, &json!({"cron_expr": "* * * * *", "queue": "other"})).await;
    let long = json!({"from": "2024-10-01T00:00:00Z", "to": "2024-10-11T00:00:00Z"});
    let path = format!("/v1/schedules/{minutely}/backfill");
    let part = api.post(&path, &long).await.json();
    assert_eq!(part["count"], 10_000);
    let start: Timestamp = "2024-10-01T00:00:00Z".parse().unwrap();
    assert_eq!(time(&part["next_from"]), start.plus_ms(10_000 * MINUTE_MS));
    let rest = json!({"from": part["next_from"], "to": "2024-10-11T00:00:00Z"});
    let rest = api.post(&path, &rest).await.json();
    assert_eq!((&rest["count"], &rest["next_from"]), (&json!(4_401), &Value::Null));
    api.post(&path, &json!({})).await.problem(422, "missing_field");
    api.post(&path, &json!({"from": "2024-10-01T00:00:00Z", "to": "2126-10-01T00:00:00Z"}))
        .await
        .problem(422, "invalid_value");
}

#[tokio::test]
async fn a_backfill_of_what_has_fired_fires_it_once_more_under_its_key() {
    let api = quick().await;
    let id = create(&api, &json!({"every": "1s", "queue": "q", "idempotency_key": "k"})).await;
    let taken = api.take_one("q").await;
    let path = format!("/v1/schedules/{id}/backfill");
    let stretch = json!({"from": taken["fire_at"], "to": taken["fire_at"]});
    let answer = api.post(&path, &stretch).await.json();
    assert_eq!((&answer["count"], &answer["duplicates"]), (&json!(1), &json!(0)), "{answer}");
    let rows = firings(&api, &id).await;
    let of_instant: Vec<&Value> = rows.iter().filter(|row| row["fire_at"] == taken["fire_at"]).collect();
    assert_eq!(of_instant.len(), 2, "{rows:?}");
    assert_eq!(
        (&of_instant[0]["outcome"], &of_instant[1]["outcome"]),
        (&json!("backfilled"), &json!("fired"))
    );
    let again = api.get(&format!("/v1/jobs/{}", of_instant[0]["job_id"].as_str().unwrap())).await.json();
    assert_eq!((&again["idempotency_key"], &again["catch_up"]), (&taken["idempotency_key"], &json!(true)));
    let answer = api.post(&path, &stretch).await.json();
    assert_eq!((&answer["count"], &answer["duplicates"]), (&json!(0), &json!(1)), "but not a third time");
}

#[tokio::test]
async fn ranges_of_the_ledger_are_unfolded_page_by_page() {
    let api = Api::new().await;
    let id = create(&api, &json!({"cron_expr": "* * * * *", "queue": "q", "paused": true})).await;
    let made_at = time(&api.get(&format!("/v1/schedules/{id}")).await.json()["created_at"]);
    let edit = async |at: Timestamp, command: ScheduleCommand| {
        let order = ScheduleOrder {
            tenant: Tenant::default(),
            id: id.parse().unwrap(),
            if_version: None,
            command,
            key: None,
        };
        api.engine.store().edit_schedules(at, vec![order]).await.unwrap().pop().unwrap().unwrap();
    };
    edit(made_at.plus_ms(3 * HOUR_MS), ScheduleCommand::Resume).await;
    edit(made_at.plus_ms(3 * HOUR_MS + 1), ScheduleCommand::Trigger).await;
    edit(made_at.plus_ms(3 * HOUR_MS + 2), ScheduleCommand::Pause).await;
    edit(made_at.plus_ms(4 * HOUR_MS), ScheduleCommand::Resume).await;

    for limit in [1_000, 60, 7] {
        let mut rows: Vec<Value> = Vec::new();
        let mut path = format!("/v1/schedules/{id}/firings?limit={limit}");
        loop {
            let page = api.get(&path).await;
            assert_eq!(page.status, 200, "{page:?}");
            let page = page.json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            rows.extend(items.iter().cloned());
            // What is decided meanwhile is newer, and not on any further page.
            if limit == 7 && rows.len() == 7 {
                edit(made_at.plus_ms(4 * HOUR_MS + 1), ScheduleCommand::Trigger).await;
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/schedules/{id}/firings?limit={limit}&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(rows.len(), 4 * 60 + 1, "one row for each minute, and one for the trigger");
        assert!(
            rows.windows(2).all(|pair| time(&pair[0]["fire_at"]) > time(&pair[1]["fire_at"])),
            "newest first"
        );
        let (triggered, skipped): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row["outcome"] == "triggered");
        assert_eq!((triggered.len(), skipped.len()), (1, 240));
        assert!(skipped.iter().all(|row| row["outcome"] == "skipped" && row["reason"] == "paused"));
        assert!(skipped.iter().all(|row| row["job_id"].is_null() && row["lag"].is_null()));
    }
    api.get(&format!("/v1/schedules/{id}/firings?cursor=x")).await.problem(400, "invalid_cursor");
}
