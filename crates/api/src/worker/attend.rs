//! Running handlers: their timeouts, their panics, the grace they have once they are to stop, and how many share a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::bounds;
use super::context::{Attempt, Context, Stop};
use super::failure::Failure;
use super::handlers::{Handler, Verdict, Work};
use super::time;
use crate::proto::v1::{Cancelled, Failed, Snoozed, Succeeded, outcome, snoozed};

/// Handlers that share a task, at most.
const HANDFUL_MAX: usize = 32;
/// A handful that takes longer is too much for one task.
const HANDFUL_TIME: Duration = Duration::from_micros(500);

/// An attempt that is over.
pub(super) struct Ended {
    pub(super) attempt: Arc<Attempt>,
    /// What to report; nothing where it would be refused.
    pub(super) outcome: Option<outcome::Result>,
}

/// How long a handler may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
}

impl Patience {
    /// The shorter of the worker's bound and the job's own.
    fn timeout_of(self, attempt: &Attempt) -> Option<Duration> {
        let own = attempt.job.timeout.and_then(|own| Duration::try_from(own).ok());
        match (self.timeout, own) {
            (Some(worker), Some(job)) => Some(worker.min(job)),
            (worker, job) => worker.or(job),
        }
    }
}

/// Reports the end of an attempt even if its handler panics.
struct Reporter {
    attempt: Arc<Attempt>,
    /// What there is to report; nothing until the handler has come to its end.
    verdict: Option<Option<outcome::Result>>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Reporter {
    fn report(mut self, outcome: Option<outcome::Result>) {
        self.verdict = Some(outcome);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let panicked = || Some(failed(Failure::Retry("the handler panicked".to_owned())));
        let outcome = self.verdict.take().unwrap_or_else(panicked);
        // Nobody hears it when the worker is gone.
        drop(self.ended.send(Ended { attempt: Arc::clone(&self.attempt), outcome }));
    }
}

/// What to run, and with what.
pub(super) type Turn = (Handler, Arc<Attempt>);

/// Runs handlers to their ends and reports them: one after the other as long as each ends at once, so that those with little to do
/// share one task. Whoever has to wait goes on in a task of its own, and so does each of the rest behind one that takes long.
pub(super) async fn attend(
    turns: Vec<Turn>,
    patience: Patience,
    ended: mpsc::UnboundedSender<Ended>,
    handfuls: Arc<Handfuls>,
) {
    let (began, count) = (time::now(), turns.len());
    let mut rest = Rest { turns: turns.into_iter(), patience, ended, handfuls };
    let mut all_at_once = true;
    while let Some((handler, attempt)) = rest.turns.next() {
        let (ended, is_last) = (rest.ended.clone(), rest.turns.len() == 0);
        let reporter = Reporter { attempt: Arc::clone(&attempt), verdict: None, ended };
        let mut work = handler(Context::new(Arc::clone(&attempt)));
        let polled = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        let timeout = patience.timeout_of(&attempt);
        match polled {
            Poll::Ready(verdict) => reporter.report(conclude(&attempt, timeout, Some(verdict))),
            Poll::Pending => {
                all_at_once = false;
                // Apart, because it is large: where a handler need not wait, its task is small.
                let waits = Box::pin(async move {
                    let verdict = wait_for(work, &attempt, timeout, patience.grace).await;
                    reporter.report(conclude(&attempt, timeout, verdict));
                });
                if is_last {
                    rest.handfuls.learn(count, false);
                    return waits.await;
                }
                tokio::spawn(waits);
            }
        }
        if time::now().saturating_duration_since(began) >= HANDFUL_TIME {
            all_at_once = false;
            break;
        }
    }
    rest.handfuls.learn(count, all_at_once);
}

/// Turns that are still to come. Should they not come here, because a handler panicked or took long, each has a task of its own.
struct Rest {
    turns: std::vec::IntoIter<Turn>,
    patience: Patience,
    ended: mpsc::UnboundedSender<Ended>,
    handfuls: Arc<Handfuls>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        if self.turns.len() == 0 {
            return;
        }
        self.handfuls.learn(self.turns.len(), false);
        // Without a runtime the worker is gone.
        let Ok(runtime) = Handle::try_current() else { return };
        for turn in self.turns.by_ref() {
            let (ended, handfuls) = (self.ended.clone(), Arc::clone(&self.handfuls));
            runtime.spawn(attend(vec![turn], self.patience, ended, handfuls));
        }
    }
}

/// How many handlers may share a task: more and more while they end at once, and one alone as soon as one does not.
#[derive(Debug)]
pub(super) struct Handfuls(AtomicUsize);

impl Default for Handfuls {
    fn default() -> Self {
        Self(AtomicUsize::new(1))
    }
}

impl Handfuls {
    pub(super) fn size(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A handful of so many ran; whether all ended at once. Only one of the size that is tried just now tells whether more may be.
    fn learn(&self, count: usize, all_at_once: bool) {
        if !all_at_once {
            self.0.store(1, Ordering::Relaxed);
        } else if count == self.size() {
            self.0.store((2 * count).min(HANDFUL_MAX), Ordering::Relaxed);
        }
    }
}

/// What is reported of an attempt whose handler has said so, or nothing in its time.
fn conclude(
    attempt: &Attempt,
    timeout: Option<Duration>,
    verdict: Option<Verdict>,
) -> Option<outcome::Result> {
    match (attempt.stopping(), verdict) {
        (Some(Stop::Cancelled | Stop::LeaseOver), _) => None,
        (Some(Stop::TimedOut), None) => Some(timed_out(timeout, None)),
        (Some(Stop::TimedOut), Some(Err(said))) => Some(timed_out(timeout, Some(said))),
        (Some(Stop::Shutdown), None | Some(Err(_))) => Some(judge(Err(Failure::Snooze(Duration::ZERO)))),
        (_, Some(verdict)) => Some(judge(verdict)),
        (None, None) => None,
    }
}

/// What a handler comes to within its time, and within the grace once it is to stop.
async fn wait_for(
    mut work: Work,
    attempt: &Attempt,
    timeout: Option<Duration>,
    grace: Duration,
) -> Option<Verdict> {
    let over = async {
        match timeout {
            Some(timeout) => time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        verdict = &mut work => Some(verdict),
        _ = attempt.stopped() => tokio::time::timeout(grace, work).await.ok(),
        () = over => {
            attempt.stop(Stop::TimedOut);
            tokio::time::timeout(grace, work).await.ok()
        }
    }
}

fn timed_out(after: Option<Duration>, said: Option<Failure>) -> outcome::Result {
    let mut error = format!("it took longer than {} s", after.unwrap_or_default().as_secs_f64());
    if let Some(Failure::Retry(text) | Failure::RetryAfter(text, _) | Failure::Final(text)) = said {
        error.push_str(&format!("; {text}"));
    }
    failed(Failure::Retry(error))
}

fn judge(verdict: Verdict) -> outcome::Result {
    let checked = |result: Bytes| bounds::check_json("the handler's result", &result).map(|()| result);
    match verdict.and_then(checked) {
        Ok(result) => outcome::Result::Succeeded(Succeeded { result }),
        Err(failure) => failed(failure),
    }
}

fn failed(failure: Failure) -> outcome::Result {
    let ended = |error: String, r#final: bool, retry_after: Option<Duration>| {
        let (error, retry_after) = (bounds::excerpt(error), retry_after.and_then(bounds::wait));
        outcome::Result::Failed(Failed { error, r#final, retry_after })
    };
    match failure {
        Failure::Retry(error) => ended(error, false, None),
        Failure::RetryAfter(error, after) => ended(error, false, Some(after)),
        Failure::Final(error) => ended(error, true, None),
        Failure::Snooze(delay) => {
            outcome::Result::Snoozed(Snoozed { when: bounds::wait(delay).map(snoozed::When::Delay) })
        }
        Failure::Cancelled(error) => outcome::Result::Cancelled(Cancelled { error: bounds::excerpt(error) }),
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::limits::{EXCERPT_BYTES_MAX, PAYLOAD_DEPTH_MAX, RESULT_BYTES_MAX};

    use super::*;
    use crate::proto::v1::LeasedJob;
    use crate::worker::handlers::{raw, typed};

    const PATIENCE: Patience = Patience { timeout: None, grace: Duration::from_secs(5) };

    fn attempt(timeout_s: i64) -> Arc<Attempt> {
        let timeout = Some(prost_types::Duration { seconds: timeout_s, nanos: 0 });
        Arc::new(Attempt::new(LeasedJob { payload: "null".into(), timeout, ..LeasedJob::default() }))
    }

    async fn ending(handler: Handler, attempt: Arc<Attempt>, patience: Patience) -> Option<outcome::Result> {
        let (ended, mut heard) = mpsc::unbounded_channel();
        // In a task, as a panic would end the test.
        let handfuls = Arc::default();
        drop(tokio::spawn(attend(vec![(handler, attempt)], patience, ended, handfuls)).await);
        heard.recv().await.and_then(|ended| ended.outcome)
    }

    fn error(outcome: Option<outcome::Result>) -> String {
        match outcome {
            Some(outcome::Result::Failed(failed)) => failed.error,
            other => panic!("not failed: {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_never_ends_is_dropped_after_timeout_and_grace() {
        let forever = typed(|_, (): ()| async move {
            std::future::pending::<()>().await;
            Ok(())
        });
        let said = error(ending(Arc::clone(&forever), attempt(7), PATIENCE).await);
        assert_eq!(said, "it took longer than 7 s");
        let short = Patience { timeout: Some(Duration::from_millis(500)), ..PATIENCE };
        assert_eq!(error(ending(forever, attempt(7), short).await), "it took longer than 0.5 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_may_still_succeed_within_the_grace() {
        let tidy = typed(|context: Context, (): ()| async move {
            assert_eq!(context.stopped().await, Stop::TimedOut);
            Ok("tidied up")
        });
        let outcome = ending(tidy, attempt(1), PATIENCE).await;
        assert!(matches!(outcome, Some(outcome::Result::Succeeded(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let panics = typed(|_, (): ()| async move { if true { panic!("on purpose") } else { Ok(()) } });
        assert_eq!(error(ending(panics, attempt(9), PATIENCE).await), "the handler panicked");
    }

    #[tokio::test]
    async fn a_result_that_the_server_would_refuse_is_a_failure_for_good() {
        let deep = [vec![b'['; PAYLOAD_DEPTH_MAX + 1], vec![b']'; PAYLOAD_DEPTH_MAX + 1]].concat();
        let large = format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX)).into_bytes();
        for (result, why) in [(deep, "nests deeper"), (large, "bytes; at most"), (b"{".to_vec(), "not JSON")]
        {
            let handler = raw(move |_, _| std::future::ready(Ok(Bytes::from(result.clone()))));
            let outcome = ending(handler, attempt(9), PATIENCE).await;
            assert!(
                matches!(&outcome, Some(outcome::Result::Failed(it)) if it.r#final && it.error.contains(why)),
                "{outcome:?}"
            );
        }
    }

    #[tokio::test]
    async fn texts_and_waits_beyond_what_the_server_takes_are_cut() {
        const DAY: Duration = Duration::from_secs(86_400);
        let long = || "é".repeat(1 << 20);
        for failure in [
            Failure::Retry(long()),
            Failure::RetryAfter(long(), 40 * DAY),
            Failure::Final(long()),
            Failure::Cancelled(long()),
            Failure::Snooze(Duration::MAX),
        ] {
            let handler = raw(move |_, _| std::future::ready(Err(failure.clone())));
            let (text, wait) = match ending(handler, attempt(9), PATIENCE).await {
                Some(outcome::Result::Failed(failed)) => (failed.error, failed.retry_after),
                Some(outcome::Result::Cancelled(cancelled)) => (cancelled.error, None),
                Some(outcome::Result::Snoozed(Snoozed { when: Some(snoozed::When::Delay(delay)) })) => {
                    (String::new(), Some(delay))
                }
                other => panic!("not reported as it was meant: {other:?}"),
            };
            assert!([0, EXCERPT_BYTES_MAX].contains(&text.len()), "{} bytes", text.len());
            assert!(wait.is_none_or(|wait| wait.seconds == 7 * 86_400), "{wait:?}");
        }
    }

    #[tokio::test]
    async fn what_was_called_off_reports_nothing_and_what_was_interrupted_costs_nothing() {
        let stops = typed(|context: Context, (): ()| async move {
            context.stopped().await;
            Err::<(), _>(Failure::retry("interrupted"))
        });
        let cancelled = attempt(9);
        cancelled.stop(Stop::Cancelled);
        assert_eq!(ending(Arc::clone(&stops), cancelled, PATIENCE).await, None);
        let ending_worker = attempt(9);
        ending_worker.stop(Stop::Shutdown);
        let outcome = ending(stops, ending_worker, PATIENCE).await;
        assert!(matches!(outcome, Some(outcome::Result::Snoozed(_))), "{outcome:?}");
    }

    /// Runs a handful of these handlers, each for a job of that id; in which order they ended, and which succeeded.
    async fn endings(handlers: &[(&str, Handler)]) -> (Vec<(String, bool)>, Arc<Handfuls>) {
        let (ended, mut heard) = mpsc::unbounded_channel();
        let turn = |(name, handler): &(&str, Handler)| {
            let job = LeasedJob { id: (*name).to_owned(), payload: "null".into(), ..LeasedJob::default() };
            (Arc::clone(handler), Arc::new(Attempt::new(job)))
        };
        let (turns, handfuls) = (handlers.iter().map(turn).collect(), Arc::default());
        drop(tokio::spawn(attend(turns, PATIENCE, ended, Arc::clone(&handfuls))).await);
        let mut endings = Vec::new();
        while let Some(ended) = heard.recv().await {
            let succeeded = matches!(ended.outcome, Some(outcome::Result::Succeeded(_)));
            endings.push((ended.attempt.job.id.clone(), succeeded));
        }
        (endings, handfuls)
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_in_a_handful_waits_for_another_or_is_lost_with_it() {
        let at_once = || typed(|_, (): ()| async move { Ok(()) });
        let waits = typed(|_, (): ()| async move {
            time::sleep(Duration::from_secs(60)).await;
            Ok(())
        });
        let panics = typed(|_, (): ()| async move { if true { panic!("on purpose") } else { Ok(()) } });
        let (endings, handfuls) = endings(&[
            ("a", at_once()),
            ("waits", waits),
            ("b", at_once()),
            ("panics", panics),
            ("c", at_once()),
            ("d", at_once()),
        ])
        .await;
        let expected =
            [("a", true), ("b", true), ("panics", false), ("c", true), ("d", true), ("waits", true)];
        assert_eq!(endings, expected.map(|(name, succeeded)| (name.to_owned(), succeeded)));
        assert!(handfuls.size() <= 2, "it begins anew");
    }

    #[tokio::test]
    async fn handlers_share_a_task_only_while_they_end_at_once() {
        let handfuls = Arc::new(Handfuls::default());
        for size in [2, 4, 8, 16, 32, 32] {
            handfuls.learn(handfuls.size(), true);
            assert_eq!(handfuls.size(), size);
        }
        handfuls.learn(1, true);
        assert_eq!(handfuls.size(), 32, "a few that are left over tell nothing");
        handfuls.learn(32, false);
        handfuls.learn(32, true);
        assert_eq!(handfuls.size(), 1, "nor does one that was begun before");
        let slow = || {
            raw(|_, payload| {
                // Blocks, as a handler should not.
                let began = time::now();
                while time::now().saturating_duration_since(began) < HANDFUL_TIME {}
                std::future::ready(Ok(payload))
            })
        };
        let (endings, learnt) = endings(&[("a", slow()), ("b", slow())]).await;
        assert_eq!((endings.len(), learnt.size()), (2, 1));
    }
}
