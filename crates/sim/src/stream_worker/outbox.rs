//! What a worker on a stream has to say of its attempts: said in batches, and again when there was no answer.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Ending, Token};
use tidewheel_core::names::Tenant;
use tidewheel_store::{Applied, Order, Refusal};
use tokio::sync::mpsc;

use super::{Line, Process};
use crate::history::Event;

/// Something said of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) tenant: Tenant,
    pub(super) id: JobId,
    pub(super) token: Token,
    pub(super) command: Command,
    /// How it ended; `None` for a sign of life.
    pub(super) ending: Option<Ending>,
}

/// Items in one batch.
const BATCH_MAX: usize = 8;
/// Tries before a batch is given up.
const TRIES: usize = 8;

/// Says everything, batch by batch.
pub(super) async fn run(process: Arc<Process>, mut said: mpsc::UnboundedReceiver<Said>) {
    let mut batch = Vec::new();
    while said.recv_many(&mut batch, BATCH_MAX).await > 0 {
        process.rest(process.dice.pick(&[0, 1, 20], 1)).await;
        let mut tries_left = TRIES;
        while !batch.is_empty() && tries_left > 0 {
            let line = process.line().clone();
            if let Some(line) = line {
                tries_left -= 1;
                if speak(&process, &line, &batch).await {
                    batch.clear();
                    break;
                }
                // Signs of life are not said again.
                batch.retain(|said| said.ending.is_some());
            }
            process.rest(process.dice.between(10, 1_000)).await;
        }
        batch.clear();
    }
}

/// Says a batch; whether it was answered.
async fn speak(process: &Process, line: &Line, batch: &[Said]) -> bool {
    let world = &process.world;
    let mut orders = Vec::new();
    for said in batch {
        world.history.note(Event::Reporting { id: said.id, token: said.token, ending: said.ending });
        let command = said.command.clone();
        orders.push(Order { tenant: said.tenant.clone(), id: said.id, command, key: None });
    }
    if world.plan.unfenced {
        unfence(process, &mut orders).await;
    }
    let link = line.link.clone();
    // Apart: what was sent takes its course, also when the worker dies.
    let answer = tokio::spawn(async move { link.report(orders).await }).await;
    // Signs of an answer of a server that is gone never arrive.
    if !world.is_alive(line.life) {
        return false;
    }
    let Ok(Ok(results)) = answer else { return false };
    for (said, result) in batch.iter().zip(results) {
        hear(process, said, &result);
    }
    true
}

fn hear(process: &Process, said: &Said, result: &Result<Applied, Refusal>) {
    let Said { id, token, ending, .. } = *said;
    match result {
        Ok(applied) => {
            if ending.is_some() {
                process.hands.settle((id, token));
            }
            process.world.history.note(Event::Accepted { id, token, ending, changed: applied.changed });
        }
        Err(_) => {
            process.world.history.note(Event::Refused { id, token });
            process.hands.stop((id, token));
        }
    }
}

/// What a server would make of reports if it did not look at their tokens.
async fn unfence(process: &Process, orders: &mut [Order]) {
    let Some(engine) = process.world.engine() else { return };
    for order in orders {
        let Command::Succeed { token, .. } = &mut order.command else { continue };
        let found = engine.store().get(&order.tenant, vec![order.id]).await.unwrap_or_default();
        if let Some(Some(job)) = found.first() {
            *token = job.status.token;
        }
    }
}
