//! `bench --store`, with so few jobs that its figures mean nothing: that everything is measured, and that nothing is left in
//! the PostgreSQL it was given.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[allow(dead_code, reason = "the tests of the command line use the rest")]
#[path = "../../../cli/tests/harness/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use postgres::Postgres;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewheel-bench");
const TINY: [&str; 10] =
    ["--quick", "--seconds", "1", "--drain", "100", "--rounds", "1", "--jobs", "1000", "--only"];

fn bench(store: &str, flags: &[&str]) -> Output {
    Command::new(PROGRAM).args(["--store", store, "-o", "json"]).args(flags).output().unwrap()
}

fn figures(output: &Output) -> (Value, BTreeMap<String, Value>) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = document["figures"].as_array().unwrap().iter();
    let named = figures.map(|figure| (figure["name"].as_str().unwrap().to_owned(), figure.clone())).collect();
    (document, named)
}

/// One that does not wait for the disk: making and dropping databases is mostly that.
fn start_postgres() -> Postgres {
    let postgres = Postgres::start();
    postgres.ask("ALTER SYSTEM SET fsync = off");
    postgres.ask("SELECT pg_reload_conf()");
    postgres
}

fn databases(postgres: &Postgres) -> String {
    postgres.ask("SELECT string_agg(datname, ' ') FROM pg_database WHERE datname LIKE 'tidewheel%'")
}

fn must_be_above_zero(figures: &BTreeMap<String, Value>, names: &[&str], field: &str) {
    for name in names {
        let figure = figures.get(*name).unwrap_or_else(|| panic!("{name} is missing: {figures:#?}"));
        assert!(figure[field].as_f64().is_some_and(|value| value > 0.0), "{name}: {figure}");
    }
}

#[test]
fn servers_on_postgres_are_measured_and_nothing_is_left_behind() {
    let postgres = start_postgres();
    let url = postgres.url().replace("tidewheel@", "tidewheel:secret@");
    let (document, figures) = figures(&bench(&url, &[&TINY[..], &["batch", "workers", "waiting"]].concat()));
    let names = ["submit.batch", "workers.drain", "workers.latency.p99", "wal", "waiting.disk"];
    must_be_above_zero(&figures, &names, "value");
    must_be_above_zero(&figures, &["waiting.submit", "waiting.drain"], "ratio");
    for name in ["dead.left", "dead.made"] {
        assert!(figures[name]["value"].is_number(), "{document}");
    }
    assert!(document["store"].as_str().unwrap().contains("synchronous_commit=on"), "{document}");
    assert!(!document.to_string().contains("secret"), "{document}");
    assert_eq!(databases(&postgres), "");
    assert_eq!(postgres.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'tidewheel'"), "0");
}

#[test]
fn two_servers_and_an_old_transaction_are_measured_on_postgres() {
    let postgres = start_postgres();
    postgres.ask("ALTER ROLE tidewheel SET synchronous_commit = off");
    let wanted = ["nodes", "old-transaction", "--old-transaction-age", "3s"];
    let output = bench(&postgres.url(), &[&TINY[..], &wanted].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("synchronous_commit and fsync off"),
        "a server that does not wait is told of: {said}"
    );
    let (_, figures) = figures(&output);
    must_be_above_zero(&figures, &["nodes.latency.p99", "nodes.latency.back.p99"], "value");
    let names = ["nodes.two.submit", "nodes.two.drain", "old_transaction.submit", "old_transaction.drain"];
    must_be_above_zero(&figures, &names, "ratio");
    let rounds = |name: &str| figures[name]["ratio_rounds"].as_array().unwrap().len();
    assert_eq!((rounds("nodes.two.drain"), rounds("old_transaction.drain")), (2, 1));
    let age_s = figures["old_transaction.age"]["value"].as_f64().unwrap();
    assert!(age_s >= 3.0, "measured beside a transaction of {age_s} s");
    assert_eq!(databases(&postgres), "");
}
