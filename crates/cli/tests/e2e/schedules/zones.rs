//! A server that is given another time zone database: what it tells of it, what it refuses, and what becomes of
//! schedules when the rules of their zone change between two starts.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::bundled_version;

use crate::harness;
use crate::harness::target::Target;
use crate::harness::{Server, TIDEWHEEL, now_ms, until};

const ZONE: &str = "Atlantic/Atlantis";
/// How far the clock of the second folder is behind that of the first.
const BEHIND_MS: i64 = 20_000;
const DAY_MS: i64 = 86_400_000;

/// A compiled zone without history: one type, and the rules in the footer.
fn compiled(posix: &str) -> Vec<u8> {
    let mut header = b"TZif2".to_vec();
    header.extend([0; 15]);
    for count in [0_u32, 0, 0, 0, 1, 2] {
        header.extend(count.to_be_bytes());
    }
    let block = [0, 0, 0, 0, 0, 0, b'-', 0];
    [&header[..], &block, &header, &block, format!("\n{posix}\n").as_bytes()].concat()
}

/// A folder of zones in which the clock of [`ZONE`] goes by these rules.
fn database(version: &str, posix: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, posix) in [("UTC", "UTC0"), ("America/New_York", "EST5EDT,M3.2.0,M11.1.0"), (ZONE, posix)] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, compiled(posix)).unwrap();
    }
    fs::write(folder.path().join("+VERSION"), version).unwrap();
    folder
}

fn start(data: &TempDir, zones: &TempDir) -> Server {
    Server::start_with(data.path(), &["--tz-dir", zones.path().to_str().unwrap()])
}

fn create(server: &Server, cron: &str, target: &str) -> Value {
    let body = json!({"cron_expr": cron, "timezone": ZONE, "target_url": target});
    let answer = server.post("/v1/schedules", &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

fn ms(time: &Value) -> i64 {
    time.as_str().unwrap().parse::<Timestamp>().unwrap().as_ms()
}

fn next_fire_ms(server: &Server, id: &Value) -> i64 {
    ms(&server.get(&format!("/v1/schedules/{}", id.as_str().unwrap()))["next_fire_at"])
}

fn fired_ms(server: &Server, id: &Value) -> Vec<i64> {
    let page = server.get(&format!("/v1/schedules/{}/firings", id.as_str().unwrap()));
    let items = page["items"].as_array().unwrap();
    items.iter().filter(|entry| entry["outcome"] == "fired").map(|entry| ms(&entry["fire_at"])).collect()
}

#[test]
fn new_rules_move_what_waits_and_fire_no_wall_clock_time_again() {
    let (old, new) = (database("2099a", "<+00>0"), database("2099b", "<-00>0:00:20"));
    let data = TempDir::new().unwrap();
    let target = Target::answering(|_| harness::target::answer(200, "", ""));
    let server = start(&data, &old);
    let source = old.path().to_str().unwrap();
    assert_eq!(server.get("/v1/cluster")["tz_database"], json!({"version": "2099a", "source": source}));

    // One that fires soon, though not before it is made, and one that waits for a time of day far from now.
    let soon = now_ms() / 1_000 * 1_000 + 15_000;
    let of_day = soon / 1_000 % 86_400;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let fires = create(&server, &format!("{second} {minute} {hour} * * *"), &target.url("/fires"));
    let waits = create(&server, &format!("0 0 {} * * *", (hour + 12) % 24), &target.url("/waits"));
    assert_eq!(ms(&fires["next_fire_at"]), soon);
    until("the fire", || (fired_ms(&server, &fires["id"]) == [soon]).then_some(()));
    assert_eq!(next_fire_ms(&server, &fires["id"]), soon + DAY_MS);
    assert_eq!(server.terminate().0, Some(0));

    let server = start(&data, &new);
    assert_eq!(server.get("/v1/cluster")["nodes"][0]["tz_database"]["version"], "2099b");
    assert_eq!(next_fire_ms(&server, &waits["id"]), ms(&waits["next_fire_at"]) + BEHIND_MS);
    // The clock shows the time that fired once more, twenty seconds after it did.
    let again = soon + BEHIND_MS;
    assert_eq!(next_fire_ms(&server, &fires["id"]), again + DAY_MS, "tomorrow's, by the new rules");
    until("the second showing to be over", || (now_ms() > again + 2_000).then_some(()));
    assert_eq!(fired_ms(&server, &fires["id"]), [soon]);
    let hits = target.hits().iter().filter(|hit| hit.path == "/fires").count();
    assert_eq!(hits, 1);
    server.kill();

    // The same folder again moves nothing, and the first one moves it back.
    let server = start(&data, &new);
    assert_eq!(next_fire_ms(&server, &waits["id"]), ms(&waits["next_fire_at"]) + BEHIND_MS);
    server.kill();
    let server = start(&data, &old);
    assert_eq!(next_fire_ms(&server, &waits["id"]), ms(&waits["next_fire_at"]));
    assert_eq!(next_fire_ms(&server, &fires["id"]), soon + DAY_MS);
    assert_eq!(fired_ms(&server, &fires["id"]), [soon]);
}

#[test]
fn the_database_in_use_is_shown() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let output = server.cli(&["cluster", "status"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains(&format!("{} (bundled)", bundled_version())), "{text}");
    let output = server.cli(&["cluster", "status", "-o", "json"]);
    let cluster: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&cluster["store"], &cluster["shards"]), (&json!("embedded"), &json!(64)));
    assert_eq!(cluster["nodes"][0]["leases"][0]["epoch"], 1);
    let output = Command::new(TIDEWHEEL).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("tz database {}, bundled", bundled_version())), "{text}");
}

#[test]
fn a_folder_that_is_no_database_is_refused_at_the_start() {
    let refused = |folder: &Path| {
        let data = TempDir::new().unwrap();
        let output = Command::new(TIDEWHEEL)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .env("TIDEWHEEL_TZ_DIR", folder)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused(Path::new("/nonexistent/zones"));
    assert!(text.contains("/nonexistent/zones") && text.contains("--tz-dir"), "{text}");
    let empty = TempDir::new().unwrap();
    assert!(refused(empty.path()).contains("there is no zone UTC in it"));
}
