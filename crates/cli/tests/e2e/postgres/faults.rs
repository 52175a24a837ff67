//! A server on a PostgreSQL that is restarted, killed, failed over, read-only, full, hanging or short of connections: what it
//! cannot take is refused in a way that a client can repeat, nothing acknowledged is lost, and it recovers by itself.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_nemesis::pair::Pair;
use tidewheel_nemesis::postgres::{Postgres, Setup};
use tidewheel_nemesis::process::{Owned, is_root};

use crate::harness::target::Target;
use crate::harness::{Answer, Server, TIDEWHEEL, instant, now_ms, request, until};

fn start(url: &str, data: &TempDir) -> Server {
    Server::start_with(data.path(), &["--store", url])
}

fn job(target: &Target, key: &str, delay_ms: i64) -> Value {
    json!({"type": "t", "target_url": target.url("/"), "run_at": instant(delay_ms), "idempotency_key": key})
}

fn try_submit(address: SocketAddr, body: &Value) -> Option<Answer> {
    request(address, "POST", "/v1/jobs", &[], body.to_string().as_bytes()).ok()
}

/// Submits until the server takes it, as a careful client does; gives the id.
fn insist(address: SocketAddr, body: &Value) -> String {
    until("a submission to be taken", || {
        let answer = try_submit(address, body)?;
        assert!(answer.status < 300 || answer.status == 503, "{}: {}", answer.status, answer.text());
        (answer.status < 300).then(|| answer.json()["id"].as_str().unwrap().to_owned())
    })
}

/// Waits for a submission that is refused for the database's sake, and says to come back.
fn until_refused(server: &Server, target: &Target) -> Answer {
    // A key that was used before would be refused for its own sake.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let refused = until("a submission to be refused", || {
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let answer = try_submit(server.address, &job(target, &format!("refused-{number}"), 0))?;
        (answer.status >= 300).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    refused
}

/// The same, for the reason it has in the end: on a slow machine there may be others before.
fn until_refused_because(server: &Server, target: &Target, reason: &str) {
    until(&format!("a refusal because of {reason}"), || {
        until_refused(server, target).text().contains(reason).then_some(())
    });
}

fn until_ready(server: &Server, wanted: u16) {
    until(&format!("/readyz to say {wanted}"), || {
        let answer = request(server.address, "GET", "/readyz", &[], b"").ok()?;
        (answer.status == wanted).then_some(())
    });
}

fn until_succeeded(server: &Server, ids: &[String]) {
    for id in ids {
        until(&format!("{id} to succeed"), || {
            let answer = request(server.address, "GET", &format!("/v1/jobs/{id}"), &[], b"").ok()?;
            assert_ne!(answer.status, 404, "{id} is gone");
            (answer.status == 200 && answer.json()["state"] == "succeeded").then_some(())
        });
    }
}

/// Clients that submit one job after the other until they are told to stop; give the ids of those acknowledged.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn begin(server: &Server, target: &Target) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |client: usize| {
            let (address, over) = (server.address, Arc::clone(&is_over));
            let bodies: Vec<Value> = [0, 50, 500, 1_500].map(|delay_ms| job(target, "", delay_ms)).into();
            std::thread::spawn(move || {
                let mut ids = Vec::new();
                for number in 0.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    let mut body = bodies[number % bodies.len()].clone();
                    body["idempotency_key"] = json!(format!("load-{client}-{number}"));
                    ids.push(insist(address, &body));
                }
                ids
            })
        };
        let clients = (0..3).map(client).collect();
        Self { is_over, clients }
    }

    fn end(self) -> Vec<String> {
        self.is_over.store(true, Ordering::SeqCst);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// Waits until the load gets through.
fn until_flowing(target: &Target, more: usize) {
    let seen = target.count();
    until("jobs to be run", || (target.count() >= seen + more).then_some(()));
}

#[test]
fn a_database_restarted_and_killed_under_load_loses_nothing() {
    let (postgres, data, target) =
        (Postgres::start(Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&postgres.url(), &data);
    let load = Load::begin(&server, &target);
    for is_killed in [true, false, true, false] {
        until_flowing(&target, 20);
        if is_killed {
            postgres.crash();
        } else {
            postgres.stop();
        }
        until_ready(&server, 503);
        postgres.begin().unwrap();
        until_ready(&server, 200);
    }
    until_flowing(&target, 20);
    let ids = load.end();
    until_succeeded(&server, &ids);
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log:#?}");
}

#[test]
fn a_failover_to_a_synchronous_standby_loses_nothing() {
    let (pair, data, target) =
        (Pair::start(&Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&pair.url(), &data);
    let load = Load::begin(&server, &target);
    until_flowing(&target, 30);
    pair.fail_over().unwrap();
    until_flowing(&target, 30);
    // The one that was failed over from comes back, and takes writes like a primary.
    let old = pair.standby();
    old.begin().unwrap();
    old.try_ask("ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
    old.try_ask("SELECT pg_reload_conf()").unwrap();
    assert_eq!(old.try_ask("SELECT pg_is_in_recovery()").unwrap(), "f");
    // Neither a node that knows it nor one that starts now writes there, though it comes first in the URL.
    pair.primary()
        .try_ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidewheel'",
        )
        .unwrap();
    let late = start(&pair.url(), &data);
    until_flowing(&target, 30);
    let here = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidewheel'";
    until("no connection to the old primary", || (old.try_ask(here).unwrap() == "0").then_some(()));
    let mut ids = load.end();
    ids.push(insist(late.address, &job(&target, "late", 0)));
    until_succeeded(&late, &ids);
    until_succeeded(&server, &ids);
    // It is of use again as the standby of the other.
    pair.restore().unwrap();
    ids.push(insist(server.address, &job(&target, "after", 0)));
    until_succeeded(&server, &ids);
}

#[test]
fn a_database_that_hangs_is_waited_for_a_bounded_time() {
    let (pair, data, target) =
        (Pair::start(&Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&pair.url(), &data);
    let mut ids = vec![insist(server.address, &job(&target, "before", 0))];
    // Nothing is told to anybody: connections stand, and can even be made.
    pair.primary().pause();
    until_refused(&server, &target);
    until_ready(&server, 503);
    for path in ["/v1/jobs?limit=1", "/v1/schedules?limit=1", "/v1/cluster"] {
        let answer = request(server.address, "GET", path, &[], b"").unwrap();
        assert!([200, 503].contains(&answer.status), "{path}: {}", answer.text());
    }
    pair.primary().resume();
    until_ready(&server, 200);
    ids.push(insist(server.address, &job(&target, "resumed", 0)));
    until_succeeded(&server, &ids);
    // It hangs again, and its standby takes its place while it still does.
    pair.primary().pause();
    until_refused(&server, &target);
    pair.standby().promote().unwrap();
    ids.push(insist(server.address, &job(&target, "taken over", 0)));
    until_succeeded(&server, &ids);
    pair.primary().resume();
}

#[test]
fn a_read_only_database_is_ridden_out() {
    let (postgres, data, target) =
        (Postgres::start(Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&postgres.url(), &data);
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(insist(server.address, &job(&target, &format!("k{number}"), [0, 3_000][number % 2])));
    }
    let set = |value: &str| {
        postgres.try_ask(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}")).unwrap();
        postgres.try_ask("SELECT pg_reload_conf()").unwrap();
    };
    set("on");
    until_refused_because(&server, &target, "read-only");
    until_ready(&server, 503);
    // What is stored can still be looked at.
    until("a job to be shown", || {
        let answer = request(server.address, "GET", &format!("/v1/jobs/{}", ids[0]), &[], b"").ok()?;
        (answer.status == 200).then_some(())
    });
    set("off");
    until_ready(&server, 200);
    ids.push(insist(server.address, &job(&target, "after", 0)));
    until_succeeded(&server, &ids);
}

#[test]
fn a_full_disk_of_the_database_is_ridden_out() {
    if !is_root() {
        println!("not allowed to mount a file system here: a full disk was not tried");
        return;
    }
    let setup = Setup { space_mb: Some(128), ..Setup::default() };
    let (postgres, data, target) = (Postgres::start(setup).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&postgres.url(), &data);
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(insist(server.address, &job(&target, &format!("k{number}"), [0, 3_000][number % 2])));
    }
    let ballast = postgres.ballast();
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[0; 1 << 12]).is_ok() {}
    drop(file);
    let batch = json!(vec![json!({"type": "t", "delay": "1h", "payload": "x".repeat(60_000)}); 20]);
    let refused = until("a submission to be refused", || {
        let answer =
            request(server.address, "POST", "/v1/jobs/batch", &[], batch.to_string().as_bytes()).ok()?;
        (answer.status >= 300).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    std::fs::remove_file(ballast).unwrap();
    until_ready(&server, 200);
    ids.push(insist(server.address, &job(&target, "after", 0)));
    until_succeeded(&server, &ids);
}

#[test]
fn without_free_connections_calls_are_refused_and_due_jobs_start() {
    let (postgres, data, target) =
        (Postgres::start(Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = start(&postgres.url(), &data);
    // Whoever asks for calendars waits, and holds a connection meanwhile.
    let holder =
        postgres.hold("tidewheel", "BEGIN; LOCK TABLE tidewheel.calendars; SELECT pg_sleep(600)").unwrap();
    until("the lock", || {
        let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND relation = 'tidewheel.calendars'::regclass";
        (postgres.try_ask(held).unwrap() == "1").then_some(())
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let mut due = Vec::new();
    // One falls due every second for longer than it takes until the crowd holds all connections.
    for second in 0..180 {
        let id = insist(server.address, &job(&target, &format!("due-{second}"), 1_000 * second));
        due.push((now_ms() + 1_000 * second, id));
    }
    let crowd: Vec<JoinHandle<()>> = (0..24)
        .map(|_| {
            let (address, is_over) = (server.address, Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    drop(request(address, "GET", "/v1/calendars", &[], b""));
                }
            })
        })
        .collect();
    until_refused_because(&server, &target, "busy");
    let seen = target.count();
    until("due jobs to start beside the crowd", || (target.count() > seen + 1).then_some(()));
    until_refused_because(&server, &target, "busy");
    drop::<Owned>(holder);
    is_over.store(true, Ordering::SeqCst);
    crowd.into_iter().for_each(|caller| caller.join().unwrap());
    let over_ms = now_ms();
    let mut ids: Vec<String> =
        due.into_iter().filter(|(at_ms, _)| *at_ms <= over_ms).map(|(_, id)| id).collect();
    ids.push(insist(server.address, &job(&target, "after", 0)));
    until_succeeded(&server, &ids);
}

#[test]
fn settings_that_lose_jobs_are_told_at_the_start() {
    let says = |settings: &[&str]| {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let postgres = Postgres::start(Setup { settings, ..Setup::default() }).unwrap();
        let data = TempDir::new().unwrap();
        let log = data.path().join("log");
        let mut command = Command::new(TIDEWHEEL);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", &postgres.url()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let _server = Owned::spawn(&mut command).unwrap();
        until("the server to listen", || {
            let said = std::fs::read_to_string(&log).unwrap();
            said.contains("listening on").then_some(said)
        })
    };
    let warned = |said: &str, setting: &str| {
        said.lines().any(|line| line.contains("may lose acknowledged jobs") && line.contains(setting))
    };
    let said = says(&["fsync=off", "synchronous_commit=off"]);
    assert!(warned(&said, "fsync") && warned(&said, "synchronous_commit"), "{said}");
    let said = says(&[]);
    assert!(!said.contains("may lose acknowledged jobs"), "{said}");
}
