//! The Rust worker against a server that says what a test tells it to: refusals, and jobs that come late.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any_service;
use futures_util::Stream;
use tidewheel_api::proto::job_batch::JobBatch;
use tidewheel_api::proto::v1::worker_message::Message;
use tidewheel_api::proto::v1::worker_server::{Worker as WorkerService, WorkerServer};
use tidewheel_api::proto::v1::{
    AttemptRef, LeasedJob, Outcome, OutcomeAnswer, OutcomeAnswers, ServerMessage, Subscribe, Welcome,
    WorkerMessage, outcome, server_message,
};
use tidewheel_api::worker::{Context, Error, Event, Failure, Stopper, Worker, WorkerConfig};
use tidewheel_server::http::{ServeLimits, serve};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status, Streaming};

/// Longer than anything waited for takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longer than a test takes: nothing happens for having taken too long.
const LONG_S: i64 = 3_600;
const TOKEN: u64 = 7;

type Said = Result<ServerMessage, Status>;

/// A worker's stream, in the hands of a test.
struct Talk {
    hear: Streaming<WorkerMessage>,
    say: mpsc::UnboundedSender<Said>,
}

/// A server that hands every stream to its test.
struct Stub {
    url: String,
    talks: mpsc::UnboundedReceiver<Talk>,
}

struct Door(mpsc::UnboundedSender<Talk>);

#[tonic::async_trait]
impl WorkerService for Door {
    type WorkStream = Pin<Box<dyn Stream<Item = Said> + Send>>;

    async fn work(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let (say, mut said) = mpsc::unbounded_channel();
        self.0.send(Talk { hear: request.into_inner(), say }).map_err(|_| Status::unavailable("over"))?;
        let said = futures_util::stream::poll_fn(move |context| said.poll_recv(context));
        Ok(Response::new(Box::pin(said)))
    }
}

impl Stub {
    async fn start() -> Self {
        let (door, talks) = mpsc::unbounded_channel();
        let service = WorkerServer::new(Door(door));
        let app: Router = Router::new().route("/tidewheel.v1.Worker/{*method}", any_service(service));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, app, ServeLimits::default(), std::future::pending()));
        Self { url, talks }
    }

    /// One handler at a time, and nothing that happens by itself.
    fn config(&self) -> WorkerConfig {
        let lease = Duration::from_secs(LONG_S.unsigned_abs());
        WorkerConfig { concurrency: 1, lease, drain: lease, ..WorkerConfig::new(&self.url, "q") }
    }

    /// Lets the worker in.
    async fn welcome(&mut self) -> (Talk, Subscribe) {
        let long = Duration::from_secs(LONG_S.unsigned_abs());
        self.welcome_for(long, long).await
    }

    /// Lets the worker in, to be heard of so often, or counted as dead after that long.
    async fn welcome_for(&mut self, every: Duration, dead_after: Duration) -> (Talk, Subscribe) {
        let talk = tokio::time::timeout(PATIENCE, self.talks.recv()).await.expect("nobody came");
        let mut talk = talk.expect("the server serves");
        let Some(Message::Subscribe(subscribe)) = talk.next().await else { panic!("no subscription") };
        let long = Some(prost_types::Duration { seconds: LONG_S, nanos: 0 });
        let message = |duration: Duration| prost_types::Duration::try_from(duration).ok();
        talk.say(server_message::Message::Welcome(Welcome {
            worker_id: "wrk_1".into(),
            session: "5e55".into(),
            resumed: subscribe.resume.is_some(),
            heartbeat_every: message(every),
            dead_after: message(dead_after),
            resume_within: long,
            idle_heartbeat_every: long,
        }));
        (talk, subscribe)
    }
}

impl Talk {
    fn say(&self, message: server_message::Message) {
        self.say.send(Ok(ServerMessage { message: Some(message) })).expect("the worker listens");
    }

    fn give(&self, ids: &[&str]) {
        let job = |id: &&str| LeasedJob {
            id: (*id).to_owned(),
            token: TOKEN,
            r#type: "t".into(),
            payload: "null".into(),
            ..LeasedJob::default()
        };
        let jobs: Vec<LeasedJob> = ids.iter().map(job).collect();
        self.say(server_message::Message::Jobs(JobBatch::new(&jobs)));
    }

    fn answer(&self, outcome: &Outcome, code: &str, detail: &str) {
        let (id, token) = (outcome.id.clone(), outcome.token);
        let (code, detail) = (code.to_owned(), detail.to_owned());
        let answer = OutcomeAnswer { id, token, code, detail, ..OutcomeAnswer::default() };
        self.say(server_message::Message::OutcomeAnswers(OutcomeAnswers { jobs: vec![answer], batch: 0 }));
    }

    /// What the worker says next; nothing once it has said its last.
    async fn next(&mut self) -> Option<Message> {
        let said = tokio::time::timeout(PATIENCE, self.hear.message()).await.expect("nothing was said");
        said.expect("the worker ends its half by itself").map(|said| said.message.expect("it says something"))
    }

    /// The next outcome, whatever else is said before it.
    async fn outcome(&mut self) -> Outcome {
        loop {
            let said = self.next().await.expect("an outcome is missing");
            if let Message::Outcomes(mut batch) = said {
                assert_eq!(batch.jobs.len(), 1, "{batch:?}");
                return batch.jobs.remove(0);
            }
        }
    }

    /// Hears the worker out.
    async fn until_its_last(&mut self) {
        while self.next().await.is_some() {}
    }
}

fn run(worker: Worker) -> (Stopper, JoinHandle<Result<(), Error>>) {
    (worker.stopper(), tokio::spawn(worker.run()))
}

#[tokio::test]
async fn a_refused_outcome_fails_its_job_for_good_and_holds_up_no_other() {
    let mut stub = Stub::start().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let config = stub.config().on_event(move |event| {
        if let Event::ReportRefused { id, code, .. } = event {
            tell.send((id.clone(), code.clone())).unwrap();
        }
    });
    let mut worker = Worker::connect(config).await.unwrap();
    worker.handle("t", |_, (): ()| async move { Ok::<_, Failure>(()) });
    let (stopper, working) = run(worker);
    let (mut talk, _) = stub.welcome().await;
    talk.give(&["a"]);
    let first = talk.outcome().await;
    assert!(matches!(first.result, Some(outcome::Result::Succeeded(_))), "{first:?}");
    talk.answer(&first, "invalid_value", "`result`: it is none");
    let instead = talk.outcome().await;
    assert_eq!((instead.id.as_str(), instead.token), ("a", TOKEN));
    assert!(
        matches!(&instead.result, Some(outcome::Result::Failed(it)) if it.r#final && it.error.contains("it is none")),
        "{instead:?}"
    );
    assert_eq!(told.recv().await.unwrap(), ("a".to_owned(), "invalid_value".to_owned()));
    // A server that takes not even that does not hold it up either.
    talk.answer(&instead, "invalid_value", "nor is this");
    talk.give(&["b"]);
    let other = talk.outcome().await;
    assert_eq!(other.id, "b");
    assert!(matches!(other.result, Some(outcome::Result::Succeeded(_))), "{other:?}");
    talk.answer(&other, "accepted", "");
    stopper.drain();
    talk.until_its_last().await;
    drop(talk);
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_that_is_welcomed_and_sent_away_waits_longer_each_time() {
    let mut stub = Stub::start().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let config = stub.config().on_event(move |event| {
        if let Event::Disconnected { retry_in, .. } = event {
            tell.send(*retry_in).unwrap();
        }
    });
    let mut worker = Worker::connect(config).await.unwrap();
    worker.handle("t", |_, (): ()| async move { Ok::<_, Failure>(()) });
    let (_, working) = run(worker);
    let mut waits = Vec::new();
    // On a machine that stands still for seconds a welcome may seem to have lasted.
    let has_grown = |waits: &[Duration]| matches!(waits, [first, .., last] if *last > *first * 4);
    while waits.len() < 40 && !has_grown(&waits) {
        drop(stub.welcome().await);
        waits.push(told.recv().await.unwrap());
    }
    working.abort();
    assert!(has_grown(&waits), "{waits:?}");
}

#[tokio::test]
async fn a_draining_worker_says_what_has_begun_and_hands_back_the_rest_at_once() {
    let mut stub = Stub::start().await;
    let mut worker = Worker::connect(stub.config()).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let (begin, mut begun) = mpsc::unbounded_channel();
    let held = Arc::clone(&gate);
    worker.handle("t", move |context: Context, (): ()| {
        let (gate, begin) = (Arc::clone(&held), begin.clone());
        async move {
            begin.send(context.id().to_owned()).unwrap();
            gate.acquire().await.unwrap().forget();
            Ok::<_, Failure>(())
        }
    });
    let (stopper, working) = run(worker);
    let (mut talk, _) = stub.welcome().await;
    talk.give(&["a", "b"]);
    assert_eq!(begun.recv().await.unwrap(), "a");
    stopper.drain();
    let mut before = None;
    loop {
        let said = talk.next().await.expect("it drains");
        if matches!(said, Message::Drain(_)) {
            break;
        }
        before = Some(said);
    }
    let first = [AttemptRef { id: "a".into(), token: TOKEN }];
    assert!(matches!(&before, Some(Message::Started(it)) if it.jobs == first), "{before:?}");
    let released = talk.outcome().await;
    assert_eq!(released.id, "b");
    assert!(matches!(released.result, Some(outcome::Result::Released(_))), "{released:?}");
    talk.answer(&released, "accepted", "");
    gate.add_permits(1);
    let done = talk.outcome().await;
    assert_eq!(done.id, "a");
    talk.answer(&done, "accepted", "");
    talk.until_its_last().await;
    drop(talk);
    working.await.unwrap().unwrap();
    assert!(begun.recv().await.is_none(), "no other was begun");
}

#[tokio::test]
async fn a_job_that_crosses_the_drain_on_its_way_is_handed_back() {
    let mut stub = Stub::start().await;
    let mut worker = Worker::connect(stub.config()).await.unwrap();
    worker.handle("t", |_, (): ()| async move { Err::<(), _>(Failure::permanent("it is too late")) });
    let (stopper, working) = run(worker);
    let (mut talk, _) = stub.welcome().await;
    stopper.drain();
    talk.until_its_last().await;
    talk.give(&["late"]);
    drop(talk);
    let (mut talk, subscribe) = stub.welcome().await;
    let resume = subscribe.resume.expect("it goes on with its session");
    assert_eq!(resume.holding, [AttemptRef { id: "late".into(), token: TOKEN }]);
    assert_eq!(subscribe.credits, 0, "it asks for no more");
    let released = talk.outcome().await;
    assert_eq!(released.id, "late");
    assert!(matches!(released.result, Some(outcome::Result::Released(_))), "{released:?}");
    talk.answer(&released, "accepted", "");
    talk.until_its_last().await;
    drop(talk);
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_answers_nothing_is_left_although_the_worker_is_busy() {
    let mut stub = Stub::start().await;
    let mut worker = Worker::connect(stub.config()).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    worker.handle("t", move |_, (): ()| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, Failure>(())
        }
    });
    let (stopper, working) = run(worker);
    let (every, dead_after) = (Duration::from_millis(100), Duration::from_secs(1));
    let (silent, _) = stub.welcome_for(every, dead_after).await;
    silent.give(&["a"]);
    let (mut talk, subscribe) = stub.welcome().await;
    let resume = subscribe.resume.expect("it goes on with its session");
    assert_eq!(resume.holding, [AttemptRef { id: "a".into(), token: TOKEN }]);
    gate.add_permits(1);
    let done = talk.outcome().await;
    assert_eq!(done.id, "a");
    talk.answer(&done, "accepted", "");
    stopper.drain();
    talk.until_its_last().await;
    drop((talk, silent));
    working.await.unwrap().unwrap();
}
