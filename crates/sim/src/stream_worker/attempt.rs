//! The course of one attempt in a worker on a stream.

use std::sync::Arc;

use tidewheel_core::job::{Command, Ending, Job};

use super::Process;
use super::hands::Key;
use super::outbox::Said;
use crate::conduct::{Conduct, Verdict};
use crate::dice::Dice;

/// How long a job may lie before its handler starts.
const LIES_MS_MAX: i64 = 3_000;
/// How long a handler that never ends takes up room.
const HANGS_MS: i64 = 20_000;
/// How much later a worker says things again.
const AGAIN_MS_MAX: i64 = 10_000;

/// Runs an attempt to whatever end its conduct has.
pub(super) async fn run(process: Arc<Process>, dice: Dice, job: Arc<Job>, conduct: Conduct) {
    let key = (job.id, job.status.token);
    let is_calm = process.world.is_calm();
    if !is_calm && dice.percent(30) {
        process.rest(dice.between(0, LIES_MS_MAX)).await;
    }
    if process.hands.begin(key) {
        if let Some(line) = &*process.line() {
            line.link.started(vec![key]);
        }
        work(&process, &dice, &job, conduct).await;
    }
    put_down(&process, key);
    if !is_calm && dice.percent(5) {
        process.rest(dice.between(100, AGAIN_MS_MAX)).await;
        end(&process, &dice, &job, conduct);
    }
}

async fn work(process: &Process, dice: &Dice, job: &Job, conduct: Conduct) {
    let key = (job.id, job.status.token);
    let (id, token) = key;
    let mut left_ms = conduct.takes_ms;
    while let Some(every_ms) = conduct.heartbeat_ms.filter(|every_ms| *every_ms < left_ms) {
        process.rest(every_ms).await;
        left_ms -= every_ms;
        if process.hands.is_stopped(key) && !conduct.deaf {
            return;
        }
        let command = Command::Heartbeat { token, extend_ms: process.subscription.lease_ms, progress: None };
        process.say(Said { tenant: job.tenant.clone(), id, token, command, ending: None });
    }
    process.rest(left_ms).await;
    if process.hands.is_stopped(key) && !conduct.deaf {
        return;
    }
    if conduct.verdict == Verdict::Silence {
        process.hands.owe(key);
        process.rest(HANGS_MS).await;
        return;
    }
    end(process, dice, job, conduct);
    if process.world.is_calm() {
        return;
    }
    if dice.percent(10) {
        end(process, dice, job, conduct);
    }
    if dice.percent(10) {
        // Two minds about it: whichever comes first counts.
        let verdict = if conduct.verdict == Verdict::Success { Verdict::Failure } else { Verdict::Success };
        end(process, dice, job, Conduct { verdict, ..conduct });
    }
}

fn end(process: &Process, dice: &Dice, job: &Job, conduct: Conduct) {
    let token = job.status.token;
    let report: Option<(Command, Ending)> = conduct.report(dice, token);
    if let Some((command, ending)) = report {
        process.say(Said { tenant: job.tenant.clone(), id: job.id, token, command, ending: Some(ending) });
    }
}

/// It is over, so there is room for another.
fn put_down(process: &Process, key: Key) {
    if process.hands.put_down(key)
        && let Some(line) = &*process.line()
    {
        line.add_credits(1);
    }
}
