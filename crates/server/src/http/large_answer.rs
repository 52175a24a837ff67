//! Large answers. Whoever asks for many pages and reads none of them must not fill the memory: all that is not read yet is
//! bounded together, in bytes, and only so many pages are read from the store at once.
//!
//! A large answer is handed over piece by piece, as fast as it is read. One that nobody reads on is given up, so that its
//! part of the bound is there for others: a connection may live long, and whoever is slow on purpose has time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tidewheel_api::wire::fault::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::app::HttpLimits;
use super::problem::Problem;
use crate::clock::Clock;

/// Answers up to this size are not counted: what connections there may be bounds them.
const LARGE_BYTES_MIN: u64 = 256 * 1_024;
/// Handed over at once.
const PIECE_BYTES_MAX: usize = 64 * 1_024;
/// When to come back.
const RETRY_S: u32 = 1;

/// What all large answers may take together.
pub(super) struct Answers {
    /// One permit for every byte.
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    turns: Semaphore,
    progress: Duration,
    clock: Arc<dyn Clock>,
}

/// The part of it that one answer takes, until it is dropped. It goes with the answer as an extension, from where the answer
/// is made to where it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    _bytes: Arc<OwnedSemaphorePermit>,
}

impl Answers {
    pub(super) fn new(limits: &HttpLimits, clock: Arc<dyn Clock>) -> Self {
        let bytes_max = limits.answers_bytes_max.min(Semaphore::MAX_PERMITS);
        Self {
            bytes: Arc::new(Semaphore::new(bytes_max)),
            bytes_max,
            turns: Semaphore::new(limits.pages_count_max.max(1)),
            progress: Duration::from_millis(limits.answer_progress_ms),
            clock,
        }
    }

    /// Waits for a turn to read a page from the store. Reading needs nobody but the store, so turns come.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    fn share(&self, bytes: u64) -> Result<Share, Problem> {
        // One that is larger than everything may be alone.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes_max);
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(permits).map_err(|_| {
            let detail = "too many large answers wait to be read; read them, or ask for smaller pages";
            Problem::new(Code::Overloaded, detail).retry_after(RETRY_S)
        })?;
        Ok(Share { _bytes: Arc::new(permit) })
    }

    /// Sends an answer that was counted piece by piece, and gives its share back with the last of it.
    pub(super) fn send(&self, mut response: Response) -> Response {
        let Some(share) = response.extensions_mut().remove::<Share>() else { return response };
        response.map(|body| {
            let left = Left { body, rest: Bytes::new(), is_read: false, _share: share };
            let pieces = Arc::new(Mutex::new(Pieces::Left(left)));
            tokio::spawn(watch(Arc::downgrade(&pieces), Arc::clone(&self.clock), self.progress));
            Body::new(Sent(pieces))
        })
    }
}

/// Counts an answer that is large, or refuses it.
pub(super) async fn count(answers: Arc<Answers>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes > LARGE_BYTES_MIN) else {
        return response;
    };
    match answers.share(bytes) {
        Ok(share) => {
            response.extensions_mut().insert(share);
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// Gives up an answer that nobody has read on for so long.
async fn watch(watched: Weak<Mutex<Pieces>>, clock: Arc<dyn Clock>, progress: Duration) {
    loop {
        clock.sleep(progress).await;
        let Some(pieces) = watched.upgrade() else { return };
        if !lock(&pieces).is_read_on() {
            return;
        }
    }
}

fn lock(pieces: &Mutex<Pieces>) -> MutexGuard<'_, Pieces> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is left of an answer.
enum Pieces {
    Left(Left),
    GivenUp,
}

impl Pieces {
    /// Whether some of it was taken since this was last asked; otherwise it is given up.
    fn is_read_on(&mut self) -> bool {
        let is_read = match self {
            Self::Left(left) => std::mem::take(&mut left.is_read),
            Self::GivenUp => false,
        };
        if !is_read {
            *self = Self::GivenUp;
        }
        is_read
    }
}

struct Left {
    body: Body,
    /// What the body has said and was not handed over yet.
    rest: Bytes,
    /// Whether some of it was taken since somebody looked.
    is_read: bool,
    _share: Share,
}

impl Left {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(fault)) => return Poll::Ready(Some(Err(fault))),
                None => return Poll::Ready(None),
            }
        }
        self.is_read = true;
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        // A copy: a part of the whole would keep all of it in memory until the last of it is sent.
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
    }
}

/// An answer on its way.
struct Sent(Arc<Mutex<Pieces>>);

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *lock(&self.0) {
            Pieces::Left(left) => left.poll(context),
            Pieces::GivenUp => {
                Poll::Ready(Some(Err(axum::Error::new("the answer was given up: nobody read on"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &*lock(&self.0) {
            Pieces::Left(left) => left.rest.is_empty() && left.body.is_end_stream(),
            Pieces::GivenUp => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*lock(&self.0) {
            Pieces::Left(left) => left.body.size_hint() + SizeHint::with_exact(left.rest.len() as u64),
            Pieces::GivenUp => SizeHint::new(),
        }
    }
}
