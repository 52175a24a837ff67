//! A runner that reports by itself, over the API: a pull worker, or a target that took a job over.

use std::sync::Arc;

use tidewheel_core::job::{Command, Ending, Job, Token};
use tidewheel_store::Order;

use crate::conduct::Conduct;
use crate::dice::Dice;
use crate::history::{Event, Start};
use crate::world::{NoAnswer, World};

/// Tries to report before a runner gives up.
const TRIES: usize = 6;
/// The longest wait between two tries.
const RETRY_MS_MAX: i64 = 1_500;
/// What a heartbeat asks for.
const EXTEND_MS: i64 = 4_000;

/// What a runner notes when an attempt reaches it.
#[must_use]
pub fn start_of(job: &Job) -> Start {
    let claimed_at = job.status.running.as_ref().map_or(job.status.due_at, |running| running.started_at);
    Start {
        tenant: job.tenant.clone(),
        id: job.id,
        token: job.status.token,
        attempt: job.status.attempt,
        due_at: job.status.due_at,
        claimed_at,
        run_key: job.run_key(),
        occurrence: job.spec.occurrence,
    }
}

/// Runs an attempt to whatever end its conduct has.
pub async fn run(world: Arc<World>, dice: Arc<Dice>, job: Arc<Job>, conduct: Conduct) {
    let token = job.status.token;
    let mut left_ms = conduct.takes_ms;
    while let Some(every_ms) = conduct.heartbeat_ms.filter(|every_ms| *every_ms < left_ms) {
        world.sleep_ms(every_ms).await;
        left_ms -= every_ms;
        let heartbeat = Command::Heartbeat { token, extend_ms: EXTEND_MS, progress: None };
        if report(&world, &job, token, heartbeat, None).await == Some(false) {
            // The lease is lost; a careless runner goes on all the same.
            if !conduct.deaf {
                return;
            }
        }
    }
    world.sleep_ms(left_ms).await;
    let Some((command, ending)) = conduct.report(&dice, token) else { return };
    for _ in 0..TRIES {
        if report(&world, &job, token, command.clone(), Some(ending)).await.is_some() {
            break;
        }
        world.sleep_ms(dice.between(10, RETRY_MS_MAX)).await;
    }
    if dice.percent(5) {
        // Says it again much later: a repeat, or stale by then.
        world.sleep_ms(dice.between(100, 10_000)).await;
        report(&world, &job, token, command, Some(ending)).await;
    }
}

/// Sends one report; says whether it was taken, `None` without an answer.
async fn report(
    world: &World,
    job: &Job,
    token: Token,
    command: Command,
    ending: Option<Ending>,
) -> Option<bool> {
    let id = job.id;
    let order = Order { tenant: job.tenant.clone(), id, command, key: None };
    let answer = world.call(|engine| {
        world.history.note(Event::Reporting { id, token, ending });
        async move { engine.command(vec![order]).await }
    });
    match answer.await.map(|mut results| results.pop()) {
        Ok(Some(Ok(applied))) => {
            world.history.note(Event::Accepted { id, token, ending, changed: applied.changed });
            Some(true)
        }
        Ok(Some(Err(_))) => {
            world.history.note(Event::Refused { id, token });
            Some(false)
        }
        Ok(None) | Err(NoAnswer::NotSent | NoAnswer::Unclear) => None,
    }
}
