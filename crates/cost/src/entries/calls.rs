//! What a caller asks for, over one connection, one call after the other: so the order of everything is the same in every run.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tidewheel_api::client::{Call, Client};
use tidewheel_api::proto::v1::SubmitRequest;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_core::time::Timestamp;
use tonic::transport::Endpoint;

use crate::costs::{Costs, number};
use crate::jobs::{self, BATCH_COUNT, Goes};
use crate::site::{Site, ask};
use crate::stopwatch::{Stopwatch, pause, wall_now};

/// Calls before anything is counted, so that what is made once is there.
const WARM_COUNT: u64 = 20;
const SINGLES_COUNT: u64 = 200;
const BATCHES_COUNT: u64 = 4;
const READS_COUNT: u64 = 200;
/// The jobs that are read, and listed.
const KEPT_COUNT: u64 = 500;
const PAGE_COUNT: u64 = 50;
const PAGES_COUNT: u64 = 30;
/// No job falls due while anything is counted.
const LATER_MS: i64 = 3 * 60 * 60 * 1_000;
/// A calm window is half as long as the busy one, and no longer than this.
const CALM_SECONDS_MAX: f64 = 30.0;
/// Between two calls of a calm window: a server notes every second who called.
const CALM_PAUSE: Duration = Duration::from_millis(100);
/// How often calls come in it, as a part of how often they come in the busy one.
const CALM_PART: f64 = 0.1;
/// With fewer of them the two windows are too much alike to tell what is whose.
const JOBS_PER_SECOND_MIN: f64 = 1.0;

fn later() -> Timestamp {
    wall_now().plus_ms(LATER_MS)
}

/// Counts calls: one after the other, and a few with pauses between them.
async fn counted(
    site: &mut Site,
    count: u64,
    jobs_of_one: u64,
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Costs> {
    for _ in 0..WARM_COUNT.min(count) {
        call().await?;
    }
    site.begin().await?;
    for _ in 0..count {
        call().await?;
    }
    let busy = site.end(count * jobs_of_one).await?;
    ensure!(
        number(count * jobs_of_one) / busy.seconds > JOBS_PER_SECOND_MIN,
        "this machine is too busy: {count} calls took {:.0} s, and what a server does every second would count for \
         every call",
        busy.seconds
    );
    site.begin().await?;
    let (watch, mut done) = (Stopwatch::start(), 0_u64);
    let length = (busy.seconds / 2.0).min(CALM_SECONDS_MAX);
    while watch.elapsed().as_secs_f64() < length {
        let due = number(count) * CALM_PART * watch.elapsed().as_secs_f64() / busy.seconds;
        if number(done) <= due {
            call().await?;
            done += 1;
        }
        pause(CALM_PAUSE).await;
    }
    let calm = site.end(done * jobs_of_one).await?;
    Ok(busy.per_job(&calm))
}

pub(super) async fn submit_http(site: &mut Site) -> anyhow::Result<Costs> {
    let client = site.client(Some("submit-http"))?;
    counted(site, SINGLES_COUNT, 1, async || {
        client.send(&Call::post(&["jobs"]).json(jobs::json(Goes::ToQueue, later()))).await?;
        Ok(())
    })
    .await
}

pub(super) async fn submit_grpc(site: &mut Site) -> anyhow::Result<Costs> {
    let client = JobsClient::new(Endpoint::new(site.url())?.connect().await?);
    counted(site, SINGLES_COUNT, 1, async || {
        let mut request = tonic::Request::new(SubmitRequest { job: Some(jobs::message(later())) });
        request.metadata_mut().insert("tidewheel-tenant", "submit-grpc".parse()?);
        client.clone().submit(request).await?;
        Ok(())
    })
    .await
}

pub(super) async fn submit_batch(site: &mut Site) -> anyhow::Result<Costs> {
    let client = site.client(Some("submit-batch"))?;
    counted(site, BATCHES_COUNT, BATCH_COUNT, async || {
        client.send(&batch_call(jobs::json_batch(Goes::ToQueue, later(), BATCH_COUNT))).await?;
        Ok(())
    })
    .await
}

/// A submission of many.
pub(super) fn batch_call(body: String) -> Call {
    Call::post(&["jobs", "batch"]).json(body)
}

pub(super) async fn read_job(site: &mut Site) -> anyhow::Result<Costs> {
    let client = site.client(Some("job-read"))?;
    let stored = ask(&client, &batch_call(jobs::json_batch(Goes::ToQueue, later(), KEPT_COUNT))).await?;
    let stored = stored.get("jobs").and_then(Value::as_array).context("an answer without jobs")?;
    let mut ids = stored.iter().filter_map(|job| job.get("id")?.as_str()).cycle();
    counted(site, READS_COUNT, 1, async || {
        let id = ids.next().context("an answer without ids")?;
        client.send(&Call::get(&["jobs", id])).await?;
        Ok(())
    })
    .await
}

pub(super) async fn list_page(site: &mut Site) -> anyhow::Result<Costs> {
    let client = site.client(Some("job-page"))?;
    client.send(&batch_call(jobs::json_batch(Goes::ToQueue, later(), KEPT_COUNT))).await?;
    let mut cursor = None;
    counted(site, PAGES_COUNT, 1, async || {
        cursor = page(&client, cursor.take()).await?;
        Ok(())
    })
    .await
}

/// Reads a page; where the next one begins. The last of the list is a full one.
async fn page(client: &Client, cursor: Option<String>) -> anyhow::Result<Option<String>> {
    let mut call = Call::get(&["jobs"]).query("limit", &PAGE_COUNT.to_string());
    if let Some(cursor) = &cursor {
        call = call.query("cursor", cursor);
    }
    let page = ask(client, &call).await?;
    let items = page.get("items").and_then(Value::as_array).context("a page without items")?;
    let next = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
    // An empty one at the end is not what is meant by a page.
    Ok(next.filter(|_| items.len() as u64 == PAGE_COUNT))
}
