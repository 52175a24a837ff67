//! `GET /v1/overview`: what one looks at first, cheaply. The tenant's jobs by state and what of them waits where;
//! how many of them come and go; of the server as a whole, how late jobs start. Nothing is looked for in the store: its
//! cost does not depend on the number of jobs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::job::State as JobState;
use tidewheel_core::limits::MINUTE_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::{Timestamp, format_duration};
use tidewheel_store::Counts;

use super::answer;
use super::app::App;
use super::caller::Caller;
use super::problem::Problem;
use crate::engine::LaneView;
use crate::metrics::{Doings, LagCounts, SAMPLE_MS, Sample};

/// Over how long lags are looked at.
const LAG_WINDOW_MS: i64 = 5 * MINUTE_MS;
/// Over how long rates are averaged.
const RATE_WINDOW_MS: i64 = MINUTE_MS;
/// Lanes that are shown, the deepest.
const LANES_COUNT_MAX: usize = 200;
/// Tenants that are shown to an admin, those with the most jobs waiting.
const TENANTS_COUNT_MAX: usize = 20;
/// About what one sample takes.
const SAMPLE_BYTES: usize = 256;

/// Name and thousandths.
const PERCENTILES: [(&str, u64); 4] = [("p50_ms", 500), ("p95_ms", 950), ("p99_ms", 990), ("p999_ms", 999)];

/// Answers with the overview.
pub(super) async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let engine = &app.engine;
    let counts = engine.store().counts(Some(&caller.tenant)).await?;
    let tenants = if caller.identity.is_admin() {
        Some(engine.store().busiest(TENANTS_COUNT_MAX).await?)
    } else {
        None
    };
    let lanes = engine.lanes(caller.tenant.clone(), LANES_COUNT_MAX).await;
    let now = app.now();
    // Whoever may act for everybody, and names nobody, looks at the server.
    let is_of_all = caller.identity.is_admin() && caller.named.is_none();
    let mut samples = vec![at_start(engine.started_at())];
    samples.extend(engine.metrics().recent());
    let latest = engine.metrics().sample(now);
    let mut out = JsonWriter::with_capacity(SAMPLE_BYTES * (samples.len() + 4));
    out.object(|out| {
        out.key("now").plain(now);
        out.key("jobs").object(|out| {
            for state in JobState::ALL {
                out.key(state.as_str()).number(counts.of(state));
            }
        });
        out.key("lag").object(|out| lag(out, &latest, &before(&samples, now, LAG_WINDOW_MS)));
        out.key("rates").object(|out| {
            out.key("window").text(&format_duration(RATE_WINDOW_MS));
            if is_of_all {
                rates(out, &latest, &before(&samples, now, RATE_WINDOW_MS));
            } else {
                let span = (engine.started_at(), now);
                own_rates(out, engine.metrics().doings(&caller.tenant, span, RATE_WINDOW_MS));
            }
        });
        out.key("memory").object(|out| {
            let [held, in_flight, leases] = engine.metrics().memory();
            out.key("held").number(held);
            out.key("in_flight").number(in_flight);
            out.key("leases").number(leases);
        });
        out.key("backlog_age_ms").number(u64::try_from(engine.lag_ms()).unwrap_or(0));
        out.key("lanes").array(|out| lanes.iter().for_each(|view| lane(out, view)));
        out.key("tenants");
        match &tenants {
            Some(tenants) => out.array(|out| tenants.iter().for_each(|of| tenant(out, &app, of))),
            None => out.null(),
        }
        out.key("history").array(|out| history(out, &samples));
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// Nothing was counted yet.
fn at_start(at: Timestamp) -> Sample {
    let lag = LagCounts::default();
    Sample { at, submitted: 0, succeeded: 0, failed: 0, lag, waiting: 0, running: 0, dead: 0 }
}

/// The last sample that is at least so old, otherwise the first.
fn before(samples: &[Sample], now: Timestamp, window_ms: i64) -> Sample {
    let old = samples.iter().rfind(|sample| now.since_ms(sample.at) >= window_ms);
    old.or(samples.first()).copied().unwrap_or_else(|| at_start(now))
}

fn lag(out: &mut JsonWriter, latest: &Sample, earlier: &Sample) {
    let added = latest.lag.since(&earlier.lag);
    out.key("window").text(&format_duration(LAG_WINDOW_MS));
    out.key("count").number(added.total());
    for (name, per_mille) in PERCENTILES {
        out.key(name);
        millis(out, added.per_mille_ms(per_mille));
    }
}

fn millis(out: &mut JsonWriter, ms: Option<f64>) {
    match ms {
        Some(ms) => out.decimal((ms * 10.0).round() / 10.0),
        None => out.null(),
    }
}

fn rates(out: &mut JsonWriter, latest: &Sample, earlier: &Sample) {
    let doings = Doings {
        submitted: latest.submitted.saturating_sub(earlier.submitted),
        started: latest.lag.total().saturating_sub(earlier.lag.total()),
        succeeded: latest.succeeded.saturating_sub(earlier.succeeded),
        failed: latest.failed.saturating_sub(earlier.failed),
    };
    own_rates(out, (doings, latest.at.since_ms(earlier.at).max(1)));
}

/// So many over so many milliseconds.
fn own_rates(out: &mut JsonWriter, (doings, ms): (Doings, i64)) {
    let mut rate = |name: &str, count: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let per_s = count as f64 * 1_000.0 / ms as f64;
        out.key(name).decimal((per_s * 100.0).round() / 100.0);
    };
    rate("submitted", doings.submitted);
    rate("started", doings.started);
    rate("succeeded", doings.succeeded);
    rate("failed", doings.failed);
}

fn lane(out: &mut JsonWriter, view: &LaneView) {
    out.object(|out| {
        out.key("kind").text(if view.is_queue { "queue" } else { "push" });
        out.key("name").text(&view.name);
        out.key("depth").count(view.depth);
        out.key("more").boolean(view.more);
        out.key("oldest_at").plain(view.oldest);
        out.key("waits_for").text_or_null(view.reason);
    });
}

fn tenant(out: &mut JsonWriter, app: &App, (tenant, counts): &(Tenant, Counts)) {
    out.object(|out| {
        out.key("id").text(tenant.as_str());
        out.key("waiting").number(counts.waiting());
        out.key("running").number(counts.of(JobState::Running));
        out.key("dead").number(counts.of(JobState::Dead));
        out.key("refused").number(app.admission.refused(tenant));
    });
}

fn history(out: &mut JsonWriter, samples: &[Sample]) {
    for (earlier, later) in samples.iter().zip(samples.iter().skip(1)) {
        // After a long pause, or of a moment after the start, there is nothing to say of the time between.
        let between_ms = later.at.since_ms(earlier.at);
        if !(SAMPLE_MS / 2..=2 * SAMPLE_MS).contains(&between_ms) {
            continue;
        }
        let added = later.lag.since(&earlier.lag);
        out.object(|out| {
            out.key("at").plain(later.at);
            rates(out, later, earlier);
            out.key("waiting").number(later.waiting);
            out.key("running").number(later.running);
            out.key("dead").number(later.dead);
            out.key("lag_p50_ms");
            millis(out, added.per_mille_ms(500));
            out.key("lag_p99_ms");
            millis(out, added.per_mille_ms(990));
        });
    }
}
