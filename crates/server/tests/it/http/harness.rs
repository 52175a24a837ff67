//! The whole API in process: a real engine over the in-memory store, called without sockets.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::zones::Zones;
use tidewheel_server::access::Access;
use tidewheel_server::clock::SystemClock;
use tidewheel_server::directory::Directory;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Reports};
use tidewheel_server::http::{ApiService, HttpLimits, HttpParts, router};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::push::AddressPolicy;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;
use tower_service::Service;

/// Takes pushed jobs and never says anything of them.
struct Silence;

impl Deliver for Silence {
    fn deliver(&self, _: Vec<Arc<Job>>, _: &Reports) {}
    fn abort(&self, _: &JobId) {}
}

async fn engine(store: Arc<dyn Store>, config: Config) -> Engine {
    let parts = Parts {
        store,
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::new(Silence),
        zones: Zones::bundled(),
    };
    Engine::start(parts, config).await.unwrap()
}

/// The key of the first admin of a server that asks for keys.
pub(crate) const ADMIN_KEY: &str = "twk_the-first-admins-key-of-a-test";

pub(crate) struct Api {
    pub(crate) app: ApiService,
    pub(crate) engine: Engine,
    pub(crate) tenant: &'static str,
}

impl Api {
    pub(crate) async fn new() -> Self {
        Self::with_limits(HttpLimits::default()).await
    }

    pub(crate) async fn with_limits(limits: HttpLimits) -> Self {
        Self::over(Arc::new(MemoryStore::new(Layout { shards: 4 })), limits).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, limits: HttpLimits) -> Self {
        Self::with_config(store, limits, Config::default()).await
    }

    pub(crate) async fn with_config(store: Arc<dyn Store>, limits: HttpLimits, config: Config) -> Self {
        let engine = engine(store, config).await;
        let access = Access::open_to_all(&engine).await.unwrap();
        Self::with_access(engine, limits, access)
    }

    /// A server that asks for keys; [`ADMIN_KEY`] is one.
    pub(crate) async fn closed(store: Arc<dyn Store>) -> Self {
        let engine = engine(store, Config::default()).await;
        let clock = Arc::clone(engine.clock());
        let directory = Directory::open(Arc::clone(engine.store()), Arc::clone(&clock)).await.unwrap();
        let access = Arc::new(Access::with_keys(directory, clock, Some(ADMIN_KEY)));
        Self::with_access(engine, HttpLimits::default(), access)
    }

    fn with_access(engine: Engine, limits: HttpLimits, access: Arc<Access>) -> Self {
        let targets = AddressPolicy::public_only();
        let app = router(HttpParts { engine: engine.clone(), targets, limits, access });
        Self { app, engine, tenant: "default" }
    }

    /// The same server, as seen by another tenant.
    pub(crate) fn as_tenant(&self, tenant: &'static str) -> Self {
        Self { app: self.app.clone(), engine: self.engine.clone(), tenant }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("tidewheel-tenant", self.tenant);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], Body::empty()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[], Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Submits a job and returns its id.
    pub(crate) async fn submit(&self, job: &Value) -> String {
        let answer = self.post("/v1/jobs", job).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Takes one job that is due, waiting for it.
    pub(crate) async fn take_one(&self, queue: &str) -> Value {
        // Several times: a machine that stands still may let a wait pass.
        for _ in 0..10 {
            let answer =
                self.post(&format!("/v1/queues/{queue}/take"), &json!({"worker": "w1", "wait": "20s"})).await;
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            if let [job] = answer.json()["jobs"].as_array().unwrap().as_slice() {
                return job.clone();
            }
        }
        panic!("nothing came within the wait");
    }

    /// Makes a dead letter and returns its id.
    pub(crate) async fn dead_letter(&self, job: &Value) -> String {
        let queue = job["queue"].as_str().unwrap_or("default").to_owned();
        let id = self.submit(job).await;
        let taken = self.take_one(&queue).await;
        assert_eq!(taken["id"], *id);
        let outcome =
            json!({"token": taken["token"], "status": "failed", "error": "broken", "retryable": false});
        let answer = self.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await;
        assert_eq!(answer.json()["state"], "dead", "{answer:?}");
        id
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that it is a problem with that status and code, and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert_eq!(problem["type"], format!("/docs/errors#{code}"));
        assert!(
            !problem["title"].as_str().unwrap().is_empty() && !problem["detail"].as_str().unwrap().is_empty()
        );
        problem
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}
