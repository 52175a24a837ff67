//! Two servers on two PostgreSQL databases, from outside: shards are spread over both, one that is away takes only its own
//! tenants with it, and everything that was acknowledged is run once it is back.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;

use crate::harness::postgres::Postgres;
use crate::harness::target::Target;
use crate::harness::wire::Wire;
use crate::harness::{Answer, Server, TIDEWHEEL, instant, request, until, until_served};

const SHARDS: u16 = 64;

/// Two databases, each at the end of a wire.
struct Pair {
    postgres: Postgres,
    wires: [Wire; 2],
    urls: [String; 2],
}

impl Pair {
    fn start() -> Self {
        let postgres = Postgres::start();
        postgres.ask("CREATE DATABASE second");
        let wires = [Wire::to(postgres.port()), Wire::to(postgres.port())];
        // Nobody asks for the password, and nobody shows it.
        let url = |wire: &Wire, name| format!("postgres://tidewheel:hunter2@127.0.0.1:{}/{name}", wire.port);
        let urls = [url(&wires[0], "postgres"), url(&wires[1], "second")];
        Self { postgres, wires, urls }
    }

    fn flags(&self) -> [&str; 4] {
        ["--store", &self.urls[0], "--store", &self.urls[1]]
    }

    fn serve(&self, data: &TempDir) -> Server {
        Server::start_with(data.path(), &self.flags())
    }
}

/// The first tenants of a database.
fn tenants(database: u16, count: usize) -> Vec<String> {
    let names = (0..).map(|n| format!("tenant-{n}"));
    let is_there = |name: &String| Shard::of(&Tenant::new(name).unwrap(), SHARDS).0 % 2 == database;
    names.filter(is_there).take(count).collect()
}

fn try_submit(server: &Server, target: &Target, tenant: &str, delay_ms: i64) -> Answer {
    let body = json!({"type": "t", "target_url": target.url("/"), "run_at": instant(delay_ms)}).to_string();
    request(server.address, "POST", "/v1/jobs", &[("tidewheel-tenant", tenant)], body.as_bytes()).unwrap()
}

/// Submits a job for each tenant, by both servers in turn; gives the ids. A database that a busy machine keeps from answering
/// counts as away for a while.
fn submit(servers: [&Server; 2], target: &Target, tenants: &[String], delay_ms: i64) -> Vec<String> {
    let submit = |(number, tenant): (usize, &String)| {
        let answer = until(&format!("a database for {tenant}"), || {
            let answer = try_submit(servers[number % 2], target, tenant, delay_ms);
            (answer.status != 503).then_some(answer)
        });
        assert_eq!(answer.status, 201, "{tenant}: {}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    tenants.iter().enumerate().map(submit).collect()
}

fn until_all_ran(target: &Target, ids: &[String]) {
    until("all jobs to be run", || {
        let ran: BTreeSet<String> =
            target.hits().iter().map(|hit| hit.header("tidewheel-job-id").to_owned()).collect();
        ids.iter().all(|id| ran.contains(id)).then_some(())
    });
}

fn states(list: &Value) -> Vec<String> {
    let databases = list["databases"].as_array().unwrap();
    assert!(databases.iter().all(|database| database["shards"] == u64::from(SHARDS) / 2), "{list}");
    databases.iter().map(|database| database["state"].as_str().unwrap().to_owned()).collect()
}

/// Waits until a server says in all places how its databases are.
fn until_told(server: &Server, wanted: [&str; 2]) {
    until("the databases to be told of", || {
        let answer = request(server.address, "GET", "/readyz", &[], b"").unwrap();
        let cluster = request(server.address, "GET", "/v1/cluster", &[], b"").unwrap();
        let metrics = request(server.address, "GET", "/metrics", &[], b"").unwrap().text();
        assert!(!answer.text().contains("hunter2") && !cluster.text().contains("hunter2"));
        let is_up = |index: usize| {
            let line = format!("tidewheel_database_up{{database=\"{index}\"}} 1\n");
            if metrics.contains(&line) { "up" } else { "down" }
        };
        let are_told = answer.status == 200 && states(&answer.json()) == wanted;
        (are_told && states(&cluster.json()) == wanted && [is_up(0), is_up(1)] == wanted).then_some(())
    });
}

fn until_refused(server: &Server, target: &Target, tenant: &str) {
    let refused = until("a submission to be refused", || {
        let answer = try_submit(server, target, tenant, 0);
        (answer.status == 503).then_some(answer)
    });
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    assert!(!refused.text().contains("hunter2"), "{}", refused.text());
}

fn until_taken(server: &Server, target: &Target, tenant: &str) -> String {
    until("a submission to be taken", || {
        let answer = try_submit(server, target, tenant, 0);
        (answer.status == 201).then(|| answer.json()["id"].as_str().unwrap().to_owned())
    })
}

#[test]
fn one_database_away_stops_only_its_own_tenants() {
    let (pair, data, target) = (Pair::start(), TempDir::new().unwrap(), Target::ok());
    let (first, second) = (pair.serve(&data), pair.serve(&data));
    let servers = [&first, &second];
    until("the shards to be shared out", || {
        let cluster = first.get("/v1/cluster");
        let nodes = cluster["nodes"].as_array().unwrap();
        (nodes.len() == 2 && nodes.iter().all(|node| node["shards"] == SHARDS / 2)).then_some(())
    });
    until_told(&first, ["up", "up"]);
    let sides = [tenants(0, 10), tenants(1, 10)];
    let everybody: Vec<String> = sides.iter().flatten().cloned().collect();
    until_all_ran(&target, &submit(servers, &target, &everybody, 0));

    // The one falls silent, as behind a broken switch; the first, where the documents are, is cut off.
    for (away, there) in [(1, 0), (0, 1)] {
        // Some are due while it is away, and some have an attempt under way or being written when it goes.
        let acknowledged = submit(servers, &target, &sides[away], 1_000);
        let others = submit(servers, &target, &sides[there], 1_000);
        let later = submit(servers, &target, &sides[there], 4_000);
        let at_once = submit(servers, &target, &sides[away], 0);
        if away == 1 {
            pair.wires[1].silence()
        } else {
            pair.wires[0].cut()
        }
        servers.iter().for_each(|server| until_refused(server, &target, &sides[away][0]));
        let mut told = ["up", "up"];
        told[away] = "down";
        servers.iter().for_each(|server| until_told(server, told));
        // The others go on: what was taken before, what is taken now, by whichever server.
        until_all_ran(&target, &submit(servers, &target, &sides[there], 0));
        until_all_ran(&target, &others);
        until_all_ran(&target, &later);
        let list = until_served("a list", || {
            request(first.address, "GET", "/v1/jobs", &[("tidewheel-tenant", &sides[there][0])], b"").unwrap()
        });
        assert_eq!(list.status, 200, "{}", list.text());
        let status = first.cli(&["cluster", "status"]);
        let said = String::from_utf8(status.stderr).unwrap();
        assert!(said.contains(&format!("database {} of 2 is down", away + 1)), "{said}");

        // It comes back, and all that was acknowledged is run.
        pair.wires[away].mend();
        servers.iter().for_each(|server| until_told(server, ["up", "up"]));
        let new = servers.map(|server| until_taken(server, &target, &sides[away][0]));
        until_all_ran(&target, &new);
        until_all_ran(&target, &acknowledged);
        until_all_ran(&target, &at_once);
    }
    for server in [first, second] {
        let (code, log) = server.terminate();
        assert_eq!(code, Some(0), "{log:#?}");
    }
}

fn run(verb: &[&str], stores: &[&str]) -> (bool, String) {
    let flags = stores.iter().flat_map(|url| ["--store", url]);
    let output: Output = Command::new(TIDEWHEEL).args(verb).args(flags).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("hunter2"), "{said}");
    (output.status.success(), said)
}

#[test]
fn databases_are_what_they_were_made_for() {
    let (pair, data, target) = (Pair::start(), TempDir::new().unwrap(), Target::ok());
    let [one, two] = [pair.urls[0].as_str(), pair.urls[1].as_str()];
    let (is_done, said) = run(&["migrate"], &[one, two]);
    assert!(is_done && said.contains("database 1 had schema 0") && said.contains("database 2 had"), "{said}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", data.path().to_str().unwrap()];
    for (stores, says) in [
        (vec![two, one], "was made to be number 2 of 2 and is given as number 1 of 2"),
        (vec![one], "was made to be number 1 of 2 and is given as the only one"),
        (vec![one, one], "given twice"),
    ] {
        let (is_done, said) = run(&serve, &stores);
        assert!(!is_done && said.contains(says), "{stores:?}: {said}");
    }
    let (is_done, said) = run(&["migrate"], &[two, one]);
    assert!(!is_done && said.contains("number 2 of 2"), "{said}");

    // The second may come later than the server.
    pair.wires[1].cut();
    let server = pair.serve(&data);
    until_told(&server, ["up", "down"]);
    let sides = [tenants(0, 1), tenants(1, 1)];
    let there = until_taken(&server, &target, &sides[0][0]);
    until_all_ran(&target, &[there]);
    until_refused(&server, &target, &sides[1][0]);
    pair.wires[1].mend();
    until_told(&server, ["up", "up"]);
    let back = until_taken(&server, &target, &sides[1][0]);
    until_all_ran(&target, &[back]);
    assert_eq!(server.terminate().0, Some(0));

    // Once it was used, no empty one takes its place: that would be asked for jobs that it does not have.
    pair.postgres.ask("CREATE DATABASE other");
    let other = two.replace("/second", "/other");
    let (is_done, said) = run(&serve, &[one, &other]);
    assert!(!is_done && said.contains("database 2 of 2: the database is empty"), "{said}");
}
