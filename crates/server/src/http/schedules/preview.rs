//! When a schedule would fire. Nothing is created, so no limit on how often applies unless it is asked for.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::{At, Faults};
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::schedule_request::PreviewRequest;
use tidewheel_api::wire::schedule_write;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::schedule::{Timing, anchored, check_beat, check_interval, nominals, window_offset_ms};
use tidewheel_core::time::Timestamp;

use super::check::Checker;
use super::read::{find, read_query};
use crate::http::answer;
use crate::http::app::App;
use crate::http::body::Text;
use crate::http::caller::Caller;
use crate::http::jobs::change::whole;
use crate::http::problem::{Problem, refuse_faults};

/// `POST /v1/schedules/preview`
pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
    body: Text,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PREVIEW)?;
    let now = app.now();
    let request = whole(|faults| PreviewRequest::read(&body.text, now, app.engine.zones(), faults))?;
    let mut faults = Faults::default();
    let mut checker = Checker::new(&app, &caller, now);
    let calendar =
        checker.calendar(&request.rule, request.excludes_by_object, &At::ROOT, &mut faults).await?;
    refuse_faults(faults)?;
    let before = match request.schedule {
        Some(id) => Some(find(&app, &caller.tenant, id).await?.definition),
        None => None,
    };
    let rule = anchored(request.rule, before.as_ref().map(|before| &*before.rule), now);
    // What is made or changed now does not fire before now. A rule whose instants do not depend on that may be tried on any time.
    let from = match rule.timing {
        Timing::Every { .. } if rule.start_at.is_none() => request.from.max(now),
        Timing::Every { .. } | Timing::Cron(_) => request.from,
    };
    let fires = nominals(&rule, calendar.as_deref(), from, Timestamp::MAX);
    let fires: Vec<_> = fires.take(request.count).collect();
    let beat = if fires.is_empty() { check_beat(&rule, now) } else { Ok(()) };
    // A rule that is kept is not held against whoever keeps it.
    let keeps_rule = before.as_ref().is_some_and(|before| before.rule == rule);
    let is_limited = query.limits && !keeps_rule;
    let interval =
        if is_limited { check_interval(&rule, app.min_interval_ms(&caller.tenant)) } else { Ok(()) };
    let mut faults = Faults::default();
    for fault in [beat, interval].into_iter().filter_map(Result::err) {
        checker.note(fault, &At::ROOT, &mut faults);
    }
    refuse_faults(faults)?;
    let window_ms = request.window_ms.or(before.map(|before| before.window_ms)).unwrap_or(0);
    let mut out = JsonWriter::with_capacity(128 * request.count + 64);
    out.object(|out| {
        out.key("fires").array(|out| {
            for fire in fires {
                // The place in a window is the schedule's own: of one that is not there yet, it is not known.
                let place = |id| window_offset_ms(id, fire.fire_at, window_ms);
                let run_at = fire.fire_at.plus_ms(request.schedule.map_or(0, place));
                schedule_write::fire(out, fire.fire_at, run_at, fire.note);
            }
        });
    });
    Ok(answer::json(StatusCode::OK, out))
}
