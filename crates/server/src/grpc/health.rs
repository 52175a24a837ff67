//! `grpc.health.v1.Health`: whether each service takes work, as `/readyz` says it.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, stream};
use tidewheel_store::Health as StoreHealth;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::engine::Engine;

/// How often a watched status is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The service.
pub(super) struct HealthService {
    engine: Engine,
    services: Vec<&'static str>,
}

impl HealthService {
    /// Speaks for these services, and for the server as a whole.
    pub(super) fn new(engine: Engine, services: Vec<&'static str>) -> Self {
        Self { engine, services }
    }

    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(&service)
    }
}

fn serving(engine: &Engine) -> ServingStatus {
    if engine.is_draining() || engine.store().health() != StoreHealth::Ready {
        ServingStatus::NotServing
    } else {
        ServingStatus::Serving
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !self.knows(&request.get_ref().service) {
            return Err(Status::not_found("there is no such service"));
        }
        Ok(Response::new(response(serving(&self.engine))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = self.knows(&request.get_ref().service);
        let look = move |engine: &Engine| if known { serving(engine) } else { ServingStatus::ServiceUnknown };
        let changes = stream::unfold((self.engine.clone(), None), move |(engine, before)| async move {
            loop {
                let now = look(&engine);
                if before != Some(now) {
                    return Some((Ok(response(now)), (engine, Some(now))));
                }
                engine.clock().sleep(LOOK_EVERY).await;
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
