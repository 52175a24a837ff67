//! A backlog that nobody works on, from outside: it stays in the store, and what is said of it suffices to add workers by.
//! `TIDEWHEEL_BACKLOG_JOBS` makes it larger than it is by default, a million for instance.

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Server, until};

const BATCH: usize = 5_000;
/// More than fit in memory: 16,384 of one tenant, queue and priority.
const JOBS_DEFAULT: usize = 40_000;

fn metric(server: &Server, line: &str) -> Option<f64> {
    let text = server.request("GET", "/metrics", "").text();
    text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn due_jobs_without_workers_stay_in_the_store_and_depth_and_age_are_told() {
    let jobs: usize =
        std::env::var("TIDEWHEEL_BACKLOG_JOBS").map_or(JOBS_DEFAULT, |text| text.parse().unwrap());
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let batch = format!("[{}]", vec![r#"{"type":"t","queue":"mail","payload":{"n":1}}"#; BATCH].join(","));
    let (mut submitted, mut full_kib) = (0, None);
    while submitted < jobs {
        let answer = server.request("POST", "/v1/jobs/batch", &batch);
        assert_eq!(answer.status, 201, "{}", answer.text());
        submitted += BATCH;
        if submitted == 4 * BATCH {
            // The lane is full from here on.
            until("the lane to be full", || {
                metric(&server, "tidewheel_queue_more{queue=\"mail\"}").filter(|more| *more > 0.0)
            });
            full_kib = Some(memory_kib(&server));
        }
    }
    let held = until("the gauges to be set", || {
        let waiting = metric(&server, "tidewheel_jobs{state=\"scheduled\"}")?;
        let all = f64::from(u32::try_from(submitted).unwrap());
        (waiting >= all).then(|| metric(&server, "tidewheel_held_jobs").unwrap())
    });
    assert!(held <= 20_000.0, "{held} jobs in memory");
    let depth = metric(&server, "tidewheel_queue_depth{queue=\"mail\"}").unwrap();
    assert!((16_000.0..=20_000.0).contains(&depth), "{depth}");
    assert_eq!(metric(&server, "tidewheel_queue_workers{queue=\"mail\"}"), Some(0.0));
    until("the oldest to be a second old", || {
        metric(&server, "tidewheel_queue_oldest_age_seconds{queue=\"mail\"}").filter(|age| *age >= 1.0)
    });
    // What it grew by since is the store's: what it writes and reads is buffered, within bounds of its own.
    let grown_kib = memory_kib(&server).saturating_sub(full_kib.unwrap());
    assert!(grown_kib < 300 * 1_024, "memory grew by {grown_kib} KiB with {submitted} jobs");

    // Somebody comes, and is served.
    let took = server.post("/v1/queues/mail/take", &json!({"worker": "w", "max": 100, "wait": "30s"}));
    assert_eq!(took.json()["jobs"].as_array().unwrap().len(), 100);
}
