//! Connected workers.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::Faults;
use tidewheel_api::wire::worker_query::WorkerQuery;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::time::format_duration;

use super::answer;
use super::app::App;
use super::caller::Caller;
use super::problem::{Problem, refuse_faults};
use crate::engine::{Tenants, WorkerView};

/// About what one worker takes.
const WORKER_BYTES: usize = 512;

/// What a worker is known by.
pub(crate) fn worker_id(id: u64) -> String {
    format!("wrk_{id:016x}")
}

/// `GET /v1/workers`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    let query = WorkerQuery::read(text.as_deref().unwrap_or_default(), &mut faults);
    refuse_faults(faults)?;
    // One more than asked for tells whether there are more.
    let count_max = query.limit + 1;
    let mut workers = if caller.identity.is_admin() {
        app.engine.workers(caller.tenant, query.after, count_max).await
    } else {
        // Those that work for several tenants tell of the others: their names, their queues, how busy they are.
        app.engine.own_workers(caller.tenant, query.after, count_max).await
    };
    let more = workers.len() > query.limit;
    workers.truncate(query.limit);
    let mut out = JsonWriter::with_capacity(WORKER_BYTES * workers.len() + 64);
    out.object(|out| {
        out.key("items").array(|out| workers.iter().for_each(|worker| write(out, worker)));
        out.key("next_cursor");
        match workers.last().filter(|_| more) {
            Some(last) => out.plain(last.place),
            None => out.null(),
        }
    });
    Ok(answer::json(StatusCode::OK, out))
}

fn write(out: &mut JsonWriter, worker: &WorkerView) {
    out.object(|out| {
        out.key("id").text(&worker_id(worker.id));
        out.key("name").text(&worker.name);
        out.key("queues").array(|out| worker.queues.iter().for_each(|queue| out.text(queue)));
        out.key("tenants");
        match worker.interest.tenants() {
            Tenants::All => out.null(),
            Tenants::Only(names) => {
                out.array(|out| names.iter().for_each(|tenant| out.text(tenant.as_str())));
            }
        }
        out.key("types").array(|out| worker.interest.kinds().iter().for_each(|kind| out.text(kind)));
        out.key("min_priority").text(worker.interest.priority_min().as_str());
        out.key("lease").plain(format_duration(worker.lease_ms));
        out.key("connected").boolean(worker.connected);
        out.key("draining").boolean(worker.draining);
        out.key("connected_at").plain(worker.connected_at);
        out.key("last_heard_at").plain(worker.heard_at);
        out.key("credits").count(worker.credits);
        out.key("in_flight").count(worker.in_flight);
    });
}
