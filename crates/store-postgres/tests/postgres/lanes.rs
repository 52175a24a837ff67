//! Outcomes do not wait behind callers: while all connections that callers may have are in use, what became of attempts is
//! written all the same.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::job::{Command, Finding, Job, State};
use tidewheel_core::limits::HOUR_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{OnConflict, Order, Schedules, Store, Submission};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::NoTls;

use crate::database;
use crate::specs::queued;

const START: Timestamp = Timestamp::from_ms(3_000_000 * 600_000);

fn job(tail: u128) -> Job {
    Job::new(Tenant::default(), queued(START), START, tail)
}

async fn order(store: &PostgresStore, job: &Job, command: Command) -> Job {
    let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
    let applied = store.apply(START, None, vec![order]).await.unwrap().remove(0).unwrap();
    Job::clone(&applied.job)
}

#[tokio::test]
async fn outcomes_are_written_while_callers_use_up_their_connections() {
    // Who waits for the lock below does so until it is given back, however long that takes.
    let (statement, call) = (Duration::from_secs(600), Duration::from_secs(600));
    let options = Options { caller_connections: 1, statement, call, ..database::fresh() };
    let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
    let jobs: Vec<Job> = (0..3).map(job).collect();
    let submissions = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: true });
    store.submit(START, submissions.collect(), OnConflict::KeepNone).await.unwrap();
    let mut running = Vec::new();
    for job in &jobs {
        let claim = Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false };
        running.push(order(&store, job, claim).await);
    }
    // Whoever asks for calendars waits, and holds a connection meanwhile.
    let (mut holder, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (looker, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let holding = holder.transaction().await.unwrap();
    holding.batch_execute(&format!("LOCK TABLE {}.calendars", options.schema)).await.unwrap();
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.calendars(&Tenant::default()).await }
    });
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                   JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT l.granted AND n.nspname = $1";
    while looker.query_one(waiting, &[&options.schema]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!asking.is_finished(), "it did not have to wait");
        tokio::task::yield_now().await;
    }
    let [first, second, third] = [&running[0], &running[1], &running[2]];
    let heartbeat = Command::Heartbeat { token: first.status.token, extend_ms: HOUR_MS, progress: None };
    order(&store, first, heartbeat).await;
    let succeed = |job: &Job| Command::Succeed { token: job.status.token, finding: Finding::default() };
    let ended = order(&store, second, succeed(second)).await;
    assert_eq!(ended.status.state, State::Succeeded);
    order(&store, third, Command::Release { token: third.status.token }).await;
    assert!(!asking.is_finished(), "all of it while the only connection for callers was in use");
    holding.rollback().await.unwrap();
    asking.await.unwrap().unwrap();
    store.close().await.unwrap();
}
