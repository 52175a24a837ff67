//! What a caller asks for, over one connection, one call after the other: so the order of everything is the same in every run.

use anyhow::Context;
use serde_json::Value;
use tidewheel_api::client::{Call, Client};
use tidewheel_api::proto::v1::SubmitRequest;
use tidewheel_api::proto::v1::jobs_client::JobsClient;
use tidewheel_core::time::Timestamp;
use tonic::transport::Endpoint;

use crate::costs::Costs;
use crate::jobs::{self, BATCH_COUNT, Goes};
use crate::site::{Site, Subject, ask};
use crate::stopwatch::wall_now;

/// Before anything is counted, so that what is made once is there.
const WARM_COUNT: u64 = 50;
const SINGLES_COUNT: u64 = 400;
const BATCHES_COUNT: u64 = 5;
const READS_COUNT: u64 = 400;
/// The jobs that are read, and listed.
const KEPT_COUNT: u64 = 1_000;
const PAGE_COUNT: u64 = 50;
const ROUNDS_COUNT: u64 = 5;
/// No job falls due while anything is counted.
const LATER_MS: i64 = 3 * 60 * 60 * 1_000;

fn later() -> Timestamp {
    wall_now().plus_ms(LATER_MS)
}

pub(super) async fn submit_http(subject: &Subject) -> anyhow::Result<Costs> {
    let mut site = Site::serve(subject).await?;
    let client = site.client()?;
    let calls = |count| (0..count).map(|_| Call::post(&["jobs"]).json(jobs::json(Goes::ToQueue, later())));
    send_all(&client, calls(WARM_COUNT)).await?;
    site.begin().await?;
    send_all(&client, calls(SINGLES_COUNT)).await?;
    let costs = site.end(SINGLES_COUNT).await?;
    site.stop().await?;
    Ok(costs)
}

async fn send_all(client: &Client, calls: impl Iterator<Item = Call>) -> anyhow::Result<()> {
    for call in calls {
        client.send(&call).await?;
    }
    Ok(())
}

pub(super) async fn submit_grpc(subject: &Subject) -> anyhow::Result<Costs> {
    let mut site = Site::serve(subject).await?;
    let channel = Endpoint::new(site.url())?.connect().await?;
    let mut client = JobsClient::new(channel);
    for _ in 0..WARM_COUNT {
        client.submit(SubmitRequest { job: Some(jobs::message(later())) }).await?;
    }
    site.begin().await?;
    for _ in 0..SINGLES_COUNT {
        client.submit(SubmitRequest { job: Some(jobs::message(later())) }).await?;
    }
    let costs = site.end(SINGLES_COUNT).await?;
    site.stop().await?;
    Ok(costs)
}

pub(super) async fn submit_batch(subject: &Subject) -> anyhow::Result<Costs> {
    let mut site = Site::serve(subject).await?;
    let client = site.client()?;
    let batch = || batch_call(jobs::json_batch(Goes::ToQueue, later(), BATCH_COUNT));
    send_all(&client, std::iter::once(batch())).await?;
    site.begin().await?;
    send_all(&client, (0..BATCHES_COUNT).map(|_| batch())).await?;
    let costs = site.end(BATCHES_COUNT * BATCH_COUNT).await?;
    site.stop().await?;
    Ok(costs)
}

/// A submission of many.
pub(super) fn batch_call(body: String) -> Call {
    Call::post(&["jobs", "batch"]).json(body)
}

pub(super) async fn read_job(subject: &Subject) -> anyhow::Result<Costs> {
    let mut site = Site::serve(subject).await?;
    let client = site.client()?;
    let body = jobs::json_batch(Goes::ToQueue, later(), KEPT_COUNT);
    let stored = ask(&client, &batch_call(body)).await?;
    let stored = stored.get("jobs").and_then(Value::as_array).context("an answer without jobs")?;
    let ids: Vec<&str> = stored.iter().filter_map(|job| job.get("id")?.as_str()).collect();
    let calls = |count| ids.iter().cycle().take(count).map(|id| Call::get(&["jobs", id]));
    send_all(&client, calls(usize::try_from(WARM_COUNT)?)).await?;
    site.begin().await?;
    send_all(&client, calls(usize::try_from(READS_COUNT)?)).await?;
    let costs = site.end(READS_COUNT).await?;
    site.stop().await?;
    Ok(costs)
}

pub(super) async fn list_page(subject: &Subject) -> anyhow::Result<Costs> {
    let mut site = Site::serve(subject).await?;
    let client = site.client()?;
    let body = jobs::json_batch(Goes::ToQueue, later(), KEPT_COUNT);
    send_all(&client, std::iter::once(batch_call(body))).await?;
    walk(&client).await?;
    site.begin().await?;
    let mut pages = 0;
    for _ in 0..ROUNDS_COUNT {
        pages += walk(&client).await?;
    }
    let costs = site.end(pages).await?;
    site.stop().await?;
    Ok(costs)
}

/// Reads the whole list; how many pages it took.
async fn walk(client: &Client) -> anyhow::Result<u64> {
    let (mut pages, mut cursor): (u64, Option<String>) = (0, None);
    loop {
        let mut call = Call::get(&["jobs"]).query("limit", &PAGE_COUNT.to_string());
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page = ask(client, &call).await?;
        pages += 1;
        cursor = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            return Ok(pages);
        }
    }
}
