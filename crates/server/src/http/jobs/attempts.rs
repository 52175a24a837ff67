//! A job's attempts. Only the newest are kept; they are known by their numbers, which rise over all its runs.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::write::{self, JsonWriter};

use super::read::find;
use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, JobPath};
use crate::http::problem::Problem;
use crate::http::schedules::read::{bad_cursor, read_query};

/// `GET /v1/jobs/{id}/attempts`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let after = match &query.cursor {
        Some(cursor) => cursor.parse::<u32>().map_err(|_| bad_cursor())?,
        None => 0,
    };
    let job = find(&app, &caller.tenant, id).await?;
    let mut items = JsonWriter::with_capacity(1_024);
    let next = write::attempts(&mut items, &job, after, query.limit);
    Ok(answer::list(items, next.map(|number| number.to_string()).as_deref()))
}
