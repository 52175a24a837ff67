//! Damage to the files of a store: it opens with all that was acknowledged, or refuses and says why. Never does
//! it open with less.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, OnConflict, Store};
use tidewheel_store_embedded::kv::{Batch, Durability, Keyspace, Kv};
use tidewheel_store_embedded::{EmbeddedStore, FjallKv, OpenError, Options};

use crate::workload::{Dice, dump, submission};

const CALLS: usize = 6;

fn open(path: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(Options { cache_bytes: 1 << 20, shards: 4, ..Options::new(path) })
}

async fn submit(store: &EmbeddedStore, dice: &mut Dice) -> Vec<Job> {
    let batch: Vec<_> = (0..3)
        .map(|_| submission(dice))
        .map(|one| tidewheel_store::Submission { key: None, ..one })
        .collect();
    let jobs = batch.iter().map(|one| one.job.clone()).collect();
    store.submit(Timestamp::from_ms(0), batch, OnConflict::KeepOthers).await.unwrap();
    jobs
}

/// A store whose journal has been opened before, so that it ends where the last write ends.
async fn prepared(path: &Path) -> Vec<Job> {
    let mut dice = Dice::new(7);
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let store = open(path).unwrap();
        for _ in 0..CALLS {
            jobs.extend(submit(&store, &mut dice).await);
        }
    }
    jobs
}

fn newest_journal(path: &Path) -> PathBuf {
    let mut journals: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .collect();
    journals.sort();
    journals.pop().unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a damaged copy: `true` if it opened, and then it has everything.
async fn opens(path: &Path, jobs: &[Job], what: &str) -> bool {
    let store = match open(path) {
        Ok(store) => store,
        Err(error @ OpenError::Corrupt { .. }) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    for job in jobs {
        assert_eq!(store.get(&job.tenant, vec![job.id]).await.unwrap(), [Some(job.clone())], "{what}");
    }
    drop(dump(&store).await);
    true
}

#[tokio::test]
async fn a_flipped_bit_or_a_missing_end_never_loses_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let jobs = prepared(&original).await;
    let journal = newest_journal(&original);
    let length = std::fs::metadata(&journal).unwrap().len();
    let name = journal.file_name().unwrap();
    let mut refused = 0;
    // A prime step meets every part of a batch.
    for offset in (1..length.min(6_000)).step_by(61) {
        for truncate in [true, false] {
            let damaged = folder.path().join("damaged");
            copy(&original, &damaged);
            let file = OpenOptions::new().read(true).write(true).open(damaged.join(name)).unwrap();
            let at = length - offset;
            if truncate {
                file.set_len(at).unwrap();
            } else {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            }
            drop(file);
            let what = format!("truncate {truncate} at {at} of {length}");
            refused += usize::from(!opens(&damaged, &jobs, &what).await);
            std::fs::remove_dir_all(&damaged).unwrap();
        }
    }
    assert!(refused > 0, "damage is noticed");
}

#[tokio::test]
async fn a_write_torn_by_the_crash_is_dropped_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let mut jobs = prepared(&original).await;
    let journal = newest_journal(&original);
    let before = std::fs::metadata(&journal).unwrap().len();
    let synced = std::fs::read(original.join("synced")).unwrap();
    let store = open(&original).unwrap();
    submit(&store, &mut Dice::new(99)).await;
    drop(store);
    let after = std::fs::metadata(&journal).unwrap().len();
    assert!(after > before);
    // As if the last write had been cut short before its sync: the mark still names the one before it.
    for cut in (before + 1..after).step_by(97) {
        let torn = folder.path().join("torn");
        copy(&original, &torn);
        std::fs::write(torn.join("synced"), &synced).unwrap();
        let file = OpenOptions::new().write(true).open(torn.join(journal.file_name().unwrap())).unwrap();
        file.set_len(cut).unwrap();
        drop(file);
        assert!(opens(&torn, &jobs, &format!("torn at {cut}")).await);
        // And it can be written to, closed and opened again.
        let store = open(&torn).unwrap();
        let more = submit(&store, &mut Dice::new(cut)).await;
        drop(store);
        jobs.extend(more.iter().cloned());
        assert!(opens(&torn, &jobs, "after the tear").await);
        jobs.truncate(jobs.len() - more.len());
        std::fs::remove_dir_all(&torn).unwrap();
    }
}

#[tokio::test]
async fn a_second_process_is_told_that_the_folder_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let refused = open(folder.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    assert!(refused.to_string().contains("in use by another Tidewheel process"));
    store.close().await.unwrap();
    open(folder.path()).unwrap();
}

#[tokio::test]
async fn other_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let refused = EmbeddedStore::open(Options { shards: 8, ..Options::new(folder.path()) }).err().unwrap();
    assert!(matches!(refused, OpenError::Shards { found: 4, asked: 8, .. }), "{refused}");
}

#[tokio::test]
async fn a_record_of_another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let jobs = submit(&store, &mut Dice::new(3)).await;
    store.close().await.unwrap();
    let kv = FjallKv::open(folder.path(), 1 << 20).unwrap();
    let mut batch = Batch::default();
    let mut keys = Vec::new();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    kv.snapshot()
        .scan(Keyspace::Waiting, all, tidewheel_store_embedded::kv::Direction::Up, &mut |key, _| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    for key in keys {
        batch.put(Keyspace::Waiting, key, vec![9, 0, 0]);
    }
    kv.commit(batch, Durability::Synced).unwrap();
    drop(kv);
    let store = open(folder.path()).unwrap();
    let error = store.get(&jobs[0].tenant, vec![jobs[0].id]).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt(reason) if reason.contains("version 9")), "{error}");
}
