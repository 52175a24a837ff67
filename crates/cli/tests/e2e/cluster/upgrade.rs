//! Migrations while nodes are at work: nobody notices a step, and a step that has to wait for a table keeps nobody waiting.
//!
//! Nodes of this program stand for those of the version before. Once it serves, it uses nothing that a step after
//! [`USED_AT_WORK`] adds, so a database that is taken down that far and up again is to it what an upgrade is to them.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tempfile::TempDir;
use tidewheel_core::limits::DAY_MS;
use tidewheel_nemesis::postgres::{Postgres, Setup};

use crate::harness::pulse::Pulse;
use crate::harness::target::Target;
use crate::harness::{Answer, Server, TIDEWHEEL, instant, request, until};

/// The last schema that has something which a node asks for while it serves.
const USED_AT_WORK: i32 = 2;
const NEWEST: i32 = tidewheel_store_postgres::SCHEMA_NUMBER;
/// Times that all steps are undone and made again.
const ROUNDS: usize = 5;
/// What lies so far ahead is parked, in tables of which steps make indexes.
const FAR_MS: i64 = 30 * DAY_MS;

fn migrate(postgres: &Postgres, to: i32) -> Command {
    let mut command = Command::new(TIDEWHEEL);
    command.args(["migrate", "--store", &postgres.url(), "--to", &to.to_string()]);
    command
}

fn bring(postgres: &Postgres, to: i32) {
    let output = migrate(postgres, to).output().unwrap();
    assert!(output.status.success(), "to {to}: {}", String::from_utf8_lossy(&output.stderr));
}

fn schema(postgres: &Postgres) -> String {
    postgres.try_ask("SELECT max(number) FROM tidewheel.migrations").unwrap()
}

fn try_submit(node: SocketAddr, target: &Target, number: usize, delay_ms: i64) -> Answer {
    let body = json!({
        "type": "t", "target_url": target.url("/"), "run_at": instant(delay_ms),
        "idempotency_key": format!("{delay_ms}-{number}"),
    });
    let tenant = format!("tenant-{}", number % 40);
    let headers = [("tidewheel-tenant", tenant.as_str())];
    request(node, "POST", "/v1/jobs", &headers, body.to_string().as_bytes()).unwrap()
}

fn id_of(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// What callers saw: jobs that were to start at once, and what was refused.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    refusals: Vec<String>,
}

/// Ends submissions when it is dropped, which a failed assertion does, too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Submits at both nodes, one job after the other, until it is over.
fn submit_until(is_over: &AtomicBool, nodes: [SocketAddr; 2], target: &Target) -> Seen {
    let mut seen = Seen::default();
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        for delay_ms in [0, FAR_MS] {
            let answer = try_submit(nodes[number % 2], target, number, delay_ms);
            if answer.status != 201 {
                seen.refusals.push(format!("{}: {}", answer.status, answer.text()));
            } else if delay_ms == 0 {
                seen.ids.insert(id_of(&answer));
            }
        }
    }
    seen
}

#[test]
fn nodes_at_work_do_not_notice_a_migration() {
    let (postgres, data, target) =
        (Postgres::start(Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let start = || Server::start_with(data.path(), &["--store", &postgres.url()]);
    let (first, second) = (start(), start());
    until("both to serve", || {
        let cluster = first.get("/v1/cluster");
        let nodes = cluster["nodes"].as_array().unwrap();
        (nodes.iter().filter(|node| node["state"] == "serving").count() == 2).then_some(())
    });
    let (pulse, is_over) = (Pulse::watch(), AtomicBool::new(false));
    let nodes = [first.address, second.address];
    let seen = std::thread::scope(|scope| {
        let caller = scope.spawn(|| submit_until(&is_over, nodes, &target));
        let over = Over(&is_over);
        for _ in 0..ROUNDS {
            bring(&postgres, USED_AT_WORK);
            for to in USED_AT_WORK + 1..=NEWEST {
                let before = target.count();
                bring(&postgres, to);
                until("jobs to run between steps", || (target.count() > before).then_some(()));
            }
        }
        drop(over);
        caller.join().unwrap()
    });
    assert_eq!(schema(&postgres), NEWEST.to_string());
    until("all jobs to be run", || seen.ids.is_subset(&target.jobs()).then_some(()));
    assert!(seen.refusals.is_empty() || !pulse.is_calm(), "{:?}", seen.refusals);
    assert!(target.count() == seen.ids.len() || !pulse.is_calm(), "nobody died, and something ran twice");
    for node in [first, second] {
        let (code, log) = node.terminate();
        assert_eq!(code, Some(0), "{log:#?}");
    }
}

/// A migration that says what it waits for.
struct Waiting {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Waiting {
    fn start(postgres: &Postgres, to: i32) -> Self {
        let mut child = migrate(postgres, to).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    fn is_waiting(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

#[test]
fn a_migration_that_waits_for_a_table_keeps_nobody_waiting() {
    const PARKED: i32 = 4;
    let (postgres, data, target) =
        (Postgres::start(Setup::default()).unwrap(), TempDir::new().unwrap(), Target::ok());
    let server = Server::start_with(data.path(), &["--store", &postgres.url()]);
    bring(&postgres, PARKED - 1);
    // A transaction that somebody forgot, which has written to a table that the step makes an index of.
    let holder = postgres
        .hold("tidewheel", "LOCK TABLE tidewheel.jobs_default IN ROW EXCLUSIVE MODE; SELECT pg_sleep(600)")
        .unwrap();
    let pid = until("the lock", || {
        let held =
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%' AND wait_event = 'PgSleep'";
        Some(postgres.try_ask(held).unwrap()).filter(|pid| !pid.is_empty())
    });
    let mut waiting = Waiting::start(&postgres, NEWEST);
    let said = waiting.line();
    assert!(said.contains("0004_parked waits for a table that is in use"), "{said}");
    assert!(said.contains(&format!("of process {pid} (psql)")), "{said}");
    // It goes on trying. What is submitted for that table is taken all the while, and what is due runs.
    let (pulse, is_over) = (Pulse::watch(), AtomicBool::new(false));
    let nodes = [server.address; 2];
    let seen = std::thread::scope(|scope| {
        let caller = scope.spawn(|| submit_until(&is_over, nodes, &target));
        let over = Over(&is_over);
        for _ in 0..3 {
            let before = target.count();
            let said = waiting.line();
            assert!(said.contains("waits for a table"), "{said}");
            until("jobs to run meanwhile", || (target.count() > before).then_some(()));
        }
        drop(over);
        caller.join().unwrap()
    });
    assert!(seen.refusals.is_empty() || !pulse.is_calm(), "{:?}", seen.refusals);
    assert!(waiting.is_waiting());
    postgres.try_ask(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    drop(holder);
    let mut said = String::new();
    while waiting.is_waiting() {
        said = Some(waiting.line()).filter(|line| !line.is_empty()).unwrap_or(said);
    }
    assert!(waiting.child.wait().unwrap().success(), "{said}");
    assert!(said.contains("had schema 3, and has 5 now"), "{said}");
    assert_eq!(schema(&postgres), NEWEST.to_string());
    until("all jobs to be run", || seen.ids.is_subset(&target.jobs()).then_some(()));
}
