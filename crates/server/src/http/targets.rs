//! `GET /v1/targets`: the hosts at which a tenant's pushes fail, and how their breakers stand.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::write::JsonWriter;

use super::answer;
use super::app::App;
use super::caller::Caller;
use super::problem::Problem;
use super::schedules::read::read_query;
use crate::engine::BreakerView;

/// Answers with a page, by host.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let breakers = app.engine.breakers(caller.tenant).await;
    let after = query.cursor.as_deref();
    let mut left = breakers.iter().filter(|breaker| after.is_none_or(|after| *breaker.host > *after));
    let mut items = JsonWriter::with_capacity(1_024);
    let mut last = None;
    for breaker in left.by_ref().take(query.limit) {
        write(&mut items, breaker);
        last = Some(&*breaker.host);
    }
    let next = left.next().and(last);
    Ok(answer::list(items, next))
}

fn write(out: &mut JsonWriter, breaker: &BreakerView) {
    out.object(|out| {
        out.key("host").text(&breaker.host);
        out.key("state").text(breaker.state.as_str());
        out.key("since").plain(breaker.since);
        out.key("failures").number(breaker.failures);
        out.key("reason").text(&breaker.reason);
        out.key("next_probe_at").time(breaker.next_probe_at);
    });
}
