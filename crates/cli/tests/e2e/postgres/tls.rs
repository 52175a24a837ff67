//! TLS to a PostgreSQL whose certificates are of an authority of its own, and that asks for one of its clients.

use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::certificates::Authority;
use crate::harness::postgres::Postgres;
use crate::harness::{Server, TIDEWHEEL, until, until_served};

const YEAR: i32 = 2090;

#[test]
fn an_authority_of_its_own_and_client_certificates_are_taken_from_the_url() {
    let (folder, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let [authority, stranger] = ["authority", "stranger"].map(|name| Authority::new(folder.path(), name));
    let postgres = Postgres::start();
    postgres.require_tls(&authority.files("server", YEAR), &authority.file);
    let root = format!("sslrootcert={}", authority.file.display());
    let shown = |authority: &Authority, name: &str| {
        let [certificate, key] = authority.files(name, YEAR);
        format!("sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    let (own, foreign) = (shown(&authority, "client"), shown(&stranger, "foreign"));
    let elsewhere =
        format!("postgres://tidewheel@db.example:{}/postgres?hostaddr=127.0.0.1", postgres.port());
    let here = postgres.url();

    let migrate = |url: &str| {
        let output = Command::new(TIDEWHEEL).args(["migrate", "--store", url]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let missing = format!("{here}?sslrootcert={}/none.pem", folder.path().display());
    for (url, words) in [
        (format!("{here}?sslmode=require&{own}"), "the database cannot be migrated"),
        (format!("{here}?sslrootcert={}&{own}", stranger.file.display()), "the database cannot be migrated"),
        (format!("{here}?{root}"), "the database cannot be migrated"),
        (format!("{here}?{root}&{foreign}"), "the database cannot be migrated"),
        (format!("{here}?sslmode=disable"), "the database cannot be migrated"),
        (format!("{elsewhere}&sslmode=verify-full&{root}&{own}"), "the database cannot be migrated"),
        (missing, "none.pem: it cannot be read"),
    ] {
        let (is_done, said) = migrate(&url);
        assert!(!is_done && said.contains(words), "{url}: {said}");
    }
    // Whatever host the certificate is for, if the URL says so.
    let (is_done, said) = migrate(&format!("{elsewhere}&sslmode=verify-ca&{root}&{own}"));
    assert!(is_done, "{said}");

    let url = format!("{here}?sslmode=verify-full&{root}&{own}");
    let server = Server::start_with(data.path(), &["--store", &url]);
    let job = json!({"type": "t", "queue": "q", "idempotency_key": "k"});
    let submitted = until_served("the job to be taken", || server.post("/v1/jobs", &job));
    assert!(matches!(submitted.status, 200 | 201), "{}", submitted.text());
    // One whose answer is lost is handed out again when its lease is over.
    let taken = until("the job to be handed out", || {
        let taken = server.post("/v1/queues/q/take", &json!({"wait": "20s", "lease": "5s"})).json();
        taken["jobs"][0]["id"].is_string().then_some(taken)
    });
    assert_eq!(taken["jobs"][0]["id"], submitted.json()["id"]);
}
