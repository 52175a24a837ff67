//! How the server is: for load balancers, and for those who watch it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_store::{Error, Health};

use super::app::App;
use super::problem::Problem;
use super::{answer, databases};

const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// `GET /healthz`: the process is up.
pub(super) async fn healthz() -> Response {
    status("ok")
}

/// `GET /readyz`: it takes work. Of several databases one is enough for that; the answer says how each is.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    app.check_open()?;
    match app.engine.store().health() {
        Health::Ready => {
            let mut out = JsonWriter::with_capacity(128);
            out.object(|out| {
                out.key("status").text("ready");
                databases::write(out, &**app.engine.store());
            });
            Ok(answer::json(StatusCode::OK, out))
        }
        Health::Full(reason) => Err(Error::Full(reason).into()),
        Health::Away(reason) => Err(Error::Unavailable(reason).into()),
        Health::ReadOnly(reason) => {
            Err(Problem::new(Code::StoreReadOnly, format!("the store takes no writes: {reason}")))
        }
    }
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let metrics = app.engine.metrics();
    metrics.set_writable(matches!(app.engine.store().health(), Health::Ready));
    metrics.set_databases(&app.engine.store().databases());
    let mut response = Response::new(metrics.render().into());
    response.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
    response
}

fn status(name: &str) -> Response {
    let mut out = JsonWriter::with_capacity(32);
    out.object(|out| out.key("status").text(name));
    answer::json(StatusCode::OK, out)
}
