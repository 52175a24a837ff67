//! What a worker says, handed to the engine. Batches that need the store run beside each other, within bounds.

use std::sync::Arc;

use tidewheel_api::proto::v1::{
    Heartbeat, HeartbeatAnswers, OutcomeAnswers, Outcomes, WorkerMessage, server_message, worker_message,
};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::limits::{WORKER_ANSWERS_COUNT_MAX, WORKER_BATCH_COUNT_MAX, WORKER_CREDITS_COUNT_MAX};
use tidewheel_store::{Applied, Error, Order, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::{Status, Streaming};

use super::outgoing::{Answer, Room};
use super::read::{self, Context};
use super::write::{self, Verdict};
use crate::engine::{Engine, WorkerLink};
use crate::grpc::status::status;
use crate::http::{Problem, check_reports};

/// Reads one worker's stream.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) engine: Engine,
    pub(super) link: WorkerLink,
    pub(super) context: Arc<Context>,
    pub(super) answers: mpsc::UnboundedSender<Answer>,
    pub(super) room: Arc<Semaphore>,
    /// Taken from by outcomes until they are stored.
    pub(super) ending: Arc<Semaphore>,
}

/// What a [`Listener`]'s `room`, or its `ending`, is as a whole.
fn all_of_it() -> u32 {
    u32::try_from(WORKER_ANSWERS_COUNT_MAX).unwrap_or(u32::MAX)
}

impl Listener {
    /// Until the worker stops talking, breaks the protocol or is gone.
    pub(super) async fn run(self, mut inbound: Streaming<WorkerMessage>) {
        loop {
            let next = async {
                let room = Arc::clone(&self.room).acquire_owned().await.ok().map(Arc::new);
                (room, inbound.message().await)
            };
            let (room, message) = tokio::select! {
                biased;
                () = self.answers.closed() => return,
                next = next => next,
            };
            let message = match message {
                Ok(message) => message,
                // What cannot be read: too large, or no message. Nobody hears it when it is the connection that broke.
                Err(unread) => return drop(self.answers.send(Box::new(Err(unread)))),
            };
            let (Some(room), Some(message)) = (room, message) else { return self.finish().await };
            self.link.heard();
            if let Err(refused) = self.holding(&room).hear(message, room) {
                // Nobody hears it when the worker is gone.
                drop(self.answers.send(Box::new(Err(refused))));
                return;
            }
        }
    }

    /// The worker said its last: lets the answers under way reach it.
    async fn finish(self) {
        tokio::select! {
            () = self.answers.closed() => {}
            _ = self.room.acquire_many(all_of_it()) => {}
        }
    }

    /// What the worker has not started is for others, once its outcomes that are under way are stored: those have started.
    async fn hand_back(&self) {
        drop(self.ending.acquire_many(all_of_it()).await);
        self.link.hand_back();
    }

    /// For one message, which takes up room until the scheduler has heard it and the worker has read its answer.
    fn holding(&self, room: &Room) -> Self {
        Self { link: self.link.holding(Arc::clone(room)), ..self.clone() }
    }

    fn hear(self, message: WorkerMessage, room: Room) -> Result<(), Status> {
        use worker_message::Message;
        match message.message {
            Some(Message::AddCredits(more)) => {
                let credits = usize::try_from(more.credits).unwrap_or(usize::MAX);
                self.link.add_credits(credits.min(WORKER_CREDITS_COUNT_MAX));
            }
            Some(Message::Started(started)) => {
                check_count(started.jobs.len())?;
                self.link.started(read::attempts(&started.jobs));
            }
            Some(Message::Drain(_)) => {
                self.link.drain();
                tokio::spawn(async move {
                    self.hand_back().await;
                    drop(room);
                });
            }
            Some(Message::Heartbeats(beats)) => {
                check_count(beats.jobs.len())?;
                tokio::spawn(self.beat(beats.jobs, room));
            }
            Some(Message::Outcomes(outcomes)) => {
                check_count(outcomes.jobs.len())?;
                // There is one for each message, unless the worker drains: what it ends then it has said to have started.
                let ending = Arc::clone(&self.ending).try_acquire_owned().ok();
                tokio::spawn(self.end(outcomes, room, ending));
            }
            Some(Message::Subscribe(_)) => {
                return Err(status(Code::InvalidValue, "the worker has subscribed already"));
            }
            None => return Err(status(Code::InvalidValue, "a message of an unknown kind came")),
        }
        Ok(())
    }

    async fn beat(self, beats: Vec<Heartbeat>, room: Room) {
        let orders = beats.iter().map(|beat| read::heartbeat(beat, &self.context)).collect();
        let jobs = match self.apply(orders).await {
            Ok(results) => {
                // Of one that is in a database that is away nothing can be said: neither that it holds nor that it is over.
                let is_known = |result: &Verdict| {
                    result.as_ref().err().is_none_or(|problem| problem.code() != Code::StoreUnavailable)
                };
                let answered = beats.iter().zip(results).filter(|(_, result)| is_known(result));
                answered.map(|(beat, result)| write::heartbeat_answer(beat, &result)).collect()
            }
            Err(error) => return self.fail(error),
        };
        self.answer(server_message::Message::HeartbeatAnswers(HeartbeatAnswers { jobs }), room);
    }

    async fn end(self, outcomes: Outcomes, room: Room, ending: Option<OwnedSemaphorePermit>) {
        let Outcomes { jobs: outcomes, batch } = outcomes;
        let now = self.engine.clock().now();
        let orders = outcomes
            .iter()
            .map(|outcome| read::outcome(outcome, &self.context, now, self.engine.random().jitter()))
            .collect();
        let jobs = match self.apply(orders).await {
            Ok(results) => {
                let is_brief = batch != 0;
                let answered = outcomes.into_iter().zip(results);
                let named = answered.filter(|(_, result)| !is_brief || result.is_err());
                named.map(|(outcome, result)| write::outcome_answer(outcome, &result)).collect()
            }
            Err(error) => return self.fail(error),
        };
        drop(ending);
        self.answer(server_message::Message::OutcomeAnswers(OutcomeAnswers { jobs, batch }), room);
    }

    /// Applies what could be read; the rest is answered for as it stands.
    async fn apply(&self, orders: Vec<Result<Order, Problem>>) -> Result<Vec<Verdict>, Error> {
        let orders = check_reports(&self.context.identity, &**self.engine.store(), orders).await?;
        let mut readable = Vec::with_capacity(orders.len());
        let mut unreadable: Vec<Option<Problem>> = Vec::with_capacity(orders.len());
        for order in orders {
            match order {
                Ok(order) => {
                    readable.push(order);
                    unreadable.push(None);
                }
                Err(problem) => unreadable.push(Some(problem)),
            }
        }
        let mut results =
            if readable.is_empty() { Vec::new() } else { self.link.report(readable).await? }.into_iter();
        let verdict = |problem: Option<Problem>| match problem {
            Some(problem) => Err(problem),
            None => results.next().unwrap_or(Err(Refusal::NotFound)).map_err(Problem::from),
        };
        Ok(unreadable.into_iter().map(verdict).collect::<Vec<Result<Applied, Problem>>>())
    }

    fn answer(&self, message: server_message::Message, room: Room) {
        // Nobody hears it when the worker is gone.
        drop(self.answers.send(Box::new(Ok((message, room)))));
    }

    /// The store failed: whether the batch took effect is not known, so the worker must say it again.
    fn fail(&self, error: Error) {
        drop(self.answers.send(Box::new(Err(Problem::from(error).into()))));
    }
}

fn check_count(count: usize) -> Result<(), Status> {
    if count > WORKER_BATCH_COUNT_MAX {
        let detail = format!("the batch has {count} items; at most {WORKER_BATCH_COUNT_MAX} are taken");
        return Err(status(Code::BatchTooLarge, detail));
    }
    Ok(())
}
