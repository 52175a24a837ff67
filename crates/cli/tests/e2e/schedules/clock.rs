//! A server on its own store whose host's clock is set while it runs.

use std::collections::BTreeSet;

use serde_json::json;
use tempfile::TempDir;
use tidewheel_nemesis::faketime;

use crate::harness::Server;
use crate::harness::target::{Hit, Target};

fn keys(hits: &[Hit]) -> BTreeSet<&str> {
    hits.iter().map(|hit| hit.header("idempotency-key")).collect()
}

#[test]
fn an_interval_goes_on_while_the_clock_is_set_back_and_no_instant_fires_twice() {
    let Some(library) = faketime::faketime() else {
        println!(
            "libfaketime is not installed (scripts/test does that on Debian, as root): no clock was set"
        );
        return;
    };
    let folder = TempDir::new().unwrap();
    let clock = folder.path().join("clock");
    faketime::set(&clock, 0).unwrap();
    let flags = ["--min-interval", "1s", "--allow-target", "127.0.0.0/8"];
    let server = Server::start_by(&folder.path().join("data"), &flags, Some((&library, &clock)));
    let target = Target::ok();
    let created = server
        .post("/v1/schedules", &json!({"every": "2s", "target_url": target.url("/beat"), "name": "beat"}));
    assert_eq!(created.status, 201, "{}", created.text());
    target.until_hits(2);
    // Twice through the same time: an hour that nobody would wait for here.
    for by_s in [-3_600, 0, -3_600] {
        faketime::set(&clock, by_s).unwrap();
        let count = target.count();
        target.until_hits(count + 3);
    }
    let hits = target.hits();
    assert_eq!(keys(&hits).len(), hits.len(), "each is another instant");
}
