//! The whole server on a free port of loopback, and a worker that does what a test tells it to.

#![allow(clippy::wildcard_enum_match_arm, reason = "each test file uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidewheel_api::proto::v1::worker_client::WorkerClient;
use tidewheel_api::proto::v1::{
    AddCredits, AttemptRef, Cancelled, Drain, Failed, Heartbeat, HeartbeatAnswer, Heartbeats, LeasedJob,
    Outcome, OutcomeAnswer, Outcomes, Released, ServerMessage, Snoozed, Started, Subscribe, Succeeded,
    Welcome, WorkerMessage, outcome, server_message, worker_message,
};
use tidewheel_server::engine::Config;
use tidewheel_server::http::{HttpLimits, ServeLimits, serve};
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::http::harness::Api;

/// Longer than anything waited for takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// Longer than any test takes.
const LONG_MS: i64 = 3_600_000;

/// For workers that say only what a test tells them to: however slow the machine is, their silence does not count.
pub(crate) fn patient() -> Config {
    Config { worker_dead_ms: LONG_MS, worker_take_back_ms: LONG_MS, ..Config::default() }
}

pub(crate) struct Server {
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start(config: Config) -> Self {
        Self::start_within(config, ServeLimits::default()).await
    }

    pub(crate) async fn start_within(config: Config, limits: ServeLimits) -> Self {
        let store = Arc::new(MemoryStore::new(Layout { shards: 4 }));
        let api = Api::with_config(store, HttpLimits::default(), config).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = api.app.clone();
        tokio::spawn(serve(listener, app, limits, std::future::pending()));
        Self { api, address }
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn worker(&self, subscribe: Subscribe) -> Worker {
        Worker::connect(self.channel().await, "default", subscribe).await.unwrap()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.api.get(&format!("/v1/jobs/{id}")).await.json()
    }

    /// Submits so many jobs to a queue and returns their ids.
    pub(crate) async fn submit(&self, queue: &str, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for n in 0..count {
            ids.push(self.api.submit(&json!({"type": "t", "queue": queue, "payload": n})).await);
        }
        ids
    }

    /// Waits until the list of workers is as wanted.
    pub(crate) async fn workers_until(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let waiting = async {
            loop {
                let answer = self.api.get("/v1/workers").await.json();
                let workers = answer["items"].as_array().unwrap().clone();
                if wanted(&workers) {
                    return workers;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the workers never were as wanted")
    }

    /// Waits until a job is as wanted.
    pub(crate) async fn job_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let job = self.job(id).await;
                if wanted(&job) {
                    return job;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the job never was as wanted")
    }
}

pub(crate) fn subscribe(queue: &str, credits: u32) -> Subscribe {
    Subscribe { worker: "w1".into(), queues: vec![queue.into()], credits, ..Subscribe::default() }
}

pub(crate) struct Worker {
    say: mpsc::Sender<WorkerMessage>,
    hear: Streaming<ServerMessage>,
    pub(crate) welcome: Welcome,
}

impl Worker {
    pub(crate) async fn connect(
        channel: Channel,
        tenant: &str,
        subscribe: Subscribe,
    ) -> Result<Self, Status> {
        let (mut hear, say) =
            Self::open(channel, tenant, worker_message::Message::Subscribe(subscribe)).await?;
        match tokio::time::timeout(PATIENCE, hear.message()).await.unwrap()?.unwrap().message.unwrap() {
            server_message::Message::Welcome(welcome) => Ok(Self { say, hear, welcome }),
            other => panic!("no welcome: {other:?}"),
        }
    }

    pub(crate) async fn open(
        channel: Channel,
        tenant: &str,
        first: worker_message::Message,
    ) -> Result<(Streaming<ServerMessage>, mpsc::Sender<WorkerMessage>), Status> {
        let (say, mut said) = mpsc::channel::<WorkerMessage>(16);
        let words = futures_util::stream::poll_fn(move |context| said.poll_recv(context));
        let mut request = Request::new(words);
        request.metadata_mut().insert("tidewheel-tenant", tenant.parse().unwrap());
        // The head of the answer comes before anything is said.
        let hear = WorkerClient::new(channel).work(request).await?.into_inner();
        say.send(WorkerMessage { message: Some(first) }).await.unwrap();
        Ok((hear, say))
    }

    pub(crate) async fn say(&self, message: worker_message::Message) {
        self.say.send(WorkerMessage { message: Some(message) }).await.unwrap();
    }

    pub(crate) async fn add_credits(&self, credits: u32) {
        self.say(worker_message::Message::AddCredits(AddCredits { credits })).await;
    }

    pub(crate) async fn drain(&self) {
        self.say(worker_message::Message::Drain(Drain {})).await;
    }

    pub(crate) async fn started(&self, jobs: &[&LeasedJob]) {
        let jobs = jobs.iter().map(|job| attempt(job)).collect();
        self.say(worker_message::Message::Started(Started { jobs })).await;
    }

    /// The next thing said, or how the stream ended.
    pub(crate) async fn next(&mut self) -> Result<server_message::Message, Option<Status>> {
        let next = tokio::time::timeout(PATIENCE, self.hear.message()).await.expect("nothing was said");
        match next {
            Ok(Some(message)) => Ok(message.message.unwrap()),
            Ok(None) => Err(None),
            Err(status) => Err(Some(status)),
        }
    }

    /// Waits for so many jobs.
    pub(crate) async fn jobs(&mut self, count: usize) -> Vec<LeasedJob> {
        let mut jobs = Vec::new();
        while jobs.len() < count {
            match self.next().await {
                Ok(server_message::Message::Jobs(batch)) => jobs.extend(batch.jobs().unwrap()),
                other => panic!("expected jobs: {other:?}"),
            }
        }
        assert_eq!(jobs.len(), count);
        jobs
    }

    pub(crate) async fn job(&mut self) -> LeasedJob {
        self.jobs(1).await.remove(0)
    }

    pub(crate) async fn outcomes(&mut self, jobs: Vec<Outcome>) -> Vec<OutcomeAnswer> {
        self.say(worker_message::Message::Outcomes(Outcomes { jobs, batch: 0 })).await;
        match self.next().await {
            Ok(server_message::Message::OutcomeAnswers(answers)) => answers.jobs,
            other => panic!("expected answers: {other:?}"),
        }
    }

    /// Reports one outcome and returns the code it was answered with.
    pub(crate) async fn end(&mut self, job: &LeasedJob, result: outcome::Result) -> String {
        let answers = self.outcomes(vec![end(job, result)]).await;
        assert_eq!((answers.len(), &answers[0].id, answers[0].token), (1, &job.id, job.token));
        answers[0].code.clone()
    }

    pub(crate) async fn heartbeat(&mut self, jobs: Vec<Heartbeat>) -> Vec<HeartbeatAnswer> {
        self.say(worker_message::Message::Heartbeats(Heartbeats { jobs })).await;
        match self.next().await {
            Ok(server_message::Message::HeartbeatAnswers(answers)) => answers.jobs,
            other => panic!("expected answers: {other:?}"),
        }
    }

    /// Everything said before has been heard, and nothing was sent meanwhile but the answer.
    pub(crate) async fn nothing_comes(&mut self) {
        assert!(self.heartbeat(Vec::new()).await.is_empty());
    }
}

pub(crate) fn attempt(job: &LeasedJob) -> AttemptRef {
    AttemptRef { id: job.id.clone(), token: job.token }
}

pub(crate) fn end(job: &LeasedJob, result: outcome::Result) -> Outcome {
    Outcome { id: job.id.clone(), token: job.token, tenant: job.tenant.clone(), result: Some(result) }
}

pub(crate) fn succeeded() -> outcome::Result {
    outcome::Result::Succeeded(Succeeded { result: bytes::Bytes::from_static(b"{\"ok\": 1}") })
}

pub(crate) fn failed() -> outcome::Result {
    outcome::Result::Failed(Failed { error: "broken".into(), ..Failed::default() })
}

pub(crate) fn snoozed() -> outcome::Result {
    outcome::Result::Snoozed(Snoozed { when: None })
}

pub(crate) fn cancelled() -> outcome::Result {
    outcome::Result::Cancelled(Cancelled { error: "not wanted".into() })
}

pub(crate) fn released() -> outcome::Result {
    outcome::Result::Released(Released {})
}

/// The stable code of a refusal.
pub(crate) fn code(status: &Status) -> &str {
    status.metadata().get("tidewheel-code").map_or("", |code| code.to_str().unwrap())
}
