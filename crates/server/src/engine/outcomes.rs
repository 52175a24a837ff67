//! Writes what runners report to the store, many reports per write, and tells the scheduler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::breaker::Answer;
use tidewheel_core::job::{Command, Job, Token};
use tidewheel_store::{Applied, Order, Refusal};
use tokio::sync::{Semaphore, mpsc};

use super::Shared;
use super::deliver::Report;
use super::leases::Renewal;
use super::scheduler::Message;
use super::target_answers::{self, Heard};

/// Reports in one write.
const BATCH_COUNT_MAX: usize = 4_096;
/// Writes under way at once: one being synced, one being gathered behind it, and a little slack.
const WRITES_MAX: usize = 4;
/// Wait before a failed write is tried again.
const RETRY_WAIT_MS: u64 = 100;

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<Shared>, mut reports: mpsc::UnboundedReceiver<Report>) {
    let writes = Arc::new(Semaphore::new(WRITES_MAX));
    let mut batch = Vec::new();
    loop {
        let Ok(permit) = Arc::clone(&writes).acquire_owned().await else { return };
        if reports.recv_many(&mut batch, BATCH_COUNT_MAX).await == 0 {
            return;
        }
        tell_of_targets(&shared, &batch);
        let orders: Vec<Order> = batch
            .drain(..)
            .map(|report| Order { tenant: report.tenant, id: report.id, command: report.command, key: None })
            .collect();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            write(&shared, orders).await;
            drop(permit);
        });
    }
}

/// Tells the scheduler how targets are; before the outcomes are written, so that no more is sent to one that is down.
fn tell_of_targets(shared: &Shared, batch: &[Report]) {
    let any_watched = shared.watched_targets.load(Ordering::SeqCst) > 0;
    let each = batch.iter().filter_map(target_answers::heard);
    let heard: Vec<Heard> = each.filter(|heard| any_watched || heard.answer != Answer::Fine).collect();
    if !heard.is_empty() {
        shared.tell(Message::Heard(heard));
    }
}

/// Writes orders, trying again while the store may recover, and tells the scheduler what came of them.
pub(super) async fn write(shared: &Shared, orders: Vec<Order>) {
    loop {
        match shared.store.apply(shared.clock.now(), None, orders.clone()).await {
            Ok(results) => {
                let mut jobs = Vec::with_capacity(results.len());
                let mut others = Vec::new();
                let mut refused = Vec::new();
                let mut renewed = Vec::new();
                for (order, result) in orders.iter().zip(results) {
                    match result {
                        Ok(mut applied) => {
                            others.append(&mut applied.others);
                            renewed.extend(Renewal::of(&order.command).map(|by| (applied.job.clone(), by)));
                            jobs.push(ended(shared, applied));
                        }
                        Err(refusal) => {
                            log_refusal(order, refusal);
                            refused.push((order.tenant.clone(), order.id, token_of(&order.command)));
                        }
                    }
                }
                shared.tell(Message::Reported { jobs, refused });
                if !renewed.is_empty() {
                    shared.tell(Message::Renewed(renewed));
                }
                shared.tell_changed(&others);
                return;
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, count = orders.len(), "outcomes could not be written; trying again");
                // They may have been, and with them jobs that nobody announces now.
                shared.hint_lost.store(true, Ordering::SeqCst);
                shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
            }
            Err(error) => {
                // The store keeps these attempts as running; the next start takes them up again.
                tracing::error!(%error, count = orders.len(), "outcomes could not be written");
                return;
            }
        }
    }
}

fn ended(shared: &Shared, applied: Applied) -> Arc<Job> {
    if applied.changed {
        shared.attempt_ended(&applied.job);
    }
    applied.job
}

fn log_refusal(order: &Order, refusal: Refusal) {
    tracing::debug!(job_id = %order.id, %refusal, "a report was refused");
}

const fn token_of(command: &Command) -> Option<Token> {
    match command {
        Command::Heartbeat { token, .. }
        | Command::Detach { token, .. }
        | Command::Succeed { token, .. }
        | Command::Fail { token, .. }
        | Command::Snooze { token, .. }
        | Command::Release { token }
        | Command::Abandon { token, .. }
        | Command::LeaseOver { token, .. }
        | Command::Lost { token }
        | Command::WorkerGone { token } => Some(*token),
        Command::Claim { .. }
        | Command::Cancel
        | Command::RunNow
        | Command::Amend { .. }
        | Command::Rerun { .. }
        | Command::Replay { .. }
        | Command::Discard => None,
    }
}
