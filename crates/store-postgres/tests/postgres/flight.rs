//! What is written without a look at the database goes in one round trip: no answer is needed
//! before the commit is sent. It is all or nothing, whatever becomes of the connection meanwhile,
//! and may be sent again under the same ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tidewheel_core::job::{Command, Finding, Job, State};
use tidewheel_core::limits::HOUR_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, IdempotencyClaim, OnConflict, Order, Store, Submission, Submitted};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database;
use crate::specs::queued;

const START: Timestamp = Timestamp::from_ms(3_000_000 * 600_000);
/// How a transaction that writes begins, and how it ends.
const BEGIN: &[u8] = b"BEGIN; SELECT pg_advisory_xact_lock_shared";
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What happens to transactions on their way.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing of it is answered before its commit is sent.
    Silent,
    /// The connection is cut right before the commit.
    CutBefore,
    /// The commit arrives, and the answer does not.
    CutAfter,
}

const WAYS: [Way; 4] = [Way::Open, Way::Silent, Way::CutBefore, Way::CutAfter];

#[derive(Default)]
struct Road {
    way: AtomicU8,
    /// Transactions that were kept without an answer up to their commit.
    silent: AtomicUsize,
}

impl Road {
    fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }

    fn way(&self) -> Way {
        WAYS[usize::from(self.way.load(Ordering::SeqCst))]
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A store whose connections lead through here.
async fn store_behind(road: &Arc<Road>, options: Options) -> PostgresStore {
    let config: tokio_postgres::Config = options.url.parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else { panic!("a host") };
    let (there, port) = (format!("{host}:{}", config.get_ports()[0]), config.get_ports()[0]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().port();
    let url = options.url.replace(&format!(":{port}/"), &format!(":{here}/"));
    assert_ne!(url, options.url);
    let road = Arc::clone(road);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(&there).await.unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            tokio::spawn(carry(client, server, Arc::clone(&road)));
        }
    });
    PostgresStore::open(Options { url, ..options }).await.unwrap()
}

/// Both ways at once, until either end closes or the road cuts it.
async fn carry(client: TcpStream, server: TcpStream, road: Arc<Road>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (hold, mut held) = watch::channel(Way::Open);
    let asking = async {
        // A transaction may come in several pieces; messages are looked for across them.
        let (mut seen, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        let mut way = Way::Open;
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            let sent = seen.len();
            seen.extend_from_slice(&buffer[..count]);
            if way == Way::Open && road.way() != Way::Open && find(&seen, BEGIN).is_some() {
                way = road.way();
                hold.send_replace(way);
            }
            match (way, find(&seen, COMMIT)) {
                (Way::CutBefore, Some(at)) => {
                    let before = buffer.get(..at.saturating_sub(sent)).unwrap_or_default();
                    to_server.write_all(before).await.unwrap();
                    return;
                }
                (Way::Silent, Some(_)) => {
                    road.silent.fetch_add(1, Ordering::SeqCst);
                    way = Way::Open;
                    seen.clear();
                }
                (Way::Open, _) => {
                    // A beginning may be cut in two.
                    let kept = seen.len().saturating_sub(BEGIN.len() - 1);
                    seen.drain(..kept);
                }
                (Way::Silent | Way::CutBefore | Way::CutAfter, _) => {}
            }
            to_server.write_all(&buffer[..count]).await.unwrap();
            if way == Way::Open {
                hold.send_replace(way);
            }
        }
    };
    let answering = async {
        let (mut lost, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            if *held.borrow() == Way::CutAfter {
                lost.extend_from_slice(&buffer[..count]);
                // It is committed, and the answer goes no further.
                if find(&lost, b"COMMIT\0").is_some() {
                    return;
                }
                continue;
            }
            held.wait_for(|held| *held == Way::Open).await.unwrap();
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = answering => {}
    }
}

fn job(tail: u128) -> Job {
    Job::new(Tenant::default(), queued(START), START, tail)
}

fn submission(job: &Job, fresh: bool) -> Submission {
    Submission { job: job.clone(), key: None, fresh }
}

async fn submit(store: &PostgresStore, submission: Submission) -> Result<Submitted, Error> {
    store.submit(START, vec![submission], OnConflict::KeepNone).await.map(|answers| answers[0])
}

async fn order(store: &PostgresStore, job: &Job, command: Command) -> Job {
    let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
    let applied = store.apply(START, None, vec![order]).await.unwrap().remove(0).unwrap();
    Job::clone(&applied.job)
}

async fn is_there(store: &PostgresStore, job: &Job) -> bool {
    store.get(&job.tenant, vec![job.id]).await.unwrap()[0].is_some()
}

#[tokio::test]
async fn a_submission_a_claim_and_an_outcome_are_one_round_trip_each() {
    let road = Arc::<Road>::default();
    // A transaction of upkeep that is kept waiting holds one of the scheduler's connections until
    // this is over.
    let store = store_behind(&road, database::fresh()).await;
    let first = job(1);
    road.set(Way::Silent);
    assert_eq!(submit(&store, submission(&first, true)).await.unwrap(), Submitted::New);
    let under_key = |job: &Job| Submission {
        key: Some(IdempotencyClaim {
            key: Arc::from("k"),
            fingerprint: [1; 16],
            until: START.plus_ms(HOUR_MS),
        }),
        ..submission(job, true)
    };
    let second = job(2);
    assert_eq!(submit(&store, under_key(&second)).await.unwrap(), Submitted::New);
    let claim = Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false };
    let running = order(&store, &first, claim).await;
    let succeed = Command::Succeed { token: running.status.token, finding: Finding::default() };
    let ended = order(&store, &running, succeed).await;
    assert_eq!(ended.status.state, State::Succeeded);
    assert!(road.silent.load(Ordering::SeqCst) >= 4, "each was committed before anything was answered");
    // A key that is in use is found by its constraint, and then by a look: not in one round trip,
    // but right.
    road.set(Way::Open);
    let third = job(3);
    assert_eq!(submit(&store, under_key(&third)).await.unwrap(), Submitted::Duplicate(second.id));
    assert!(!is_there(&store, &third).await);
    let stored = store.get(&first.tenant, vec![first.id]).await.unwrap();
    assert_eq!(stored[0].as_ref().unwrap().status, ended.status);
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_is_cut_off_before_its_commit_leaves_nothing() {
    let road = Arc::<Road>::default();
    let store = store_behind(&road, database::fresh()).await;
    let job = job(1);
    road.set(Way::CutBefore);
    let refused = submit(&store, submission(&job, true)).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    road.set(Way::Open);
    assert!(!is_there(&store, &job).await);
    assert_eq!(submit(&store, submission(&job, false)).await.unwrap(), Submitted::New);
    assert!(is_there(&store, &job).await);
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.of(State::Scheduled), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_submission_whose_answer_is_lost_may_be_sent_again() {
    let road = Arc::<Road>::default();
    let store = store_behind(&road, database::fresh()).await;
    // The place is there already: it takes one flight, whose commit is the one that is answered.
    assert_eq!(submit(&store, submission(&job(9), true)).await.unwrap(), Submitted::New);
    let job = job(1);
    road.set(Way::CutAfter);
    let refused = submit(&store, submission(&job, true)).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    road.set(Way::Open);
    assert!(is_there(&store, &job).await);
    assert_eq!(submit(&store, submission(&job, false)).await.unwrap(), Submitted::New);
    assert_eq!(
        submit(&store, submission(&job, true)).await.unwrap(),
        Submitted::New,
        "seen, though called fresh"
    );
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.of(State::Scheduled), 2, "one job beside the first");
    store.close().await.unwrap();
}
