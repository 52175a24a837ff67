//! Cuts the power at every sync, and lets syncs fail: what was acknowledged is there, nothing is half done.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, Health, OnConflict, Store, Submission};
use tidewheel_store_embedded::faulty::{Fault, FaultyKv, Image};
use tidewheel_store_embedded::kv::Space;
use tidewheel_store_embedded::{EmbeddedStore, Options};

use crate::workload::{self, Dice, Player, dump, submission};

const SEEDS: u64 = 6;
const CALLS: usize = 50;

fn store_on(kv: Arc<FaultyKv>) -> EmbeddedStore {
    EmbeddedStore::open_on(kv, Options { shards: 4, ..Options::new("memory") }).unwrap()
}

/// The last image taken.
fn watch(kv: &FaultyKv) -> Arc<Mutex<Vec<Image>>> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    kv.set_on_sync(Box::new(move |_, image| seen.lock().unwrap().push(image)));
    images
}

#[tokio::test]
async fn a_cut_after_any_call_leaves_exactly_what_was_acknowledged() {
    for seed in 0..SEEDS {
        let kv = Arc::new(FaultyKv::default());
        let store = store_on(Arc::clone(&kv));
        let images = watch(&kv);
        let mut player = Player::new(seed);
        for call in 0..CALLS {
            player.play(&store).await;
            let image = kv.image();
            let reopened = store_on(Arc::new(FaultyKv::reopen(image)));
            let (expected, found) = (dump(&store).await, dump(&reopened).await);
            assert_eq!(expected, found, "seed {seed}, call {call}");
        }
        // Some calls sync more than once (dropping history); between those the store must be whole too.
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > CALLS / 2);
        for image in images {
            drop(dump(&store_on(Arc::new(FaultyKv::reopen(image)))).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_at_any_sync_keeps_all_that_was_acknowledged_before_it() {
    let kv = Arc::new(FaultyKv::default());
    let store = Arc::new(store_on(Arc::clone(&kv)));
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    {
        let (acknowledged, cuts) = (Arc::clone(&acknowledged), Arc::clone(&cuts));
        kv.set_on_sync(Box::new(move |_, image| {
            cuts.lock().unwrap().push((acknowledged.lock().unwrap().len(), image));
        }));
    }
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let mut dice = Dice::new(1_000 + task);
                for _ in 0..40 {
                    let one = |dice: &mut Dice| Submission { key: None, ..submission(dice) };
                    let batch: Vec<_> = (0..dice.below(5) + 1).map(|_| one(&mut dice)).collect();
                    let jobs: Vec<_> = batch.iter().map(|submission| submission.job.clone()).collect();
                    store.submit(Timestamp::from_ms(0), batch, OnConflict::KeepOthers).await.unwrap();
                    acknowledged.lock().unwrap().extend(jobs);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let acknowledged = acknowledged.lock().unwrap().clone();
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    assert!(cuts.len() < 320, "calls side by side share syncs");
    for (count, image) in cuts {
        let reopened = store_on(Arc::new(FaultyKv::reopen(image)));
        for job in &acknowledged[..count] {
            let found = reopened.get(&job.tenant, vec![job.id]).await.unwrap();
            assert_eq!(found, [Some(job.clone())]);
        }
    }
}

#[tokio::test]
async fn a_failed_sync_ends_all_writing_until_the_disk_is_read_again() {
    for fault in [Fault::Lost, Fault::Kept] {
        for seed in 0..SEEDS {
            let kv = Arc::new(FaultyKv::default());
            let store = store_on(Arc::clone(&kv));
            let mut player = Player::new(seed);
            for _ in 0..20 {
                player.play(&store).await;
            }
            let before = dump(&store).await;
            kv.set_plan(Box::new(move |_| Some(fault)));
            let mut dice = Dice::new(seed);
            let lost = submission(&mut dice);
            let now = Timestamp::from_ms(0);
            let outcome = store.submit(now, vec![lost.clone()], OnConflict::KeepOthers).await;
            assert!(matches!(outcome, Err(Error::Poisoned(_))), "{outcome:?}");
            // The disk is well again, but nobody knows what it holds.
            kv.set_plan(Box::new(|_| None));
            for outcome in [
                store.submit(now, vec![lost.clone()], OnConflict::KeepOthers).await.err(),
                store.apply(now, None, Vec::new()).await.err(),
                store.open_epoch().await.err(),
                store.drop_history(now, now).await.err(),
            ] {
                assert!(matches!(outcome, Some(Error::Poisoned(_))), "{outcome:?}");
            }
            assert!(matches!(store.health(), Health::ReadOnly(_)));
            assert_eq!(before, dump(&store).await, "readers see only what was synced");

            let reopened = store_on(Arc::new(FaultyKv::reopen(kv.image())));
            assert_eq!(reopened.health(), Health::Ready);
            if fault == Fault::Lost {
                assert_eq!(before, dump(&reopened).await);
            }
            // Sending it again is safe, whatever became of it.
            let again = reopened.submit(now, vec![lost.clone()], OnConflict::KeepOthers).await.unwrap();
            assert_eq!(again.len(), 1);
            let found = reopened.get(&lost.job.tenant, vec![lost.job.id]).await.unwrap();
            assert_eq!(found, [Some(lost.job)]);
        }
    }
}

/// Holds commits up until the second of the two is dropped; the first is told of each that begins.
fn hold_commits(kv: &FaultyKv) -> (Receiver<()>, Sender<()>) {
    let (began, is_begun) = channel();
    let (open, gate) = channel();
    let gate = Mutex::new(gate);
    kv.set_before_commit(Arc::new(move || {
        began.send(()).ok();
        // Once opened, it stays open.
        gate.lock().unwrap().recv().ok();
    }));
    (is_begun, open)
}

/// Whoever asks for a job that is being written waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_being_written_is_seen_by_whoever_comes_next() {
    let kv = Arc::new(FaultyKv::default());
    let store = Arc::new(store_on(Arc::clone(&kv)));
    let (mut dice, now) = (Dice::new(7), Timestamp::from_ms(0));
    let [there, unknown] = [0; 2].map(|_| Submission { key: None, ..submission(&mut dice) });
    store.submit(now, vec![there.clone()], OnConflict::KeepOthers).await.unwrap();

    let (is_begun, open) = hold_commits(&kv);
    let obey = |job: &tidewheel_core::job::Job| {
        let (store, cancel) =
            (Arc::clone(&store), workload::order(job, tidewheel_core::job::Command::Cancel));
        tokio::spawn(async move { store.apply(now, None, vec![cancel]).await.unwrap().remove(0) })
    };
    let first = obey(&there.job);
    let is_begun = tokio::task::spawn_blocking(move || is_begun.recv().map(|()| is_begun));
    drop(is_begun.await.unwrap().unwrap());

    // Were the second judged by what is on disk, the third would be heard next, and read.
    let (read, is_read) = channel();
    let wanted = Arc::new(Mutex::new(2));
    kv.set_before_read(Arc::new(move || {
        let mut left = wanted.lock().unwrap();
        *left -= 1;
        if *left == 0 {
            read.send(()).ok();
        }
    }));
    let second = obey(&there.job);
    let third = obey(&unknown.job);
    let waited = tokio::task::spawn_blocking(move || is_read.recv_timeout(Duration::from_millis(100)));
    waited.await.unwrap().ok();
    drop(open);
    assert!(first.await.unwrap().unwrap().changed);
    assert!(!second.await.unwrap().unwrap().changed, "it was cancelled already");
    assert!(third.await.unwrap().is_err());
}

/// The same goes for what lies ready behind it, to be written next.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_lies_ready_to_be_written_is_seen_by_whoever_comes_next() {
    let kv = Arc::new(FaultyKv::default());
    let store = Arc::new(store_on(Arc::clone(&kv)));
    let (mut dice, now) = (Dice::new(8), Timestamp::from_ms(0));
    let (is_begun, open) = hold_commits(&kv);
    let (read, is_read) = channel();
    kv.set_before_read(Arc::new(move || {
        read.send(()).ok();
    }));
    let mut some = || [0; 4].map(|_| Submission { key: None, fresh: false, ..submission(&mut dice) });
    let submit = |some: &[Submission; 4]| {
        let (store, some) = (Arc::clone(&store), some.to_vec());
        tokio::spawn(async move { store.submit(now, some, OnConflict::KeepOthers).await.unwrap() })
    };
    let cancel = |job: &tidewheel_core::job::Job| {
        let (store, cancel) =
            (Arc::clone(&store), workload::order(job, tidewheel_core::job::Command::Cancel));
        tokio::spawn(async move { store.apply(now, None, vec![cancel]).await.unwrap().remove(0) })
    };
    let (first, second) = (some(), some());
    let written = submit(&first);
    let is_begun = tokio::task::spawn_blocking(move || is_begun.recv().map(|()| is_begun));
    drop(is_begun.await.unwrap().unwrap());
    let is_read = tokio::task::spawn_blocking(move || {
        is_read.try_iter().for_each(drop);
        is_read
    });
    let is_read = is_read.await.unwrap();
    let ready = submit(&second);
    // It is judged once it has been looked for on disk.
    let is_read = tokio::task::spawn_blocking(move || is_read.recv().map(|()| is_read));
    drop(is_read.await.unwrap().unwrap());
    let cancelled = [&second[0], &first[0]].map(|there| cancel(&there.job));
    drop(open);
    assert_eq!((written.await.unwrap().len(), ready.await.unwrap().len()), (4, 4));
    for cancelled in cancelled {
        assert!(cancelled.await.unwrap().unwrap().changed, "it was there to be cancelled");
    }
}

/// What is judged while something is being written that then fails is not written either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failed_sync_takes_along_what_was_judged_meanwhile() {
    for seed in 0..SEEDS {
        let kv = Arc::new(FaultyKv::default());
        let store = Arc::new(store_on(Arc::clone(&kv)));
        let mut dice = Dice::new(seed);
        let now = Timestamp::from_ms(0);
        let there: Vec<_> = (0..4).map(|_| Submission { key: None, ..submission(&mut dice) }).collect();
        store.submit(now, there.clone(), OnConflict::KeepOthers).await.unwrap();
        let before = dump(&*store).await;
        let commits = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&commits);
        kv.set_plan(Box::new(move |_| {
            *counted.lock().unwrap() += 1;
            Some(Fault::Lost)
        }));
        kv.set_before_commit(Arc::new(|| std::thread::park_timeout(Duration::from_millis(20))));
        let mut calls = tokio::task::JoinSet::new();
        for job in there.into_iter().map(|submission| submission.job) {
            let (store, more) = (Arc::clone(&store), submission(&mut dice));
            calls.spawn(async move {
                let cancel = workload::order(&job, tidewheel_core::job::Command::Cancel);
                let cancelled = store.apply(now, None, vec![cancel]).await.map(drop);
                let submitted = store.submit(now, vec![more], OnConflict::KeepOthers).await.map(drop);
                [cancelled, submitted]
            });
        }
        for outcome in calls.join_all().await.into_iter().flatten() {
            assert!(matches!(outcome, Err(Error::Poisoned(_))), "{outcome:?}");
        }
        assert_eq!(*commits.lock().unwrap(), 1, "nothing is written after a failure");
        assert_eq!(before, dump(&*store).await);
    }
}

#[tokio::test]
async fn a_full_disk_refuses_new_jobs_and_lets_others_finish() {
    let kv = Arc::new(FaultyKv::default());
    let store = store_on(Arc::clone(&kv));
    let mut dice = Dice::new(1);
    let now = Timestamp::from_ms(0);
    let there = submission(&mut dice);
    store.submit(now, vec![there.clone()], OnConflict::KeepOthers).await.unwrap();

    kv.set_space(Some(Space { free_bytes: 1 << 20, total_bytes: 1 << 30 }));
    let more = submission(&mut dice);
    let refused = store.submit(now, vec![more.clone()], OnConflict::KeepOthers).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    assert!(matches!(store.health(), Health::Full(reason) if reason.contains("1 MiB of 1024 MiB")));
    let cancel = workload::order(&there.job, tidewheel_core::job::Command::Cancel);
    assert!(store.apply(now, None, vec![cancel]).await.unwrap()[0].is_ok());

    kv.set_space(Some(Space { free_bytes: 1 << 30, total_bytes: 1 << 30 }));
    assert_eq!(store.health(), Health::Ready, "by itself, as soon as there is room");
    store.submit(now, vec![more], OnConflict::KeepOthers).await.unwrap();
}

#[tokio::test]
async fn a_failed_read_fails_the_call_and_changes_nothing() {
    let kv = Arc::new(FaultyKv::default());
    let store = store_on(Arc::clone(&kv));
    let mut dice = Dice::new(2);
    let now = Timestamp::from_ms(0);
    let before = dump(&store).await;
    kv.set_reads_fail(true);
    let batch: Vec<_> = (0..3).map(|_| submission(&mut dice)).collect();
    let failed = store.submit(now, batch.clone(), OnConflict::KeepOthers).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    kv.set_reads_fail(false);
    assert_eq!(before, dump(&store).await);
    store.submit(now, batch, OnConflict::KeepOthers).await.unwrap();
}
