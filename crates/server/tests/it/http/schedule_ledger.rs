//! The ledger of a schedule: what was asked for by hand stands at its place among what the chain decided.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidewheel_core::limits::{DAY_MS, HOUR_MS, MINUTE_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Schedule, ScheduleId, backfill_job};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{ScheduleCommand, ScheduleOrder};

use crate::http::harness::Api;

/// A schedule of every minute that was made paused, and is edited at times to come.
struct Ledger {
    api: Api,
    id: ScheduleId,
    made_at: Timestamp,
}

impl Ledger {
    async fn new() -> Self {
        let api = Api::new().await;
        let body = json!({"cron_expr": "* * * * *", "queue": "q", "paused": true});
        let made = api.post("/v1/schedules", &body).await;
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        let id = made["id"].as_str().unwrap().parse().unwrap();
        Self { api, id, made_at: time(&made["created_at"]) }
    }

    async fn edit(&self, after_ms: i64, command: ScheduleCommand) {
        let (tenant, id) = (Tenant::default(), self.id);
        let order = ScheduleOrder { tenant, id, if_version: None, command, key: None };
        let at = self.made_at.plus_ms(after_ms);
        self.api.engine.store().edit_schedules(at, vec![order]).await.unwrap().pop().unwrap().unwrap();
    }

    async fn backfill(&self, after_ms: i64, instants: &[Timestamp]) {
        let schedules = self.api.engine.store().schedules(&Tenant::default(), vec![self.id]).await.unwrap();
        let schedule: &Schedule = schedules[0].as_ref().unwrap();
        let at = self.made_at.plus_ms(after_ms);
        let jobs = instants.iter().map(|fire_at| backfill_job(schedule, *fire_at, *fire_at, at).0).collect();
        self.edit(after_ms, ScheduleCommand::Backfill(jobs)).await;
    }

    /// The minute that is so many after the one it was made in.
    fn minute(&self, count: i64) -> Timestamp {
        Timestamp::from_ms((self.made_at.as_ms() / MINUTE_MS + count) * MINUTE_MS)
    }

    /// All rows, read in pages of `limit`.
    async fn rows(&self, limit: usize) -> Vec<Value> {
        let mut rows: Vec<Value> = Vec::new();
        let path = format!("/v1/schedules/{}/firings?limit={limit}", self.id);
        let mut next = path.clone();
        loop {
            let page = self.api.get(&next).await;
            assert_eq!(page.status, 200, "{page:?}");
            let page = page.json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            rows.extend(items.iter().cloned());
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("{path}&cursor={cursor}"),
                None => return rows,
            }
        }
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Newest first, and none twice.
#[track_caller]
fn check_order(rows: &[Value]) {
    let instants: Vec<Timestamp> = rows.iter().map(|row| time(&row["fire_at"])).collect();
    assert!(instants.windows(2).all(|pair| pair[0] >= pair[1]), "{rows:#?}");
    let told: BTreeSet<String> =
        rows.iter().map(|row| format!("{}{}", row["fire_at"], row["outcome"])).collect();
    assert_eq!(told.len(), rows.len(), "{rows:#?}");
}

fn outcomes(rows: &[Value], at: Timestamp) -> Vec<&str> {
    let of = rows.iter().filter(|row| time(&row["fire_at"]) == at);
    of.map(|row| row["outcome"].as_str().unwrap()).collect()
}

fn count(rows: &[Value], outcome: &str) -> usize {
    rows.iter().filter(|row| row["outcome"] == outcome).count()
}

#[tokio::test]
async fn a_trigger_within_a_pause_stands_among_what_the_pause_skipped() {
    let ledger = Ledger::new().await;
    ledger.edit(HOUR_MS + 1, ScheduleCommand::Trigger).await;
    ledger.edit(2 * HOUR_MS, ScheduleCommand::Resume).await;
    for limit in [1_000, 45, 7, 1] {
        let rows = ledger.rows(limit).await;
        check_order(&rows);
        assert_eq!((count(&rows, "skipped"), count(&rows, "triggered")), (120, 1), "by {limit}");
        let place = rows.iter().position(|row| row["outcome"] == "triggered").unwrap();
        assert_eq!(place, 60, "as much was skipped after it as before it");
    }
}

#[tokio::test]
async fn what_is_backfilled_stands_at_its_instants_within_a_range() {
    let ledger = Ledger::new().await;
    ledger.edit(HOUR_MS + 1, ScheduleCommand::Trigger).await;
    ledger.edit(2 * HOUR_MS, ScheduleCommand::Resume).await;
    ledger.edit(2 * HOUR_MS + 1, ScheduleCommand::Trigger).await;
    let within: Vec<Timestamp> = (30..=40).chain([90, 120]).map(|count| ledger.minute(count)).collect();
    // Below everything, where there is no range any more.
    let before: Vec<Timestamp> = (1..=5).map(|count| ledger.minute(-count).plus_ms(-DAY_MS)).collect();
    ledger.backfill(3 * HOUR_MS, &within).await;
    ledger.backfill(3 * HOUR_MS + 1, &before).await;
    let all = ledger.rows(1_000).await;
    check_order(&all);
    assert_eq!((count(&all, "skipped"), count(&all, "triggered"), count(&all, "backfilled")), (120, 2, 18));
    for at in within {
        assert_eq!(outcomes(&all, at), ["backfilled", "skipped"], "the latest decision first");
    }
    for limit in [100, 11, 3, 1] {
        let rows = ledger.rows(limit).await;
        let place = |row: &Value| (row["fire_at"].clone(), row["outcome"].clone());
        assert_eq!(rows.iter().map(place).collect::<Vec<_>>(), all.iter().map(place).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_is_decided_between_two_pages_neither_hides_nor_repeats_anything() {
    let ledger = Ledger::new().await;
    ledger.edit(2 * HOUR_MS, ScheduleCommand::Resume).await;
    ledger.backfill(3 * HOUR_MS, &[ledger.minute(60)]).await;
    let path = format!("/v1/schedules/{}/firings", ledger.id);
    let first = ledger.api.get(&format!("{path}?limit=40")).await.json();
    let cursor = first["next_cursor"].as_str().unwrap().to_owned();
    // One behind where the page ended, and one ahead of it.
    ledger.backfill(4 * HOUR_MS, &[ledger.minute(100), ledger.minute(10)]).await;
    let rest = ledger.api.get(&format!("{path}?limit=1000&cursor={cursor}")).await.json();
    let rows: Vec<Value> =
        [&first, &rest].iter().flat_map(|page| page["items"].as_array().unwrap().clone()).collect();
    check_order(&rows);
    assert_eq!((count(&rows, "skipped"), count(&rows, "backfilled")), (120, 2));
    assert_eq!(outcomes(&rows, ledger.minute(10)), ["backfilled", "skipped"]);
}
