//! The calls that `plan`, `apply`, `export` and the imports share.

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidewheel_api::client::{Call, Client, Error};
use tidewheel_core::limits::PAGE_COUNT_MAX;

use super::file::Entry;
use crate::bulk;
use crate::document::Document;
use crate::failure::Failure;
use crate::submission::Body;

/// Fires shown before and after a change.
const FIRES_COUNT: &str = "3";
/// What `preview` takes of a schedule.
const PREVIEWED: [&str; 8] =
    ["cron_expr", "every", "timezone", "start_at", "end_at", "window", "dst", "exclude"];

#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// Hands every schedule of the tenant to `each`, page by page.
pub(super) async fn each_schedule(client: &Client, mut each: impl FnMut(Document)) -> Result<(), Failure> {
    let mut cursor: Option<String> = None;
    loop {
        let limit = PAGE_COUNT_MAX.to_string();
        let mut call = Call::get(&["schedules"]).query("payload", "true").query("limit", &limit);
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page: Page = client.send(&call).await?.json()?;
        for item in page.items {
            if let Ok(schedule) = serde_json::from_str(item.get()) {
                each(schedule);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// The next fires of a schedule that exists.
pub(super) async fn next_fires(client: &Client, id: &str) -> Result<Vec<String>, Error> {
    let call = Call::get(&["schedules", id, "next"]).query("count", FIRES_COUNT);
    Ok(fires(&client.send(&call).await?.json()?))
}

/// The first fires of a schedule as it is wanted: a new one, or the one of that id as it would be changed.
pub(super) async fn previewed_fires(
    client: &Client,
    entry: &Entry,
    id: Option<&str>,
) -> Result<Vec<String>, Error> {
    let mut body = Body::default();
    body.text("schedule", id);
    for (name, value) in PREVIEWED.iter().filter_map(|name| Some((name, entry.raw(name)?))) {
        body.json(name, value);
    }
    body.json("count", FIRES_COUNT);
    // What would be refused when it is put is to be told now.
    let call = Call::post(&["schedules", "preview"]).query("limits", "true").json(body.finish()).repeatable();
    Ok(fires(&client.send(&call).await?.json()?))
}

fn fires(answer: &Document) -> Vec<String> {
    answer.list("fires").unwrap_or_default().iter().filter_map(|fire| fire.text("fire_at")).collect()
}

/// Creates the schedule of that name, or makes it what is wanted.
pub(super) async fn put(client: &Client, entry: &Entry) -> Result<Document, Error> {
    let path = ["schedules", "by-name", &entry.name];
    // The same definition twice is like once.
    let call = Call::new(Method::PUT, &path).json(entry.body()).repeatable();
    client.send(&call).await?.json()
}

/// Removes a schedule.
pub(super) async fn delete(client: &Client, id: &str) -> Result<(), Error> {
    client.send(&bulk::once(Call::delete(&["schedules", id]))).await.map(drop)
}
