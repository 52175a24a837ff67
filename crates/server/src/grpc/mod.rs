//! The gRPC API, on the port of the HTTP API.
//!
//! | file | what it holds |
//! |---|---|
//! | `status` | every error, as a gRPC status with the stable code beside it |
//! | `instant` | times and durations |
//! | `bridge` | calls of the HTTP API from within, for what mirrors it |
//! | `jobs`, `submit_stream`, `schedules`, `dead_letters`, `calendars` | `tidewheel.v1.Jobs`, `Schedules`, `DeadLetters` and `Calendars` |
//! | `worker` | `tidewheel.v1.Worker`: pulling over one stream |
//! | `health` | `grpc.health.v1.Health`: whether the server takes work |
//! | `dispatcher` | `database.scheduler.v1.SchedulerDispatcher`: claiming and reporting in two calls |

mod bridge;
mod calendars;
mod dead_letters;
mod dispatcher;
mod health;
mod instant;
mod jobs;
mod schedules;
mod status;
mod submit_stream;
mod worker;

use std::sync::Arc;

use axum::Router;
use axum::routing::any_service;
use tidewheel_api::proto::DESCRIPTORS;
use tidewheel_api::proto::dispatcher::scheduler_dispatcher_server::SchedulerDispatcherServer;
use tidewheel_api::proto::v1::calendars_server::CalendarsServer;
use tidewheel_api::proto::v1::dead_letters_server::DeadLettersServer;
use tidewheel_api::proto::v1::jobs_server::JobsServer;
use tidewheel_api::proto::v1::schedules_server::SchedulesServer;
use tidewheel_api::proto::v1::worker_server::WorkerServer;
use tidewheel_core::limits::GRPC_MESSAGE_BYTES_MAX;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder as Reflection;

use crate::access::{Access, guard_call};
use crate::engine::Engine;
use crate::http::Direct;

/// Adds every service to the routes of the HTTP API.
pub(crate) fn add(
    router: Router,
    direct: Option<Arc<Direct>>,
    engine: &Engine,
    access: &Arc<Access>,
) -> Router {
    let worker = WorkerServer::new(worker::WorkerService::new(engine.clone(), Arc::clone(access)))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let dispatcher = SchedulerDispatcherServer::new(dispatcher::DispatcherService::new(engine.clone()))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let bridge = bridge::Bridge::new(direct, router.clone());
    let jobs = JobsServer::new(jobs::JobsService::new(bridge.clone()))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let schedules = SchedulesServer::new(schedules::SchedulesService::new(bridge.clone()))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let dead_letters = DeadLettersServer::new(dead_letters::DeadLettersService::new(bridge.clone()))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let calendars = CalendarsServer::new(calendars::CalendarsService::new(bridge))
        .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let services = vec![
        name_of(&worker),
        name_of(&jobs),
        name_of(&schedules),
        name_of(&dead_letters),
        name_of(&calendars),
        name_of(&dispatcher),
    ];
    let router = serve(router, access, worker);
    let router = serve(router, access, jobs);
    let router = serve(router, access, schedules);
    let router = serve(router, access, dead_letters);
    let router = serve(router, access, calendars);
    let router = serve(router, access, dispatcher);
    let health = health::HealthService::new(engine.clone(), services);
    describe(serve(router, access, HealthServer::new(health)), access)
}

/// Adds reflection, in both versions that clients ask for.
fn describe(router: Router, access: &Arc<Access>) -> Router {
    let described = || {
        Reflection::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match (described().build_v1(), described().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => serve(serve(router, access, v1), access, v1alpha),
        (Err(fault), _) | (_, Err(fault)) => {
            tracing::error!(error = %fault, "gRPC reflection is not served: the descriptors cannot be read");
            router
        }
    }
}

const fn name_of<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}

/// Adds a service, for whoever may call its methods.
fn serve<S>(router: Router, access: &Arc<Access>, service: S) -> Router
where
    S: tower_service::Service<axum::extract::Request, Error = std::convert::Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Response: axum::response::IntoResponse,
    S::Future: Send + 'static,
{
    let access = Arc::clone(access);
    let guard =
        axum::middleware::from_fn(move |request, next| guard_call(Arc::clone(&access), request, next));
    router.route(&format!("/{}/{{*method}}", S::NAME), any_service(service).layer(guard))
}
