//! Every route, on one screen. Each of [`v1`] answers under `/v1` and under `/api/v1`.

use std::sync::Arc;

use axum::Router;
use axum::extract::OriginalUri;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use tidewheel_api::wire::fault::Code;

use super::app::{App, HttpParts};
use super::direct::Direct;
use super::large_answer::Answers;
use super::problem::Problem;
use super::service::ApiService;
use super::{
    access_log, attempts, audit, calendars, cluster, dead_letters, docs, health, job_types, jobs, keys,
    large_answer, notifications, overview, queues, schedules, session, targets, tenants, webhook_secrets,
    workers,
};
use crate::access::{Access, Guard, guard_route};

/// A route: its method, its path and who answers.
struct Route {
    method: &'static str,
    path: &'static str,
    handler: MethodRouter<Arc<App>>,
}

fn v1() -> Vec<Route> {
    vec![
        on("post", "/jobs", post(jobs::submit::one)),
        on("post", "/jobs/batch", post(jobs::batch::many)),
        on("get", "/jobs", get(jobs::read::list)),
        on("get", "/jobs/count", get(jobs::count::count)),
        on("get", "/jobs/{id}", get(jobs::read::one)),
        on("patch", "/jobs/{id}", patch(jobs::change::amend)),
        on("get", "/jobs/{id}/attempts", get(jobs::attempts::list)),
        on("get", "/jobs/{id}/explain", get(jobs::explain::explain)),
        on("post", "/jobs/{id}/cancel", post(jobs::change::cancel)),
        on("post", "/jobs/{id}/run", post(jobs::change::run_now)),
        on("post", "/jobs/{id}/retry", post(jobs::change::rerun)),
        on("post", "/jobs/cancel", post(jobs::change::cancel_many)),
        on("post", "/jobs/retry", post(jobs::change::rerun_many)),
        on("post", "/queues/{queue}/take", post(queues::take)),
        on("get", "/workers", get(workers::list)),
        on("post", "/jobs/{id}/heartbeat", post(attempts::heartbeat)),
        on("post", "/jobs/{id}/outcome", post(attempts::outcome)),
        on("post", "/schedules", post(schedules::create::one)),
        on("post", "/schedules/batch", post(schedules::batch::many)),
        on("post", "/schedules/preview", post(schedules::preview::preview)),
        on("get", "/schedules", get(schedules::read::list)),
        on("get", "/schedules/{id}", get(schedules::read::one)),
        on("patch", "/schedules/{id}", patch(schedules::change::amend)),
        on("delete", "/schedules/{id}", delete(schedules::change::delete)),
        on("put", "/schedules/by-name/{name}", put(schedules::change::put)),
        on("post", "/schedules/{id}/pause", post(schedules::change::pause)),
        on("post", "/schedules/{id}/resume", post(schedules::change::resume)),
        on("post", "/schedules/{id}/trigger", post(schedules::change::trigger)),
        on("post", "/schedules/{id}/backfill", post(schedules::backfill::backfill)),
        on("get", "/schedules/{id}/firings", get(schedules::firings::list)),
        on("get", "/schedules/{id}/next", get(schedules::read::next)),
        on("get", "/calendars", get(calendars::list)),
        on("get", "/calendars/{name}", get(calendars::one)),
        on("put", "/calendars/{name}", put(calendars::put)),
        on("delete", "/calendars/{name}", delete(calendars::delete)),
        on("get", "/dead-letters", get(dead_letters::list)),
        on("delete", "/dead-letters", delete(dead_letters::discard_many)),
        on("delete", "/dead-letters/{id}", delete(dead_letters::discard)),
        on("post", "/dead-letters/{id}/replay", post(dead_letters::replay)),
        on("post", "/dead-letters/replay", post(dead_letters::replay_many)),
        on("get", "/cluster", get(cluster::show)),
        on("get", "/tenants", get(tenants::list)),
        on("get", "/tenants/{id}", get(tenants::one)),
        on("put", "/tenants/{id}", put(tenants::put)),
        on("get", "/tenants/{id}/webhook-secrets", get(webhook_secrets::list)),
        on("post", "/tenants/{id}/webhook-secrets", post(webhook_secrets::add)),
        on("get", "/tenants/{id}/webhook-secrets/{secret}", get(webhook_secrets::one)),
        on("delete", "/tenants/{id}/webhook-secrets/{secret}", delete(webhook_secrets::remove)),
        on("get", "/audit", get(audit::list)),
        on("get", "/audit/chains", get(audit::chains)),
        on("post", "/session", post(session::sign_in)),
        on("delete", "/session", delete(session::sign_out)),
        on("get", "/me", get(session::me)),
        on("get", "/types", get(job_types::list)),
        on("get", "/types/{type}", get(job_types::one)),
        on("put", "/types/{type}", put(job_types::put)),
        on("delete", "/types/{type}", delete(job_types::delete)),
        on("get", "/tenants/{id}/notifications", get(notifications::one)),
        on("put", "/tenants/{id}/notifications", put(notifications::put)),
        on("get", "/keys", get(keys::list)),
        on("post", "/keys", post(keys::make)),
        on("get", "/keys/{id}", get(keys::one)),
        on("delete", "/keys/{id}", delete(keys::revoke)),
        on("get", "/overview", get(overview::show)),
        on("get", "/targets", get(targets::list)),
    ]
}

fn unversioned() -> Vec<Route> {
    vec![
        on("get", "/healthz", get(health::healthz)),
        on("get", "/readyz", get(health::readyz)),
        on("get", "/metrics", get(health::metrics)),
        on("get", "/openapi.json", get(docs::openapi)),
        on("get", "/docs", get(docs::page)),
        on("get", "/docs/errors", get(docs::errors)),
    ]
}

fn on(method: &'static str, path: &'static str, handler: MethodRouter<Arc<App>>) -> Route {
    Route { method, path, handler }
}

/// Everything, as the OpenAPI document must name it: method and path.
#[cfg(test)]
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let versioned = v1().into_iter().map(|route| (route.method, format!("/v1{}", route.path)));
    versioned.chain(unversioned().into_iter().map(|route| (route.method, route.path.to_owned()))).collect()
}

/// The whole API, gRPC included.
pub fn router(parts: HttpParts) -> ApiService {
    let app = Arc::new(App::new(parts));
    let mut router = Router::new();
    for route in unversioned() {
        if let Some(handler) = guarded(&app.access, &route, "") {
            router = router.route(route.path, handler);
        }
    }
    for route in v1() {
        let Some(handler) = guarded(&app.access, &route, "/v1") else { continue };
        let handler = if route.method == "get" { counted(&app.answers, handler) } else { handler };
        for prefix in ["/v1", "/api/v1"] {
            router = router.route(&format!("{prefix}{}", route.path), handler.clone());
        }
    }
    let (engine, access) = (app.engine.clone(), Arc::clone(&app.access));
    let (clock, metrics) = (Arc::clone(engine.clock()), Arc::clone(engine.metrics()));
    let answers = Arc::clone(&app.answers);
    let direct = Direct::new(&app);
    let router = crate::pages::add(router);
    let router = router.method_not_allowed_fallback(refuse_method).fallback(refuse_path).with_state(app);
    let router = crate::grpc::add(router, direct.clone(), &engine, &access);
    let logged = axum::middleware::from_fn(move |request, next| {
        let logged = access_log::log(Arc::clone(&clock), Arc::clone(&metrics), request, next);
        let answers = Arc::clone(&answers);
        async move { answers.send(logged.await) }
    });
    ApiService::new(direct, router.layer(logged))
}

/// What answers a route that only looks. A large answer can be refused: nothing was done, and it may be asked for again.
fn counted(answers: &Arc<Answers>, handler: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    let answers = Arc::clone(answers);
    handler.route_layer(axum::middleware::from_fn(move |request, next| {
        large_answer::count(Arc::clone(&answers), request, next)
    }))
}

/// What answers a route, for whoever may call it. One without a rule is not served.
fn guarded(access: &Arc<Access>, route: &Route, prefix: &str) -> Option<MethodRouter<Arc<App>>> {
    let call = format!("{} {prefix}{}", route.method, route.path);
    let Some(guard) = Guard::of(&call) else {
        tracing::error!(call, "a route has no rule for who may call it and is not served");
        return None;
    };
    let access = Arc::clone(access);
    let layer = axum::middleware::from_fn(move |request, next| {
        guard_route(Arc::clone(&access), guard.clone(), request, next)
    });
    Some(route.handler.clone().route_layer(layer))
}

async fn refuse_method(method: http::Method, OriginalUri(uri): OriginalUri) -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("{} does not answer {method}; see the header `Allow`", uri.path()),
    )
}

async fn refuse_path(OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(Code::NotFound, format!("nothing is served at {path}; /docs says what is"))
}
