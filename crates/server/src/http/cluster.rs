//! `GET /v1/cluster`: the nodes, which shards each has and since which epoch, how far behind they are, and the
//! time zone database they go by. A server on its own is a cluster of one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::zones::Zones;

use super::answer;
use super::app::App;
use crate::engine::Engine;

/// The one node of a store that one process has to itself.
const ONLY_NODE: &str = "local";
/// What stands for the folder of a database that came with the program.
const BUNDLED: &str = "bundled";

/// Answers with the cluster as this node sees it.
pub(super) async fn show(State(app): State<Arc<App>>) -> Response {
    let engine = &app.engine;
    let mut out = JsonWriter::with_capacity(512);
    out.object(|out| {
        out.key("store").text(engine.store().kind());
        out.key("shards").number(engine.store().layout().shards);
        out.key("lag_ms").number(lag_ms(engine));
        out.key("tz_database").object(|out| tz_database(out, engine.zones()));
        out.key("nodes").array(|out| node(out, engine));
    });
    answer::json(StatusCode::OK, out)
}

fn node(out: &mut JsonWriter, engine: &Engine) {
    let shards = engine.store().layout().shards;
    out.object(|out| {
        out.key("id").text(ONLY_NODE);
        out.key("version").text(env!("CARGO_PKG_VERSION"));
        out.key("started_at").time(Some(engine.started_at()));
        out.key("state").text(if engine.is_draining() { "draining" } else { "serving" });
        out.key("shards").number(shards);
        out.key("leases").array(|out| {
            out.object(|out| {
                out.key("first_shard").number(0_u64);
                out.key("last_shard").number(shards.saturating_sub(1));
                out.key("epoch").number(engine.epoch());
            });
        });
        out.key("lag_ms").number(lag_ms(engine));
        out.key("tz_database").object(|out| tz_database(out, engine.zones()));
    });
}

fn tz_database(out: &mut JsonWriter, zones: &Zones) {
    out.key("version").text(zones.version());
    out.key("source").text(zones.folder().unwrap_or(BUNDLED));
}

fn lag_ms(engine: &Engine) -> u64 {
    u64::try_from(engine.lag_ms()).unwrap_or(0)
}
