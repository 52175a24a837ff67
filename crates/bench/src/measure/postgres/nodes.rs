//! Two servers on one database against one, with the jobs of many tenants and two worker processes for both; and how soon a
//! job starts that was submitted to the server that does not have its shard.

use anyhow::Context;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_server::engine::Config;

use super::rounds::{Names, Side, compare};
use super::site::{Shape, Site, stop};
use crate::Bench;
use crate::figures::{Figure, Spread};
use crate::jobs;
use crate::measure::workers::until_handled;
use crate::subject::Subject;
use crate::worker_process::WorkerProcess;

/// Enough that each server has about half of them.
const TENANTS: usize = 64;
const ONE: Shape = Shape { nodes: 1, tenants: TENANTS, workers: 2, all_begin: true, rests: false };
const TWO: Shape = Shape { nodes: 2, ..ONE };

pub(in crate::measure) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let [one, two] = compare(bench, [Side::Fresh(ONE), Side::Fresh(TWO)]).await?;
    let about = |who: &str| format!("{who}, {TENANTS} tenants, 2 worker processes");
    let one = one.figures(&Names {
        submit: "nodes.one.submit",
        drain: "nodes.one.drain",
        about: about("one server"),
    })?;
    let two = two.figures(&Names {
        submit: "nodes.two.submit",
        drain: "nodes.two.drain",
        about: about("two servers"),
    })?;
    let mut figures: Vec<Figure> = one.into_iter().chain(two).collect();
    figures.extend(latency(bench).await?);
    Ok(figures)
}

async fn latency(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let site = Site::make(bench, TWO).await?;
    let nodes = site.start(bench, Config::default()).await?;
    let [other, owner] = nodes.as_slice() else { anyhow::bail!("not two servers") };
    let tenant = tenant_of(owner)?;
    let request = other.submit_one_for(&tenant, &jobs::json(&jobs::on_queue(), None));
    let mut spreads = Vec::new();
    for worker_is_at in [owner, other] {
        let mut worker = WorkerProcess::start_for_all("tell", &worker_is_at.url()).await?;
        worker.go().await?;
        spreads.push(until_handled(bench, other, &request, &mut worker).await?);
        worker.stop().await?;
    }
    stop(nodes).await?;
    site.remove().await?;
    let [at_owner, at_other] = spreads.as_slice() else { anyhow::bail!("not two measurements") };
    let mut figures = told(
        ["nodes.latency.p50", "nodes.latency.p99", "nodes.latency.max"],
        "submit at another server than the job's to handler, idle",
        at_owner,
    );
    figures.extend(told(
        ["nodes.latency.back.p50", "nodes.latency.back.p99", "nodes.latency.back.max"],
        "the same, the worker too being at that other server",
        at_other,
    ));
    Ok(figures)
}

/// A tenant whose jobs that server has.
fn tenant_of(node: &Subject) -> anyhow::Result<Tenant> {
    let engine = node.engine()?;
    let (held, shards) = (engine.held(), engine.store().layout().shards);
    let has = |tenant: &Tenant| held.iter().any(|held| held.shard == Shard::of(tenant, shards));
    TWO.tenants()?.into_iter().find(has).context("a server has the jobs of no tenant")
}

fn told([p50, p99, max]: [&'static str; 3], what: &str, spread: &Spread) -> Vec<Figure> {
    vec![
        Figure::new(p50, format!("{what}: p50"), spread.quantile_ms(0.5), "ms"),
        Figure::new(p99, format!("{what}: p99"), spread.quantile_ms(0.99), "ms"),
        Figure::new(max, format!("{what}: max"), spread.max_ms(), "ms"),
    ]
}
