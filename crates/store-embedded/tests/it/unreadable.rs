//! Jobs whose records cannot be read: their own orders are refused, and nobody else's.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Finding, Job, Spec, State};
use tidewheel_core::limits::{DAY_MS, MINUTE_MS};
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Due, Error, Filter, IdempotencyClaim, ListQuery, OnConflict, Order, Refusal, Store, Submission, Submitted,
};
use tidewheel_store_embedded::faulty::FaultyKv;
use tidewheel_store_embedded::kv::{Batch, Direction, Durability, Keyspace, Kv};
use tidewheel_store_embedded::{EmbeddedStore, Options, bare};

use crate::workload::order;

/// Later than all jobs are due.
const NOW: Timestamp = Timestamp::from_ms(20_001 * DAY_MS);
const PAYLOAD_BYTES: usize = 100;

fn open(kv: &Arc<FaultyKv>) -> EmbeddedStore {
    EmbeddedStore::open_on(Arc::clone(kv) as Arc<dyn Kv>, Options::new("memory")).unwrap()
}

async fn submit(store: &EmbeddedStore, jobs: &[Job]) -> Result<Vec<Submitted>, Error> {
    let each = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: false });
    store.submit(NOW, each.collect(), OnConflict::KeepOthers).await
}

async fn start(store: &EmbeddedStore, jobs: &[Job]) -> Vec<Job> {
    submit(store, jobs).await.unwrap();
    let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: MINUTE_MS, detached: false };
    let orders = jobs.iter().map(|job| order(job, claim.clone())).collect();
    let answers = store.apply(NOW, None, orders).await.unwrap();
    answers.into_iter().map(|answer| Job::clone(&answer.unwrap().job)).collect()
}

/// So many jobs that run, in a store that was opened since: it has their payloads on disk alone.
async fn running(count: u64) -> (Arc<FaultyKv>, EmbeddedStore, Vec<Job>) {
    let kv = Arc::new(FaultyKv::default());
    let jobs: Vec<_> = (0..count).map(|n| bare::sample(n, PAYLOAD_BYTES)).collect();
    let jobs = start(&open(&kv), &jobs).await;
    let kv = Arc::new(FaultyKv::reopen(kv.image()));
    let store = open(&kv);
    (kv, store, jobs)
}

/// Puts this in place of a job's record, or takes the record away; gives what was there.
fn replace_record(kv: &FaultyKv, job: &Job, record: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let mut found = Vec::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut visit = |key: &[u8], value: &[u8]| {
        if key.ends_with(job.id.as_bytes()) {
            found.push((key.to_vec(), value.to_vec()));
        }
        ControlFlow::Continue(())
    };
    kv.snapshot().scan(Keyspace::Waiting, all, Direction::Up, &mut visit).unwrap();
    assert_eq!(found.len(), 1);
    write(kv, &found[0].0, record);
    found.remove(0)
}

fn write(kv: &FaultyKv, key: &[u8], record: Option<&[u8]>) {
    let mut batch = Batch::default();
    match record {
        Some(record) => batch.put(Keyspace::Waiting, key.to_vec(), record.to_vec()),
        None => batch.delete(Keyspace::Waiting, key.to_vec()),
    }
    kv.commit(batch, Durability::Synced).unwrap();
}

fn success(job: &Job) -> Order {
    order(job, Command::Succeed { token: job.status.token, finding: Finding::default() })
}

/// What became of each order: the state its job is in now, or why it was refused.
async fn apply(store: &EmbeddedStore, orders: Vec<Order>) -> Vec<Result<State, Refusal>> {
    let answers = store.apply(NOW, None, orders).await.unwrap();
    answers.into_iter().map(|answer| answer.map(|applied| applied.job.status.state)).collect()
}

#[tokio::test]
async fn an_outcome_of_an_unreadable_job_costs_no_other_its_own() {
    let (elsewhere, another) = (Arc::new(FaultyKv::default()), bare::sample(9, PAYLOAD_BYTES));
    submit(&open(&elsewhere), std::slice::from_ref(&another)).await.unwrap();
    let (_, of_another) = replace_record(&elsewhere, &another, None);
    // Of an unknown version, cut short, another one's, and gone.
    let damaged: [Option<&[u8]>; 4] = [Some(&[9, 0, 0]), Some(&[]), Some(&of_another), None];
    for record in damaged {
        let (kv, store, jobs) = running(3).await;
        let (key, before) = replace_record(&kv, &jobs[1], record);
        let beat = Command::Heartbeat { token: jobs[2].status.token, extend_ms: MINUTE_MS, progress: None };
        let orders = vec![success(&jobs[0]), success(&jobs[1]), order(&jobs[2], beat)];
        let answers = apply(&store, orders).await;
        assert_eq!(answers, [Ok(State::Succeeded), Err(Refusal::Unreadable), Ok(State::Running)]);
        let ended = store.get(&jobs[0].tenant, vec![jobs[0].id]).await.unwrap().remove(0).unwrap();
        assert_eq!((ended.status.state, &ended.spec), (State::Succeeded, &jobs[0].spec));

        // The store goes on, and has all that it had.
        let started = start(&store, &[bare::sample(3, PAYLOAD_BYTES)]).await;
        let answers = apply(&store, vec![success(&jobs[1]), success(&started[0]), success(&jobs[2])]).await;
        assert_eq!(answers, [Err(Refusal::Unreadable), Ok(State::Succeeded), Ok(State::Succeeded)]);
        assert_eq!(store.counts(None).await.unwrap().of(State::Running), 1);
        write(&kv, &key, Some(&before));
        assert_eq!(apply(&store, vec![success(&jobs[1])]).await, [Ok(State::Succeeded)]);
        let store = open(&Arc::new(FaultyKv::reopen(kv.image())));
        assert_eq!(store.counts(None).await.unwrap().of(State::Succeeded), 4);
        assert_eq!(store.running().await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_order_that_is_refused_so_leaves_its_key_free() {
    let (kv, store, jobs) = running(2).await;
    let (key, before) = replace_record(&kv, &jobs[0], Some(&[9, 0, 0]));
    let keyed = |job: &Job, name: &str| Order {
        key: Some(IdempotencyClaim { key: name.into(), fingerprint: [1; 16], until: NOW.plus_ms(DAY_MS) }),
        ..order(job, Command::Cancel)
    };
    let orders = || vec![keyed(&jobs[0], "a"), keyed(&jobs[1], "b")];
    assert_eq!(apply(&store, orders()).await, [Err(Refusal::Unreadable), Ok(State::Cancelled)]);
    assert_eq!(store.find_key(NOW, &jobs[0].tenant, "a").await.unwrap(), None);
    assert!(store.find_key(NOW, &jobs[1].tenant, "b").await.unwrap().is_some());
    write(&kv, &key, Some(&before));
    assert_eq!(apply(&store, orders()).await, [Ok(State::Cancelled), Ok(State::Cancelled)]);
}

/// So many jobs of one tenant that wait in one bucket.
fn together(count: i64) -> Vec<Job> {
    let Job { tenant, spec, id, .. } = bare::sample(0, PAYLOAD_BYTES);
    let start = Bucket::of(id.run_at()).start();
    (0..count).map(|n| Job::new(tenant.clone(), Spec::clone(&spec), start.plus_ms(n), 7)).collect()
}

/// Reads all that is due, page by page: the jobs, and how many could not be read.
async fn due(store: &EmbeddedStore, job: &Job, count_max: usize) -> (Vec<JobId>, usize) {
    let shard = Shard::of(&job.tenant, store.layout().shards);
    let bucket = Bucket::of(job.id.run_at());
    assert_eq!(store.next_bucket(shard, Bucket(0), bucket).await.unwrap(), Some(bucket));
    assert_eq!(store.due_tenants(shard, bucket, None, 10).await.unwrap().len(), 1);
    let (mut ids, mut unread, mut after) = (Vec::new(), 0, None);
    loop {
        let (tenant, until) = (job.tenant.clone(), Timestamp::MAX);
        let due = Due { shard, bucket, tenant, after, until, count_max, bytes_max: usize::MAX };
        let page = store.due(due).await.unwrap();
        ids.extend(page.jobs.iter().map(|job| job.id));
        unread += page.unread;
        let Some(resume) = page.resume else { return (ids, unread) };
        assert!(after.is_none_or(|before| before < resume), "every page moves on");
        after = Some(resume);
    }
}

#[tokio::test]
async fn due_reads_and_lists_go_on_without_what_cannot_be_read() {
    let kv = Arc::new(FaultyKv::default());
    let jobs = together(6);
    let store = open(&kv);
    start(&store, &jobs[..1]).await;
    submit(&store, &jobs[1..]).await.unwrap();
    let kv = Arc::new(FaultyKv::reopen(kv.image()));
    let store = open(&kv);
    // The first of them runs.
    for job in [&jobs[0], &jobs[2], &jobs[3]] {
        replace_record(&kv, job, Some(&[9, 0, 0]));
    }
    let failed = store.get(&jobs[2].tenant, vec![jobs[2].id]).await;
    let name = jobs[2].id.to_string();
    assert!(matches!(&failed, Err(Error::Corrupt(reason)) if reason.contains(&name)), "{failed:?}");
    let readable = [1, 4, 5].map(|n: usize| jobs[n].id);
    for count_max in [1, 2, 100] {
        assert_eq!(due(&store, &jobs[0], count_max).await, (readable.to_vec(), 3), "{count_max}");
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let (tenant, filter) = (jobs[0].tenant.clone(), Filter::default());
            let page = store.list(ListQuery { tenant, filter, after, count_max }).await.unwrap();
            ids.extend(page.jobs.iter().map(|job| job.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ids.reverse();
        assert_eq!(ids, readable, "{count_max}");
    }
}

#[tokio::test]
async fn submissions_beside_an_unreadable_job_of_the_same_id_fail_together() {
    let (kv, store, jobs) = running(1).await;
    replace_record(&kv, &jobs[0], Some(&[9, 0, 0]));
    let new = bare::sample(3, PAYLOAD_BYTES);
    let answers = submit(&store, &[new.clone(), bare::sample(0, PAYLOAD_BYTES)]).await;
    assert!(matches!(answers, Err(Error::Corrupt(_))), "{answers:?}");
    assert_eq!(store.get(&new.tenant, vec![new.id]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_disk_that_does_not_answer_fails_the_whole_call() {
    let (kv, store, jobs) = running(2).await;
    kv.set_reads_fail(true);
    let orders = || jobs.iter().map(success).collect::<Vec<_>>();
    let failed = store.apply(NOW, None, orders()).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    kv.set_reads_fail(false);
    assert_eq!(apply(&store, orders()).await, [Ok(State::Succeeded), Ok(State::Succeeded)]);
}
