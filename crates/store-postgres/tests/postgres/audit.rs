//! The audit trail in the database: what is altered or taken out behind the store's back is found, and nodes that share
//! the database make no chain fork.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::audit::{Broken, Record, Walk, chain_of};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Audit, AuditOrder, AuditQuery, NewAct};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::NoTls;

use crate::database;

fn act(says: &str) -> Vec<NewAct> {
    vec![NewAct { tenant: Tenant::default(), content: Bytes::copy_from_slice(says.as_bytes()) }]
}

async fn records(store: &PostgresStore) -> Vec<Record> {
    let query = AuditQuery {
        kind: None,
        from: Timestamp::from_ms(0),
        until: Timestamp::MAX,
        after: None,
        order: AuditOrder::OldestFirst,
        count_max: 10_000,
    };
    store.audit_records(query).await.unwrap()
}

async fn verify(store: &PostgresStore) -> Result<u64, Broken> {
    let mut walk = Walk::between(&store.audit_chains().await.unwrap());
    for record in records(store).await {
        walk.check(&record)?;
    }
    walk.end().map(|()| walk.checked())
}

/// Ten acts in one chain, and then this.
async fn after(damage: &str) -> Result<u64, Broken> {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    for n in 0..10 {
        store.append_acts(Timestamp::from_ms(n), act(&n.to_string())).await.unwrap();
    }
    assert_eq!(verify(&store).await, Ok(10));
    run(&options, damage).await;
    verify(&store).await
}

async fn run(options: &Options, sql: &str) {
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}; {sql}", options.schema)).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_altered_record_is_found() {
    let chain = chain_of(&Tenant::default(), 8);
    let found = after("UPDATE audit SET content = 'other' WHERE seq = 5").await;
    assert_eq!(found, Err(Broken::Altered { chain, seq: 5 }));
}

#[tokio::test]
async fn a_record_taken_out_is_found() {
    let chain = chain_of(&Tenant::default(), 8);
    let found = after("DELETE FROM audit WHERE seq = 5").await;
    assert_eq!(found, Err(Broken::Missing { chain, seq: 5, next: 6 }));
    let found = after("DELETE FROM audit WHERE seq > 8").await;
    assert_eq!(found, Err(Broken::CutOff { chain, seq: 9, head: 10 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_add_to_one_chain_and_it_stays_one() {
    let options = database::fresh();
    let first = PostgresStore::open(options.clone()).await.unwrap();
    let nodes = [Arc::new(first), Arc::new(PostgresStore::open(options).await.unwrap())];
    let tasks: Vec<_> = (0..20)
        .map(|n: i64| {
            let store = Arc::clone(&nodes[usize::from(n % 2 == 0)]);
            tokio::spawn(async move { store.append_acts(Timestamp::from_ms(n), act(&n.to_string())).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    for node in &nodes {
        assert_eq!(verify(node).await, Ok(20));
    }
}
