//! `worker run`: a command per job.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use tidewheel_api::worker::{
    CONCURRENCY_DEFAULT, Context, Error, Event, Failure as JobFailure, Stop, Worker, WorkerConfig,
};
use tidewheel_core::names::{check_queue, check_type, check_worker};
use tidewheel_core::time::{format_duration, parse_duration};
use tidewheel_server::clock::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

use super::command::{self, End, Program};
use crate::connect::Link;
use crate::failure::Failure;
use crate::out::{Out, excerpt, printable};

const EXAMPLES: &str = "\
The payload is on the command's stdin. TIDEWHEEL_JOB_ID, _TYPE, _ATTEMPT, _TOKEN, _IDEMPOTENCY_KEY,
_FIRE_AT, _RUN_AT, _CATCH_UP, _QUEUE, _TENANT and _SCHEDULE_ID tell the rest.
Exit 0: done; the last line of stdout is the job's result if it is JSON, else its last lines are.
Exit 75, or killed by a signal: tried again as the job's retry policy says.
Any other exit: the job is dead, with the last lines of stderr.
Each command has a process group of its own, which is ended (TERM, then KILL after --grace) when the
job takes too long, is cancelled or has lost its lease, or when the worker ends.
SIGTERM or SIGINT: takes no more jobs, waits for those that run (--drain), then ends; a second one
does not wait.

Examples:
  tidewheel worker run --queue mail -- ./send-mail.sh
  tidewheel worker run --queue reports --type nightly --concurrency 2 --timeout 10m -- python3 report.py
  tidewheel worker run --queue commands --danger-run-payload";

/// After KILL, how long the worker waits for the command before it goes on without it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// The flags of `worker run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The queue to take jobs of; may be given more than once
    #[arg(long, value_name = "QUEUE", required = true, value_parser = queue)]
    queue: Vec<String>,
    /// Only jobs of this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    kinds: Vec<String>,
    /// Only jobs at least this urgent: critical, high, normal, low
    #[arg(long, value_name = "PRIORITY", value_parser = ["critical", "high", "normal", "low"])]
    min_priority: Option<String>,
    /// Commands that run at once
    #[arg(long, value_name = "COUNT", default_value_t = CONCURRENCY_DEFAULT)]
    concurrency: usize,
    /// How long a command may take, where it is shorter than the job's own timeout
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// How long a job is safe from other workers should this one fall silent
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    lease: Duration,
    /// Between TERM and KILL
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    grace: Duration,
    /// How long commands may go on after SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain: Duration,
    /// The worker's name [default: the machine's, and the process id]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Runs the payload's `command` with its `env` by /bin/sh, or by the SHELL of that `env`, as `import crontab`
    /// makes them: whoever may submit to the queue may run anything here
    #[arg(long, conflicts_with = "command")]
    danger_run_payload: bool,
    /// The command, and what it is given
    #[arg(last = true, value_name = "CMD", required_unless_present = "danger_run_payload")]
    command: Vec<String>,
}

fn checked(text: &str, fault: Result<(), impl ToString>) -> Result<String, String> {
    fault.map(|()| text.to_owned()).map_err(|fault| fault.to_string())
}

fn queue(text: &str) -> Result<String, String> {
    checked(text, check_queue(text))
}

fn kind(text: &str) -> Result<String, String> {
    checked(text, check_type(text))
}

fn name(text: &str) -> Result<String, String> {
    checked(text, check_worker(text))
}

fn duration(text: &str) -> Result<Duration, String> {
    let ms = parse_duration(text).map_err(|fault| fault.to_string())?;
    Ok(Duration::from_millis(ms.unsigned_abs()))
}

/// Works until it was asked to stop.
pub(super) async fn run(args: RunArgs, link: &Link) -> Result<(), Failure> {
    let out = link.out;
    let program =
        if args.danger_run_payload { Program::OfPayload } else { Program::Given(args.command.clone()) };
    let grace = args.grace;
    let mut worker = Worker::connect(config(args, link)?).await.map_err(fail)?;
    let (program, clock) = (Arc::new(program), Arc::new(SystemClock::new()));
    worker.handle_any(move |context, payload| {
        let (program, clock) = (Arc::clone(&program), Arc::clone(&clock));
        async move { attend(&program, &context, payload, grace, &clock, out).await }
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stopper = worker.stopper();
    let mut work = std::pin::pin!(worker.run());
    let mut asked = false;
    loop {
        tokio::select! {
            ended = &mut work => return ended.map_err(fail),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if asked {
            stopper.stop_now();
        } else {
            out.note("taking no more jobs; waiting for those that run");
            stopper.drain();
        }
        asked = true;
    }
}

fn config(args: RunArgs, link: &Link) -> Result<WorkerConfig, Failure> {
    let out = link.out;
    let client = link.config()?;
    let name = args.name.unwrap_or_else(|| format!("{}-{}", machine(), std::process::id()));
    let config = WorkerConfig {
        key: client.key,
        tenant: client.tenant,
        tls: client.tls,
        queues: args.queue,
        name,
        types: args.kinds,
        min_priority: args.min_priority,
        concurrency: args.concurrency,
        // A command takes longer than the way to the server: nothing waits here that others could start.
        prefetch: Some(0),
        lease: args.lease,
        timeout: args.timeout,
        grace: args.grace.saturating_add(AFTER_KILL),
        drain: args.drain,
        ..WorkerConfig::new(client.url, "")
    };
    Ok(config.on_event(move |event| tell(event, out)))
}

/// The machine's name, as far as a worker's name may hold it.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = text.trim().chars().filter(char::is_ascii_graphic).take(64).collect();
    if name.is_empty() { "worker".to_owned() } else { name }
}

fn tell(event: &Event, out: Out) {
    match event {
        Event::Connected { worker_id, resumed: false } => out.note(&format!("connected as {worker_id}")),
        Event::Connected { worker_id, resumed: true } => out.note(&format!("connected again as {worker_id}")),
        Event::Disconnected { error, .. } => out.note(&format!("{error}; still trying")),
        Event::ReportRefused { id, detail, .. } => out.note(&format!("{id}: {detail}")),
    }
}

fn fail(error: Error) -> Failure {
    match error {
        Error::Unreachable { url, cause } => {
            Failure::Call(tidewheel_api::client::Error::Unreachable { url, cause })
        }
        Error::Setup(text) => Failure::Usage(text),
        Error::Lost(_) | Error::Refused { .. } | Error::Unreported(_) => Failure::Refused(error.to_string()),
    }
}

/// Runs the command for one job, and tells how it ended.
async fn attend(
    program: &Program,
    context: &Context,
    payload: Bytes,
    grace: Duration,
    clock: &SystemClock,
    out: Out,
) -> Result<Bytes, JobFailure> {
    let began_ms = clock.monotonic_ms();
    let End { exit, verdict } = command::run(program, context, payload, grace).await;
    let took_ms = clock.monotonic_ms() - began_ms;
    let (word, detail) = told(&verdict, context.stopping(), context.attempt(), context.job().max_attempts);
    let (id, kind, attempt) = (context.id(), &context.job().r#type, context.attempt());
    let line = if out.is_json() {
        json!({"id": id, "type": kind, "attempt": attempt, "outcome": word, "exit": exit, "ms": took_ms, "detail": detail})
            .to_string()
    } else {
        let took = format_duration(took_ms);
        let detail = printable(&excerpt(&detail));
        let line = format!("{id}  {kind} #{attempt}  {word} after {took}  {detail}");
        line.trim_end().to_owned()
    };
    // Without a stdout the work goes on: the server has the outcomes.
    out.line(&line).ok();
    verdict
}

/// The word for what came of a command, and the rest. One that was asked to stop and was done all the same has succeeded, unless
/// its job was called off or is another worker's by now.
fn told(
    verdict: &Result<Bytes, JobFailure>,
    stopping: Option<Stop>,
    attempt: u32,
    max_attempts: u32,
) -> (&'static str, String) {
    match (verdict, stopping) {
        (Ok(result), None | Some(Stop::TimedOut | Stop::Shutdown)) => {
            ("succeeded", String::from_utf8_lossy(result).into_owned())
        }
        (_, Some(why)) => ("stopped", format!("{why:?}")),
        (Err(failure), None) => failed(failure, attempt, max_attempts),
    }
}

/// The word for a failure, and its reason. Another attempt is promised only where there will be one: from the last on
/// that the policy allows, the word is that of a final failure. Attempts that cost nothing have numbers, too, so there
/// may be one more all the same; only the server knows. One that does not say how many are allowed says 0.
fn failed(failure: &JobFailure, attempt: u32, max_attempts: u32) -> (&'static str, String) {
    let may_be_last = max_attempts > 0 && attempt >= max_attempts;
    match failure {
        JobFailure::Final(error) => ("failed", error.clone()),
        JobFailure::Retry(error) | JobFailure::RetryAfter(error, _) => {
            (if may_be_last { "failed" } else { "retried" }, error.clone())
        }
        JobFailure::Cancelled(error) => ("cancelled", error.clone()),
        JobFailure::Snooze(_) => ("retried", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_although_it_was_to_stop_has_succeeded_where_it_counts() {
        let (done, failure) = (Ok(Bytes::from_static(b"1")), Err(JobFailure::retry("killed")));
        let word = |verdict: &Result<Bytes, JobFailure>, why| told(verdict, why, 1, 5).0;
        for (why, word_of_done) in [
            (Some(Stop::TimedOut), "succeeded"),
            (Some(Stop::Shutdown), "succeeded"),
            (Some(Stop::Cancelled), "stopped"),
            (Some(Stop::LeaseOver), "stopped"),
        ] {
            assert_eq!((word(&done, why), word(&failure, why)), (word_of_done, "stopped"), "{why:?}");
        }
        assert_eq!((word(&done, None), word(&failure, None)), ("succeeded", "retried"));
    }

    #[test]
    fn another_attempt_is_promised_only_where_there_is_one() {
        let word = |failure: &JobFailure, attempt, max_attempts| failed(failure, attempt, max_attempts).0;
        let retry = JobFailure::retry("why");
        let later = JobFailure::retry_after("why", Duration::from_secs(1));
        for failure in [&retry, &later] {
            assert_eq!(
                [(1, 2), (2, 2), (3, 2), (1, 1)].map(|(attempt, max)| word(failure, attempt, max)),
                ["retried", "failed", "failed", "failed"]
            );
            assert_eq!(word(failure, 7, 0), "retried", "a server that does not say how many there may be");
        }
        assert_eq!(failed(&retry, 2, 2).1, "why");
        assert_eq!(word(&JobFailure::Final("why".to_owned()), 1, 5), "failed");
        assert_eq!(word(&JobFailure::Snooze(Duration::ZERO), 2, 2), "retried", "it costs no attempt");
        assert_eq!(word(&JobFailure::Cancelled("why".to_owned()), 1, 5), "cancelled");
    }
}
