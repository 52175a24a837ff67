//! One command for one job, in a process group of its own: what the command starts is stopped with it.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tidewheel_api::worker::{Context, Failure};
use tidewheel_server::clock::{Clock, SystemClock};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::tail::Tail;

/// Try again later, as sendmail has it (EX_TEMPFAIL).
const EXIT_RETRY: i32 = 75;
/// What of a payload's environment names the shell that runs its command, as in a crontab.
const SHELL: &str = "SHELL";
const SHELL_DEFAULT: &str = "/bin/sh";
/// How long pipes may stay open after the command ended: somebody it left behind holds them.
const PIPES_WITHIN: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// This, with the payload on stdin.
    Given(Vec<String>),
    /// What the payload says, as `import crontab` writes it.
    OfPayload,
}

/// A payload that says what to run.
#[derive(Debug, Deserialize)]
struct Order {
    command: String,
    #[serde(default)]
    env: std::collections::BTreeMap<String, String>,
}

impl Order {
    /// What runs the command.
    fn shell(&self) -> Result<&str, Failure> {
        let shell = self.env.get(SHELL).map_or(SHELL_DEFAULT, String::as_str);
        if Path::new(shell).is_absolute() {
            return Ok(shell);
        }
        let fault = "a shell is named by its whole path, such as /bin/bash";
        Err(Failure::permanent(format!("the payload's env says {SHELL}={shell}: {fault}")))
    }
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) exit: Option<i32>,
    pub(super) verdict: Result<Bytes, Failure>,
}

/// Kills the group unless its command was waited for.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Gone already is as good.
            kill_process_group(group, signal).ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs the command for a job. When the job is to stop, the group gets TERM, and KILL after `grace`.
pub(super) async fn run(program: &Program, context: &Context, payload: Bytes, grace: Duration) -> End {
    let mut child = match spawn(program, context, &payload) {
        Ok(child) => child,
        Err(failure) => return End { exit: None, verdict: Err(failure) },
    };
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let (mut result, mut complaint) = (Tail::default(), Tail::default());
    let status = {
        let mut pipes = std::pin::pin!(talk(&mut child, payload, &mut result, &mut complaint));
        let mut read = false;
        let mut ended = std::pin::pin!(wait(&mut child, &group, context, grace));
        let status = loop {
            tokio::select! {
                status = &mut ended => break status,
                () = &mut pipes, if !read => read = true,
            }
        };
        if !read && tokio::time::timeout(PIPES_WITHIN, pipes.as_mut()).await.is_err() {
            group.signal(Signal::KILL);
            drop(tokio::time::timeout(PIPES_WITHIN, pipes.as_mut()).await);
        }
        status
    };
    group.0 = None;
    judge(status, &result, &complaint)
}

/// Feeds the command its payload and keeps the end of what it says.
fn talk<'a>(
    child: &mut Child,
    payload: Bytes,
    result: &'a mut Tail,
    complaint: &'a mut Tail,
) -> impl Future<Output = ()> + use<'a> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    async move {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its payload is free not to.
                stdin.write_all(&payload).await.ok();
            }
        };
        let out = async {
            if let Some(pipe) = stdout {
                result.read(pipe).await;
            }
        };
        let err = async {
            if let Some(pipe) = stderr {
                complaint.read(pipe).await;
            }
        };
        tokio::join!(feed, out, err);
    }
}

/// Waits for the end of the command, asking for it once the job is to stop.
async fn wait(
    child: &mut Child,
    group: &Group,
    context: &Context,
    grace: Duration,
) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        _ = context.stopped() => group.signal(Signal::TERM),
    }
    tokio::select! {
        status = child.wait() => {
            // The others of the group had their warning too.
            group.signal(Signal::KILL);
            status
        }
        () = SystemClock::new().sleep(grace) => {
            group.signal(Signal::KILL);
            child.wait().await
        }
    }
}

fn spawn(program: &Program, context: &Context, payload: &Bytes) -> Result<Child, Failure> {
    let mut command = match program {
        Program::Given(words) => {
            let mut words = words.iter();
            let mut command = Command::new(words.next().map_or("", String::as_str));
            command.args(words);
            command
        }
        Program::OfPayload => {
            let order: Order = serde_json::from_slice(payload).map_err(|fault| {
                Failure::permanent(format!("the payload says no command to run: {fault}"))
            })?;
            let mut command = Command::new(order.shell()?);
            command.arg("-c").arg(order.command).envs(order.env);
            command
        }
    };
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command
        .envs(facts(context))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|fault| Failure::retry(format!("{name} cannot be started: {fault}")))
}

/// What a command knows of its job.
fn facts(context: &Context) -> Vec<(&'static str, String)> {
    let job = context.job();
    let time =
        |time: Option<tidewheel_core::time::Timestamp>| time.map(|it| it.to_string()).unwrap_or_default();
    vec![
        ("TIDEWHEEL_JOB_ID", job.id.clone()),
        ("TIDEWHEEL_TYPE", job.r#type.clone()),
        ("TIDEWHEEL_ATTEMPT", job.attempt.to_string()),
        ("TIDEWHEEL_TOKEN", job.token.to_string()),
        ("TIDEWHEEL_IDEMPOTENCY_KEY", job.idempotency_key.clone()),
        ("TIDEWHEEL_FIRE_AT", time(context.fire_at())),
        ("TIDEWHEEL_RUN_AT", time(context.run_at())),
        ("TIDEWHEEL_CATCH_UP", job.catch_up.to_string()),
        ("TIDEWHEEL_QUEUE", job.queue.clone()),
        ("TIDEWHEEL_TENANT", job.tenant.clone()),
        ("TIDEWHEEL_SCHEDULE_ID", job.schedule_id.clone()),
        // Under these names many programs look for the trace they belong to.
        ("TRACEPARENT", job.traceparent.clone()),
        ("TRACESTATE", job.tracestate.clone()),
    ]
}

fn judge(status: std::io::Result<ExitStatus>, result: &Tail, complaint: &Tail) -> End {
    let status = match status {
        Ok(status) => status,
        Err(fault) => return End { exit: None, verdict: Err(Failure::retry(fault)) },
    };
    let exit = status.code();
    let said = complaint.error();
    let text = |how: String| if said.is_empty() { how } else { format!("{how}: {said}") };
    let verdict = match exit {
        Some(0) => Ok(result.result()),
        Some(EXIT_RETRY) => Err(Failure::Retry(text(format!("exit {EXIT_RETRY}")))),
        Some(code) => Err(Failure::Final(text(format!("exit {code}")))),
        // Not its own decision: the machine was short of memory, or somebody stopped it.
        None => Err(Failure::Retry(text(status.to_string()))),
    };
    End { exit, verdict }
}
