//! Writes what runners report to the store, many reports per write, and tells the scheduler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::breaker::Answer;
use tidewheel_store::{Order, Refusal};
use tokio::sync::{Semaphore, mpsc};

use super::Shared;
use super::deliver::Report;
use super::leases::Renewal;
use super::scheduler::Message;
use super::target_answers::{self, Heard};
use crate::metrics::Endings;

/// A write of so many reports takes in no more of them.
const BATCH_COUNT_ENOUGH: usize = 2_048;
/// Writes under way at once: one being synced, one being gathered behind it, and a little slack.
const WRITES_MAX: usize = 4;
/// Wait before a failed write is tried again.
const RETRY_WAIT_MS: u64 = 100;

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<Shared>, mut reports: mpsc::UnboundedReceiver<Vec<Report>>) {
    let writes = Arc::new(Semaphore::new(WRITES_MAX));
    let is_spread = shared.store.databases().len() > 1;
    let (late, written_late) = mpsc::unbounded_channel();
    tokio::spawn(write_late(Arc::clone(&shared), written_late));
    loop {
        let Ok(permit) = Arc::clone(&writes).acquire_owned().await else { return };
        let Some(mut batch) = reports.recv().await else { return };
        while batch.len() < BATCH_COUNT_ENOUGH
            && let Ok(mut more) = reports.try_recv()
        {
            batch.append(&mut more);
        }
        tell_of_targets(&shared, &batch);
        let orders: Vec<Order> = batch
            .into_iter()
            .map(|report| Order { tenant: report.tenant, id: report.id, command: report.command, key: None })
            .collect();
        let (shared, late) = (Arc::clone(&shared), is_spread.then(|| late.clone()));
        tokio::spawn(async move {
            match late {
                None => write(&shared, orders).await,
                Some(late) => {
                    let left = write_once(&shared, orders).await;
                    if !left.is_empty() {
                        set_aside(&shared, &left);
                        // Fails only once the engine is gone.
                        drop(late.send(left));
                    }
                }
            }
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
    let mut left = write_once(shared, orders).await;
    if left.is_empty() {
        return;
    }
    while !left.is_empty() {
        shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
        left = write_once(shared, left).await;
    }
    may_have_missed(shared);
}

/// Has the scheduler take attempts for ended whose outcomes wait for a database that is away: their places are for others.
fn set_aside(shared: &Shared, orders: &[Order]) {
    let each = orders.iter().map(|order| (order.tenant.clone(), order.id, order.command.token()));
    shared.tell(Message::Reported { jobs: Vec::new(), refused: each.collect(), unreadable: Vec::new() });
}

/// Keeps outcomes whose database is away, and writes them once it is back, so that who reported them need not wait for it.
pub(super) fn keep(shared: &Arc<Shared>, orders: Vec<Order>) {
    if !orders.is_empty() {
        set_aside(shared, &orders);
        let shared = Arc::clone(shared);
        tokio::spawn(async move { write(&shared, orders).await });
    }
}

/// A try that seemed to fail may have been written, and with it jobs that nobody announces now.
fn may_have_missed(shared: &Shared) {
    shared.hint_lost.store(true, Ordering::SeqCst);
}

/// Writes orders, and tells the scheduler what came of them; gives back those that could not be written now.
async fn write_once(shared: &Shared, orders: Vec<Order>) -> Vec<Order> {
    let results = match shared.store.apply(shared.clock.now(), None, orders.clone()).await {
        Ok(results) => results,
        Err(error) if error.is_retryable() => {
            tracing::warn!(%error, count = orders.len(), "outcomes could not be written; trying again");
            return orders;
        }
        Err(error) => {
            shared.note_poison(&error);
            // The store keeps these attempts as running; the next start takes them up again.
            tracing::error!(%error, count = orders.len(), "outcomes could not be written");
            return Vec::new();
        }
    };
    let mut jobs = Vec::with_capacity(results.len());
    let (mut others, mut refused, mut renewed, mut left) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut unreadable, mut endings) = (Vec::new(), Endings::default());
    for (order, result) in orders.into_iter().zip(results) {
        match result {
            Ok(mut applied) => {
                others.append(&mut applied.others);
                renewed.extend(Renewal::of(&order.command).map(|by| (applied.job.clone(), by)));
                if applied.changed {
                    shared.attempt_ended(&applied.job, &mut endings);
                }
                jobs.push(applied.job);
            }
            Err(Refusal::Away) => left.push(order),
            Err(Refusal::Unreadable) => {
                // The store keeps the attempt as running.
                tracing::error!(
                    tenant = %order.tenant,
                    job_id = %order.id,
                    "an outcome could not be written: the job cannot be read"
                );
                unreadable.extend(order.command.token().map(|token| (order.id, token)));
            }
            Err(refusal) => {
                log_refusal(&order, refusal);
                refused.push((order.tenant.clone(), order.id, order.command.token()));
            }
        }
    }
    shared.metrics.ended(&endings);
    if !left.is_empty() {
        tracing::warn!(
            count = left.len(),
            "outcomes could not be written to a database that is away; trying again"
        );
    }
    shared.tell(Message::Reported { jobs, refused, unreadable });
    if !renewed.is_empty() {
        shared.tell(Message::Renewed(renewed));
    }
    shared.tell_changed(&others);
    left
}

/// Writes what could not be written at once, all of it together again and again, until every sender is gone and nothing is left:
/// what waits for a database that is away is in nobody's way.
async fn write_late(shared: Arc<Shared>, mut late: mpsc::UnboundedReceiver<Vec<Order>>) {
    let mut orders: Vec<Order> = Vec::new();
    loop {
        if orders.is_empty() {
            match late.recv().await {
                Some(some) => orders = some,
                None => return,
            }
        }
        shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
        while let Ok(mut some) = late.try_recv() {
            orders.append(&mut some);
        }
        let (count, mut left) = (orders.len(), Vec::new());
        while !orders.is_empty() {
            let rest = orders.split_off(orders.len().min(BATCH_COUNT_ENOUGH));
            left.append(&mut write_once(&shared, std::mem::replace(&mut orders, rest)).await);
        }
        if left.len() < count {
            may_have_missed(&shared);
        }
        orders = left;
    }
}

fn log_refusal(order: &Order, refusal: Refusal) {
    tracing::debug!(job_id = %order.id, %refusal, "a report was refused");
}
