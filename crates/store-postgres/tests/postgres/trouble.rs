//! What goes wrong with one statement is told to whoever asked, and says nothing of the database; what goes wrong with the
//! database is noted, until a write goes through.

use std::time::Duration;

use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_store::{Checkpoint, Error, Health, Schedules, Store};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::database;

async fn connect(options: &Options) -> Client {
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
    client
}

/// From now on, whoever saves a checkpoint is told this.
async fn refuse_checkpoints(client: &Client, code: &str) {
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;
             CREATE OR REPLACE TRIGGER refusing BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION refuse()"
        ))
        .await
        .unwrap();
}

async fn save(store: &PostgresStore) -> Result<(), Error> {
    let checkpoint = Checkpoint { shard: Shard(0), frontier: Bucket(1), cursors: Vec::new() };
    store.save_checkpoints(vec![checkpoint]).await
}

#[tokio::test]
async fn a_statement_that_fails_for_its_own_sake_does_not_say_that_no_writes_are_taken() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let client = connect(&options).await;
    // Nothing else runs between the answer and the look at the health: whatever was noted is still there.
    let odd = "INSERT INTO calendars (tenant, name, dates) VALUES ('acme', 'odd', ARRAY[NULL]::integer[])";
    client.batch_execute(odd).await.unwrap();
    let read = store.calendar(&Tenant::new("acme").unwrap(), "odd").await;
    let health = store.health();
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert_eq!(health, Health::Ready, "what it read makes no sense");
    for code in ["22003", "40003", "55P03", "57014", "XX001"] {
        refuse_checkpoints(&client, code).await;
        let saved = save(&store).await;
        let health = store.health();
        assert!(matches!(saved, Err(Error::Unavailable(_))), "{code}: {saved:?}");
        assert_eq!(health, Health::Ready, "{code}");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn trouble_of_the_database_is_noted_until_a_write_goes_through() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let client = connect(&options).await;
    for code in ["25006", "53100", "58030", "57P03"] {
        refuse_checkpoints(&client, code).await;
        let saved = save(&store).await;
        let health = store.health();
        assert!(matches!(saved, Err(Error::Unavailable(_) | Error::Full(_))), "{code}: {saved:?}");
        assert_ne!(health, Health::Ready, "{code}");
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let until_ready = async {
            while store.health() != Health::Ready {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), until_ready).await.expect("writes are taken again");
    }
    store.close().await.unwrap();
}
