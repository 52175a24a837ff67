//! The audit trail on disk: what is altered or taken out behind the store's back is found, and a crash leaves whole
//! chains.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidewheel_core::audit::{Broken, Changes, Kind, Record, Walk};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Audit, AuditOrder, AuditQuery, NewAct, OnConflict, Store};
use tidewheel_store_embedded::faulty::FaultyKv;
use tidewheel_store_embedded::kv::{Batch, Direction, Durability, Keyspace, Kv};
use tidewheel_store_embedded::{EmbeddedStore, FjallKv, Options};

use crate::workload::{Dice, Player, submission};

fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Options { cache_bytes: 1 << 20, shards: 1, ..Options::new(path) }).unwrap()
}

async fn records(store: &EmbeddedStore) -> Vec<Record> {
    let query = AuditQuery {
        kind: None,
        from: Timestamp::from_ms(0),
        until: Timestamp::MAX,
        after: None,
        order: AuditOrder::OldestFirst,
        count_max: usize::MAX,
    };
    store.audit_records(query).await.unwrap()
}

async fn verify(store: &EmbeddedStore) -> Result<u64, Broken> {
    let mut walk = Walk::between(&store.audit_chains().await.unwrap());
    for record in records(store).await {
        walk.check(&record)?;
    }
    walk.end().map(|()| walk.checked())
}

/// Ten acts in one chain, with changes of jobs between them.
async fn fill(path: &Path) {
    let (store, mut dice) = (open(path), Dice::new(1));
    for n in 0..10 {
        let act = NewAct { tenant: Tenant::default(), content: Bytes::from(format!("act {n}")) };
        store.append_acts(Timestamp::from_ms(n), vec![act]).await.unwrap();
        store
            .submit(Timestamp::from_ms(n), vec![submission(&mut dice)], OnConflict::KeepOthers)
            .await
            .unwrap();
    }
    assert_eq!(verify(&store).await, Ok(20));
    store.close().await.unwrap();
}

/// The keys and values of the trail, as they lie on disk, acts first.
fn on_disk(kv: &FjallKv) -> Vec<(Keyspace, Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    for keyspace in kv.keyspaces().into_iter().filter(|keyspace| matches!(keyspace, Keyspace::Audit(_))) {
        let all = (Bound::Unbounded, Bound::Unbounded);
        kv.snapshot()
            .scan(keyspace, all, Direction::Up, &mut |key, value| {
                found.push((keyspace, key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    assert_eq!(found.len(), 20);
    found
}

async fn after(damage: impl FnOnce(&[(Keyspace, Vec<u8>, Vec<u8>)], &mut Batch)) -> Result<u64, Broken> {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path()).await;
    let kv = FjallKv::open(folder.path(), 1 << 20).unwrap();
    let mut batch = Batch::default();
    damage(&on_disk(&kv), &mut batch);
    kv.commit(batch, Durability::Synced).unwrap();
    drop(kv);
    verify(&open(folder.path())).await
}

#[tokio::test]
async fn an_altered_record_is_found() {
    let found = after(|records, batch| {
        let (keyspace, key, mut value) = records[4].clone();
        *value.last_mut().unwrap() ^= 1;
        batch.put(keyspace, key, value);
    })
    .await;
    // The fifth act, with four changes before it.
    assert_eq!(found, Err(Broken::Altered { chain: 0, seq: 9 }));
    let found = after(|records, batch| {
        let (keyspace, key, mut value) = records[14].clone();
        value[80] ^= 1;
        batch.put(keyspace, key, value);
    })
    .await;
    assert_eq!(found, Err(Broken::Altered { chain: 0, seq: 10 }), "a change of a job");
}

#[tokio::test]
async fn a_record_taken_out_is_found() {
    let found = after(|records, batch| batch.delete(records[4].0, records[4].1.clone())).await;
    assert_eq!(found, Err(Broken::Missing { chain: 0, seq: 9, next: 10 }));
    let found = after(|records, batch| batch.delete(records[19].0, records[19].1.clone())).await;
    assert_eq!(found, Err(Broken::CutOff { chain: 0, seq: 20, head: 20 }), "the newest one, too");
    let found = after(|records, batch| batch.delete(records[0].0, records[0].1.clone())).await;
    assert_eq!(found, Err(Broken::Missing { chain: 0, seq: 1, next: 2 }), "the oldest one, too");
}

#[tokio::test]
async fn a_cut_after_any_sync_leaves_whole_chains_that_say_all_that_happened() {
    for seed in 0..3 {
        let kv = Arc::new(FaultyKv::default());
        let options = || Options { shards: 4, ..Options::new("memory") };
        let store = EmbeddedStore::open_on(Arc::clone(&kv) as Arc<dyn Kv>, options()).unwrap();
        let images = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&images);
        kv.set_on_sync(Box::new(move |_, image| seen.lock().unwrap().push(image)));
        let mut player = Player::new(seed);
        for _ in 0..40 {
            player.play(&store).await;
        }
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 20);
        let mut before = 0;
        for image in images {
            let cut = EmbeddedStore::open_on(Arc::new(FaultyKv::reopen(image)), options()).unwrap();
            let count = verify(&cut).await.unwrap();
            assert!(count >= before, "nothing is forgotten");
            before = count;
        }
        let changes = records(&store).await.into_iter().filter(|record| record.kind == Kind::Changes);
        let changes: usize = changes.map(|record| Changes::of(&record.content).count()).sum();
        assert!(changes > 20);
    }
}

#[tokio::test]
async fn changes_of_jobs_are_left_out_if_they_are_not_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        Options { cache_bytes: 1 << 20, shards: 1, audit_changes: false, ..Options::new(folder.path()) };
    let store = EmbeddedStore::open(options).unwrap();
    let act = NewAct { tenant: Tenant::default(), content: Bytes::from_static(b"act") };
    store.append_acts(Timestamp::from_ms(0), vec![act]).await.unwrap();
    let jobs = vec![submission(&mut Dice::new(1))];
    store.submit(Timestamp::from_ms(0), jobs, OnConflict::KeepOthers).await.unwrap();
    assert_eq!(verify(&store).await, Ok(1));
}
