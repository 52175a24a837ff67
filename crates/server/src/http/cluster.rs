//! `GET /v1/cluster`: the nodes, which shards each has and since which epoch, how far behind they are, the databases
//! everything is in, and the time zone database they go by. A server on its own is a cluster of one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_store::{Error, Held, ShardLease};

use super::Problem;
use super::app::App;
use super::{answer, databases};
use crate::engine::Engine;

/// The one node of a store that one process has to itself.
const ONLY_NODE: &str = "local";
/// What stands for the folder of a database that came with the program.
const BUNDLED: &str = "bundled";

/// A node, as it is shown.
struct Shown {
    id: Arc<str>,
    address: Option<Arc<str>>,
    version: Arc<str>,
    started_at: Timestamp,
    state: &'static str,
    held: Vec<Held>,
    is_this: bool,
}

/// Answers with the cluster as this node sees it.
pub(super) async fn show(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let engine = &app.engine;
    let nodes = nodes(engine).await?;
    let mut out = JsonWriter::with_capacity(512);
    out.object(|out| {
        out.key("store").text(engine.store().kind());
        out.key("shards").number(engine.store().layout().shards);
        out.key("lag_ms").number(lag_ms(engine));
        databases::write(out, &**engine.store());
        out.key("tz_database").object(|out| tz_database(out, engine.zones()));
        out.key("nodes").array(|out| nodes.iter().for_each(|node| write(out, node, engine)));
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// All nodes; this one first.
async fn nodes(engine: &Engine) -> Result<Vec<Shown>, Error> {
    let state = if engine.is_draining() { "draining" } else { "serving" };
    let this = Shown {
        id: engine.node().map_or_else(|| ONLY_NODE.into(), |node| Arc::clone(&node.id)),
        address: engine.node().map(|node| Arc::clone(&node.address)),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: engine.started_at(),
        state,
        held: engine.held(),
        is_this: true,
    };
    let Some(leases) = engine.store().leases().filter(|_| engine.node().is_some()) else {
        return Ok(vec![this]);
    };
    let now = engine.clock().now();
    // While no database answers, this is still told: by it an operator sees why.
    let (nodes, shards) = match (leases.nodes(now).await, leases.shard_leases(now).await) {
        (Err(error), _) | (_, Err(error)) if error.is_retryable() => {
            tracing::debug!(%error, "the other nodes are not known");
            (Vec::new(), Vec::new())
        }
        (nodes, shards) => (nodes?, shards?),
    };
    let mut shown = vec![this];
    for node in nodes {
        if let Some(this) = shown.first_mut().filter(|this| this.id == node.card.id) {
            // As the other nodes tell it.
            this.started_at = node.started_at;
            continue;
        }
        let is_theirs = |lease: &&ShardLease| lease.node.as_ref() == Some(&node.card.id) && !lease.is_over;
        shown.push(Shown {
            held: shards.iter().filter(is_theirs).map(|lease| lease.held).collect(),
            id: node.card.id,
            address: Some(node.card.address),
            version: node.card.version,
            started_at: node.started_at,
            state: if node.is_alive { "serving" } else { "silent" },
            is_this: false,
        });
    }
    Ok(shown)
}

fn write(out: &mut JsonWriter, node: &Shown, engine: &Engine) {
    out.object(|out| {
        out.key("id").text(&node.id);
        if let Some(address) = &node.address {
            out.key("address").text(address);
        }
        out.key("version").text(&node.version);
        out.key("started_at").time(Some(node.started_at));
        out.key("state").text(node.state);
        out.key("shards").number(u64::try_from(node.held.len()).unwrap_or(0));
        out.key("leases").array(|out| runs(&node.held).into_iter().for_each(|run| write_run(out, run)));
        if node.is_this {
            out.key("lag_ms").number(lag_ms(engine));
            out.key("tz_database").object(|out| tz_database(out, engine.zones()));
        }
    });
}

/// Neighbouring shards of one epoch, as first, last and epoch.
fn runs(held: &[Held]) -> Vec<(u16, u16, u64)> {
    let mut runs: Vec<(u16, u16, u64)> = Vec::new();
    for Held { shard, epoch } in held {
        match runs.last_mut() {
            Some((_, last, of)) if *of == *epoch && last.saturating_add(1) == shard.0 => *last = shard.0,
            Some(_) | None => runs.push((shard.0, shard.0, *epoch)),
        }
    }
    runs
}

fn write_run(out: &mut JsonWriter, (first, last, epoch): (u16, u16, u64)) {
    out.object(|out| {
        out.key("first_shard").number(first);
        out.key("last_shard").number(last);
        out.key("epoch").number(epoch);
    });
}

fn tz_database(out: &mut JsonWriter, zones: &Zones) {
    out.key("version").text(zones.version());
    out.key("source").text(zones.folder().unwrap_or(BUNDLED));
}

fn lag_ms(engine: &Engine) -> u64 {
    u64::try_from(engine.lag_ms()).unwrap_or(0)
}
