//! What one looks at first: the overview, and the pages that show it.

use http::StatusCode;
use serde_json::{Value, json};

use crate::http::harness::Api;

/// The overview once it says what is asked for; lanes are told by the scheduler, which hears of jobs a little later.
async fn overview_when(api: &Api, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..10_000 {
        let overview = api.get("/v1/overview").await.json();
        if is_so(&overview) {
            return overview;
        }
        tokio::task::yield_now().await;
    }
    panic!("never so: {}", api.get("/v1/overview").await.json());
}

#[tokio::test]
async fn the_overview_counts_what_there_is() {
    let api = Api::new().await;
    let quiet = api.get("/v1/overview").await.json();
    assert_eq!(quiet["lag"]["p99_ms"], Value::Null, "nothing was started: {quiet}");
    assert_eq!(quiet["lanes"], json!([]));
    api.dead_letter(&json!({"type": "a", "queue": "by-hand"})).await;
    api.submit(&json!({"type": "a", "delay": "1h"})).await;
    for _ in 0..3 {
        api.submit(&json!({"type": "a", "queue": "reports"})).await;
    }
    let overview = overview_when(&api, |overview| overview["lanes"][0]["depth"] == 3).await;
    assert_eq!(
        (&overview["jobs"]["dead"], &overview["jobs"]["scheduled"], &overview["jobs"]["running"]),
        (&json!(1), &json!(4), &json!(0))
    );
    let lane = &overview["lanes"][0];
    assert_eq!((&lane["kind"], &lane["name"]), (&json!("queue"), &json!("reports")));
    assert_eq!((&lane["more"], &lane["waits_for"]), (&json!(false), &json!("no_worker")));
    assert_eq!((&overview["lag"]["count"], &overview["lag"]["window"]), (&json!(1), &json!("5m")));
    assert!(overview["lag"]["p50_ms"].as_f64().unwrap() <= overview["lag"]["p999_ms"].as_f64().unwrap());
    for rate in ["submitted", "started", "failed"] {
        assert!(overview["rates"][rate].as_f64().unwrap() > 0.0, "{rate}: {overview}");
    }
    assert_eq!(overview["rates"]["succeeded"], json!(0.0));
}

#[tokio::test]
async fn a_tenant_sees_its_own_jobs_and_lanes_only() {
    let api = Api::new().await;
    let other = api.as_tenant("acme");
    api.submit(&json!({"type": "a", "queue": "ours"})).await;
    other.submit(&json!({"type": "a", "queue": "ours"})).await;
    other.submit(&json!({"type": "a", "queue": "theirs"})).await;
    let theirs = overview_when(&other, |overview| overview["lanes"].as_array().unwrap().len() == 2).await;
    assert_eq!(theirs["jobs"]["scheduled"], 2);
    let ours = overview_when(&api, |overview| !overview["lanes"].as_array().unwrap().is_empty()).await;
    assert_eq!(ours["jobs"]["scheduled"], 1);
    let third = api.as_tenant("third").get("/v1/overview").await.json();
    for rate in ["submitted", "started", "succeeded", "failed"] {
        assert_eq!(third["rates"][rate], 0.0, "nothing of others: {third}");
    }
    let (of_ours, of_theirs) = (&ours["rates"]["submitted"], &theirs["rates"]["submitted"]);
    assert!(of_ours.as_f64().unwrap() > 0.0 && of_theirs.as_f64().unwrap() > 0.0, "{ours} {theirs}");
    let names: Vec<_> = ours["lanes"].as_array().unwrap().iter().map(|lane| &lane["name"]).collect();
    assert_eq!(names, ["ours"]);
    assert_eq!(ours["lanes"][0]["depth"], 1);
}

#[tokio::test]
async fn pages_are_served_and_take_nothing_from_the_api() {
    let api = Api::new().await;
    for path in
        ["/", "/jobs", "/jobs/job_00000000000000000000000000", "/schedules/x", "/dead-letters", "/sign-in"]
    {
        let page = api.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert_eq!(page.headers["cache-control"], "no-cache");
        let tag = page.headers["etag"].to_str().unwrap();
        let again = api.call("GET", path, &[("if-none-match", tag)], "").await;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    }
    let script = api.get("/assets/pages/overview.js").await;
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    for path in ["/v1/nothing", "/nothing", "/assets/nothing.js", "/assets/../Cargo.toml", "/jobs/a/b"] {
        let answer = api.get(path).await;
        assert_eq!((answer.status, &answer.json()["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    }
    let posted = api.call("POST", "/jobs", &[], "").await;
    assert_eq!(posted.json()["code"], "method_not_allowed");
}
