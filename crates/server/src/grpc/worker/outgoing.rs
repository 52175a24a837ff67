//! What a worker hears: first its welcome, then answers and whatever the engine has for it, in one stream.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tidewheel_api::proto::v1::{GoAway, ServerMessage, server_message};
use tidewheel_api::wire::fault::Code;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tonic::Status;

use super::write;
use crate::engine::{Push, Pushes, Welcome};
use crate::grpc::status::status;
use crate::traces::Traces;

/// How long a worker may take to subscribe.
pub(super) const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(15);

/// A subscription that holds.
pub(super) struct Opening {
    pub(super) welcome: Welcome,
    pub(super) pushes: Pushes,
}

/// What a message of the worker takes up until it is dealt with.
pub(super) type Room = Arc<OwnedSemaphorePermit>;

/// An answer, and the room it takes until it is read; or why the stream ends. Boxed, because the channel has room for
/// many as soon as it has any, and most workers are waiting for a job, not for an answer.
pub(super) type Answer = Box<Result<(server_message::Message, Room), Status>>;

/// What a worker hears.
pub(crate) struct Outgoing {
    opening: Option<oneshot::Receiver<Result<Opening, Status>>>,
    pushes: Option<Pushes>,
    answers: mpsc::UnboundedReceiver<Answer>,
    ended: bool,
    traces: Traces,
}

impl Outgoing {
    pub(super) fn new(
        opening: oneshot::Receiver<Result<Opening, Status>>,
        answers: mpsc::UnboundedReceiver<Answer>,
        traces: Traces,
    ) -> Self {
        Self { opening: Some(opening), pushes: None, answers, ended: false, traces }
    }

    fn poll_opening(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ServerMessage, Status>>> {
        let Some(opening) = &mut self.opening else { return Poll::Pending };
        let Poll::Ready(opened) = Pin::new(opening).poll(context) else { return Poll::Pending };
        self.opening = None;
        match opened {
            Ok(Ok(Opening { welcome, pushes })) => {
                self.pushes = Some(pushes);
                message(write::welcome(&welcome))
            }
            Ok(Err(refused)) => self.end(Err(refused)),
            Err(_) => self.end(Ok(())),
        }
    }

    fn end(&mut self, how: Result<(), Status>) -> Poll<Option<Result<ServerMessage, Status>>> {
        self.ended = true;
        // From here on the worker counts as disconnected.
        self.pushes = None;
        self.answers.close();
        Poll::Ready(how.err().map(Err))
    }

    fn told(&mut self, push: Push) -> Poll<Option<Result<ServerMessage, Status>>> {
        match push {
            Push::Jobs { jobs, bytes } => message(write::jobs(&jobs, bytes, &self.traces)),
            Push::Stop(stop) => message(write::stop(stop)),
            Push::TakeBack(jobs) => message(write::take_back(&jobs)),
            Push::GoAway => {
                let reason = "the server is stopping".to_owned();
                message(server_message::Message::GoAway(GoAway { reason }))
            }
            Push::Silent => self.end(Err(status(Code::RequestTimeout, "nothing was heard of the worker"))),
            Push::Replaced => {
                let detail = "the session goes on over another stream";
                self.end(Err(Status::aborted(detail)))
            }
        }
    }
}

impl Stream for Outgoing {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if this.opening.is_some() {
            return this.poll_opening(context);
        }
        match this.answers.poll_recv(context) {
            Poll::Ready(Some(answer)) => {
                return match *answer {
                    Ok((answer, room)) => {
                        drop(room);
                        message(answer)
                    }
                    Err(refused) => this.end(Err(refused)),
                };
            }
            Poll::Ready(None) => return this.end(Ok(())),
            Poll::Pending => {}
        }
        let Some(pushes) = &mut this.pushes else { return this.end(Ok(())) };
        match pushes.poll_next(context) {
            Poll::Ready(Some(push)) => this.told(push),
            Poll::Ready(None) => this.end(Err(status(Code::Draining, "the server has stopped"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn message(message: server_message::Message) -> Poll<Option<Result<ServerMessage, Status>>> {
    Poll::Ready(Some(Ok(ServerMessage { message: Some(message) })))
}
