//! Work that goes on when the caller hangs up: a change that was stored but not announced to the scheduler would otherwise
//! wait for the next sweep.
//!
//! Nearly every caller waits for its answer. So the work is done where the caller waits, and becomes a task of its own
//! only when the caller is gone before the end: no task is made, and nobody is woken, for the others.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tidewheel_api::wire::fault::Code;
use tokio::runtime::Handle;

use super::problem::Problem;

type Ended<T> = Result<T, Box<dyn Any + Send>>;

/// Runs `work` to its end even if the caller hangs up.
pub(super) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Problem> {
    // A panic ends this call and none of the others on the same connection.
    let work = Box::pin(AssertUnwindSafe(work).catch_unwind());
    ToTheEnd { work: Some(work) }.await.map_err(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let fault = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        tracing::error!(error = fault, "a request's work did not end");
        Problem::new(Code::Internal, "the server failed; its log says more")
    })
}

/// Work under way; `None` once it has ended.
struct ToTheEnd<F: Future<Output: Send> + Send + 'static> {
    work: Option<Pin<Box<F>>>,
}

impl<T: Send, F: Future<Output = Ended<T>> + Send + 'static> Future for ToTheEnd<F> {
    type Output = Ended<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended<T>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for ToTheEnd<F> {
    fn drop(&mut self) {
        // Without a runtime nothing goes on at all: the process is ending.
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::poll_immediate;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_when_nobody_waits_for_it_any_more() {
        for polls_before in [0, 1] {
            let (begin, begun) = oneshot::channel::<()>();
            let (end, ended) = oneshot::channel();
            let mut waiting = Box::pin(to_the_end(async move {
                begun.await.unwrap();
                end.send("done").unwrap();
            }));
            for _ in 0..polls_before {
                assert!(poll_immediate(&mut waiting).await.is_none());
            }
            drop(waiting);
            if polls_before == 0 {
                // Work that was never asked for was never begun.
                assert!(ended.await.is_err());
                continue;
            }
            begin.send(()).unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
            assert_eq!(ended.unwrap(), Ok("done"));
        }
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_came_of_it_and_a_panic_is_an_answer() {
        assert_eq!(to_the_end(async { 7 }).await.ok(), Some(7));
        let failed = to_the_end(async { panic!("as it must") }).await;
        assert_eq!(failed.map_err(|problem: Problem| problem.code()), Err::<(), _>(Code::Internal));
    }
}
