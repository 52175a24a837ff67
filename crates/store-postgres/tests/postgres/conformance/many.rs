//! The suite, on a store that is spread over two schemas of a real PostgreSQL, each with the shards of one database.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_store::{Error, Health, Store};
use tidewheel_store_postgres::{Options, open_all};
use tidewheel_store_testkit::conformance::Home;

use crate::database;

struct Two([Options; 2]);

impl Two {
    fn new() -> Self {
        Self([database::fresh(), database::fresh()])
    }
}

#[async_trait]
impl Home for Two {
    async fn open(&self) -> Arc<dyn Store> {
        open_all(self.0.to_vec()).await.unwrap()
    }
}

/// Fewer than elsewhere: on one database the same runs are made in full, and these take far longer, each opening two.
const RANDOM_RUNS_COUNT: u64 = 8;

tidewheel_store_testkit::conformance_tests!(Two::new, random_runs: RANDOM_RUNS_COUNT);
tidewheel_store_testkit::lease_conformance_tests!(Two::new);

async fn refusal(all: &[&Options]) -> String {
    let opened = open_all(all.iter().map(|options| (*options).clone()).collect()).await;
    opened.err().expect("refused").to_string()
}

#[tokio::test]
async fn another_list_of_databases_is_refused() {
    let [one, two] = Two::new().0;
    let store = open_all(vec![one.clone(), two.clone()]).await.unwrap();
    let shards = store.databases().into_iter().map(|database| database.shards);
    assert_eq!(shards.collect::<Vec<_>>(), [[0, 2, 4, 6].map(Shard), [1, 3, 5, 7].map(Shard)]);
    store.close().await.unwrap();
    assert!(refusal(&[&two, &one]).await.contains("number 2 of 2 and is given as number 1 of 2"));
    assert!(refusal(&[&one]).await.contains("the only one"));
    let new = database::fresh();
    assert!(refusal(&[&one, &two, &new]).await.contains("number 1 of 2 and is given as number 1 of 3"));
    let [other, seconds] = Two::new().0;
    open_all(vec![other.clone(), seconds.clone()]).await.unwrap().close().await.unwrap();
    assert!(refusal(&[&one, &seconds]).await.contains("another cluster"));
    let alone = database::fresh();
    open_all(vec![alone.clone()]).await.unwrap().close().await.unwrap();
    assert!(refusal(&[&alone, &new]).await.contains("the only one and is given as number 1 of 2"));
    open_all(vec![one, two]).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_not_there_refuses_its_own_at_once() {
    let [one, mut two] = Two::new().0;
    "postgres://nobody@127.0.0.1:1/nowhere".clone_into(&mut two.url);
    let store = open_all(vec![one.clone(), two]).await.unwrap();
    let databases = store.databases();
    assert!(databases[0].is_up() && !databases[1].is_reachable, "{databases:?}");
    assert_eq!(store.health(), Health::Ready, "one is enough");
    let of = |home: u16| {
        let names = (0..).map(|n| Tenant::new(&format!("t{n}")).unwrap());
        names.into_iter().find(|tenant| Shard::of(tenant, 8).0 % 2 == home).unwrap()
    };
    assert!(store.counts(Some(&of(0))).await.is_ok());
    let refused = store.counts(Some(&of(1))).await;
    assert!(
        matches!(&refused, Err(Error::Unavailable(why)) if why.starts_with("database 2 of 2")),
        "{refused:?}"
    );
    assert!(store.leases_in(0).is_some() && store.leases_in(1).is_some() && store.leases_in(2).is_none());
    store.close().await.unwrap();
}
