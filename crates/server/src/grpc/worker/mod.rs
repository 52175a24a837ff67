//! `tidewheel.v1.Worker`: pulling over one stream.
//!
//! Two sides that do not wait for each other. `listen` reads what the worker says and hands it to the engine;
//! `outgoing` sends what the engine and those answers have for it, as fast as the worker reads. A worker that does not
//! read its answers is not read from, and one that does not read its jobs gets no more.

mod leased;
mod listen;
mod outgoing;
mod read;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tidewheel_api::proto::v1::worker_server::Worker;
use tidewheel_api::proto::v1::{WorkerMessage, worker_message};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::limits::{WORKER_ANSWERS_COUNT_MAX, WORKER_KEY_CHECKED_MS};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::{Request, Response, Status, Streaming};

use self::listen::Listener;
use self::outgoing::{Opening, Outgoing};
use super::status::status;
use crate::access::{Access, Identity};
use crate::clock::Clock;
use crate::engine::{Engine, Refused};
use crate::http::Caller;

/// The service.
pub(super) struct WorkerService {
    engine: Engine,
    access: Arc<Access>,
}

impl WorkerService {
    pub(super) fn new(engine: Engine, access: Arc<Access>) -> Self {
        Self { engine, access }
    }
}

#[tonic::async_trait]
impl Worker for WorkerService {
    type WorkStream = Outgoing;

    async fn work(&self, request: Request<Streaming<WorkerMessage>>) -> Result<Response<Outgoing>, Status> {
        let (metadata, extensions, inbound) = request.into_parts();
        let caller = Caller::of(&metadata.into_headers(), &extensions)?;
        let (opening, opened) = oneshot::channel();
        let (answers, answered) = mpsc::unbounded_channel();
        // Apart, because some clients send nothing before they have seen the head of the answer.
        let traces = self.engine.traces().clone();
        let (engine, access) = (self.engine.clone(), Arc::clone(&self.access));
        tokio::spawn(converse(engine, access, caller, inbound, opening, answers));
        Ok(Response::new(Outgoing::new(opened, answered, traces)))
    }
}

async fn converse(
    engine: Engine,
    access: Arc<Access>,
    caller: Caller,
    mut inbound: Streaming<WorkerMessage>,
    opening: oneshot::Sender<Result<Opening, Status>>,
    answers: mpsc::UnboundedSender<outgoing::Answer>,
) {
    let entered = tokio::select! {
        () = answers.closed() => return,
        entered = enter(&engine, &caller, &mut inbound) => entered,
    };
    let (opened, context, link) = match entered {
        Ok(entered) => entered,
        Err(refused) => {
            // Nobody hears it when the worker is gone.
            drop(opening.send(Err(refused)));
            return;
        }
    };
    if opening.send(Ok(opened)).is_ok() {
        let [room, ending] = [(); 2].map(|()| Arc::new(Semaphore::new(WORKER_ANSWERS_COUNT_MAX)));
        let (clock, ended) = (Arc::clone(engine.clock()), answers.clone());
        let listener = Listener { engine, link, context: Arc::new(context), answers, room, ending };
        tokio::select! {
            () = listener.run(inbound) => {}
            () = until_key_is_over(&access, &caller.identity, &*clock) => {
                // Nobody hears it when the worker is gone.
                let over = status(Code::Unauthorized, "the key was revoked or has ended");
                drop(ended.send(Box::new(Err(over))));
            }
        }
    }
}

/// A stream may outlive the key it was opened with; it is asked for again now and then.
async fn until_key_is_over(access: &Access, identity: &Identity, clock: &dyn Clock) {
    if matches!(identity, Identity::Anyone) {
        // Without keys there is nothing to ask for; ten thousand idle workers need not wake up for it.
        return std::future::pending().await;
    }
    while access.still_holds(identity) {
        clock.sleep(Duration::from_millis(WORKER_KEY_CHECKED_MS)).await;
    }
}

async fn enter(
    engine: &Engine,
    caller: &Caller,
    inbound: &mut Streaming<WorkerMessage>,
) -> Result<(Opening, read::Context, crate::engine::WorkerLink), Status> {
    let patience = engine.clock().sleep(outgoing::FIRST_MESSAGE_WITHIN);
    let first = tokio::select! {
        first = inbound.message() => first?,
        () = patience => return Err(status(Code::RequestTimeout, "nothing was said; subscribe first")),
    };
    let Some(worker_message::Message::Subscribe(subscribe)) = first.and_then(|first| first.message) else {
        return Err(status(Code::InvalidValue, "the first message must be `subscribe`"));
    };
    let subscription = read::subscription(&subscribe, caller).map_err(Status::from)?;
    let context = read::Context {
        tenant: subscription.interest.only_tenant().unwrap_or(&caller.tenant).clone(),
        interest: subscription.interest.clone(),
        identity: caller.identity.clone(),
        lease_ms: subscription.lease_ms,
    };
    match engine.connect_worker(subscription).await {
        Ok((welcome, link, pushes)) => Ok((Opening { welcome, pushes }, context, link)),
        Err(Refused::Draining) => {
            Err(status(Code::Draining, "the server is stopping; try again, here or elsewhere"))
        }
        Err(Refused::TooMany) => Err(status(Code::Overloaded, "as many workers as may be are connected")),
    }
}
