//! The client against a scripted server on a real socket.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::proto::v1::NewJob;

/// Answers one connection after the other from `script`, each as it stands; an empty one hangs up unanswered.
/// Gives its URL and the requests it saw.
async fn scripted(script: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        for answer in script {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let mut chunk = [0; 4_096];
            while !whole(&request) {
                let count = socket.read(&mut chunk).await.unwrap();
                assert_ne!(count, 0, "the client hung up first");
                request.extend_from_slice(&chunk[..count]);
            }
            log.lock().unwrap().push(String::from_utf8(request).unwrap());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, seen)
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    body.len() >= length
}

/// A whole answer; `headers` each end in a line break.
fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn fine() -> String {
    answer(200, "", "{\"a\": 1}")
}

fn busy() -> String {
    answer(503, "retry-after: 0\r\n", "{\"title\":\"Busy\"}")
}

/// Hangs up unanswered.
fn hang_up() -> String {
    String::new()
}

fn client(url: &str) -> Client {
    let ms = Duration::from_millis(1);
    let patience = Patience { first_wait: ms, longest_wait: ms, total_wait: Duration::from_secs(1) };
    let key = Some("twk_secret".to_owned());
    let tenant = Some("acme".to_owned());
    Client::new(ClientConfig { key, tenant, patience, ..ClientConfig::new(url) }).unwrap()
}

#[tokio::test]
async fn a_call_carries_key_tenant_and_body() {
    let (url, seen) = scripted(vec![fine()]).await;
    let call = Call::post(&["jobs"]).json("{\"type\":\"x\"}").idempotency_key("clé");
    let answer = client(&format!("{url}/prefix/")).send(&call).await.unwrap();
    assert_eq!(answer.json::<serde_json::Value>().unwrap()["a"], 1);
    let seen = seen.lock().unwrap();
    for part in [
        "POST /prefix/v1/jobs HTTP/1.1\r\n",
        "authorization: Bearer twk_secret\r\n",
        "tidewheel-tenant: acme\r\n",
        "content-type: application/json\r\n",
        "idempotency-key: clé\r\n",
        "\r\n\r\n{\"type\":\"x\"}",
    ] {
        assert!(seen[0].contains(part), "{part:?} is not in {:?}", seen[0]);
    }
}

#[tokio::test]
async fn a_safe_call_outlives_busy_answers_and_broken_connections() {
    let (url, seen) = scripted(vec![busy(), hang_up(), busy(), fine()]).await;
    let heard = Arc::new(Mutex::new(0));
    let count = Arc::clone(&heard);
    let client = client(&url).on_retry(move |_, _| *count.lock().unwrap() += 1);
    client.send(&Call::post(&["jobs"]).json("{}").idempotency_key("k")).await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 4);
    assert_eq!(*heard.lock().unwrap(), 3);
}

#[tokio::test]
async fn any_other_call_is_sent_once() {
    let (url, seen) = scripted(vec![busy(), fine()]).await;
    let error = client(&url).send(&Call::post(&["jobs"]).json("{}")).await.unwrap_err();
    assert_eq!(error.problem().map(|problem| problem.status), Some(503));
    assert_eq!(seen.lock().unwrap().len(), 1);
    let (url, seen) = scripted(vec![hang_up(), fine()]).await;
    let error = client(&url).send(&Call::post(&["jobs"]).json("{}")).await.unwrap_err();
    assert!(error.leaves_doubt(), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

fn too_many() -> String {
    answer(422, "", r#"{"title":"More at once than may ever wait","code":"batch_over_limit"}"#)
}

fn taken(ids: &[&str]) -> String {
    let jobs: Vec<String> = ids.iter().map(|id| format!("{{\"id\":\"{id}\"}}")).collect();
    answer(200, "", &format!("{{\"jobs\":[{}]}}", jobs.join(",")))
}

fn keyed(key: &str) -> NewJob {
    NewJob { r#type: "t".into(), idempotency_key: key.into(), ..NewJob::default() }
}

/// Which of the keys each request held.
fn keys_in(seen: &[String], keys: &[&str]) -> Vec<String> {
    let held = |request: &String| -> String {
        keys.iter().filter(|key| request.contains(&format!("\"{key}\""))).copied().collect()
    };
    seen.iter().map(held).collect()
}

#[tokio::test]
async fn a_batch_beyond_the_tenants_limit_is_sent_in_halves_down_to_one() {
    let script = vec![too_many(), taken(&["1", "2"]), too_many(), taken(&["3"]), too_many()];
    let (url, seen) = scripted(script).await;
    let keys = ["k1", "k2", "k3", "k4"];
    let answers = client(&url).submit_all(keys.map(keyed).to_vec()).await.unwrap();
    let ids: Vec<&str> = answers.iter().flatten().map(|submitted| submitted.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    let refused = answers[3].as_ref().unwrap_err();
    assert_eq!(refused.problem().and_then(|problem| problem.code.as_deref()), Some("batch_over_limit"));
    assert_eq!(keys_in(&seen.lock().unwrap(), &keys), ["k1k2k3k4", "k1k2", "k3k4", "k3", "k4"]);
}

#[tokio::test]
async fn once_patience_is_over_the_other_parts_are_not_sent() {
    let later = answer(429, "retry-after: 3600\r\n", r#"{"title":"Slow","code":"too_many_waiting"}"#);
    let (url, seen) = scripted(vec![too_many(), taken(&["1"]), too_many(), later, fine()]).await;
    let keys = ["k1", "k2", "k3"];
    let answers = client(&url).submit_all(keys.map(keyed).to_vec()).await.unwrap();
    assert_eq!(answers.len(), 3);
    assert!(answers[0].is_ok(), "{answers:?}");
    for answer in &answers[1..] {
        assert_eq!(answer.as_ref().unwrap_err().problem().map(|problem| problem.status), Some(429));
    }
    assert_eq!(keys_in(&seen.lock().unwrap(), &keys), ["k1k2k3", "k1", "k2k3", "k2"]);
}

#[tokio::test]
async fn a_single_job_beyond_the_limit_is_told_so() {
    let (url, seen) = scripted(vec![too_many(), fine()]).await;
    let refused = client(&url).submit_all(vec![keyed("k1")]).await.unwrap_err();
    assert_eq!(refused.problem().map(|problem| problem.status), Some(422));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_job_that_cannot_be_sent_does_not_keep_the_others_from_it() {
    let (url, seen) = scripted(vec![taken(&["1"]), taken(&["3"])]).await;
    let broken = NewJob { payload: "{".into(), ..keyed("k2") };
    let answers = client(&url).submit_all(vec![keyed("k1"), broken, keyed("k3")]).await.unwrap();
    let ids: Vec<Option<&str>> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|submitted| submitted.id.as_str())).collect();
    assert_eq!(ids, [Some("1"), None, Some("3")]);
    assert_eq!(keys_in(&seen.lock().unwrap(), &["k1", "k2", "k3"]), ["k1", "k3"]);
}

#[tokio::test]
async fn a_job_that_is_refused_in_company_is_refused_as_it_would_be_alone() {
    let refusal = |code: &str| format!(r#"{{"error":{{"code":"{code}","detail":"no"}}}}"#);
    let refusals = ["idempotency_conflict", "too_many_waiting", "of_tomorrow"].map(refusal).join(",");
    let (url, _) = scripted(vec![answer(200, "", &format!("{{\"jobs\":[{refusals}]}}"))]).await;
    let answers = client(&url).submit_all(["k1", "k2", "k3"].map(keyed).to_vec()).await.unwrap();
    let errors: Vec<&Error> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    let statuses: Vec<u16> = errors.iter().filter_map(|error| Some(error.problem()?.status)).collect();
    assert_eq!(statuses, [409, 429, 422]);
    assert!(errors[1].is_retryable() && !errors[0].is_retryable(), "{errors:?}");
}

#[tokio::test]
async fn answers_that_are_not_one_for_each_job_are_nobodys() {
    let (url, _) = scripted(vec![taken(&["1"])]).await;
    let error = client(&url).submit_all(vec![keyed("k1"), keyed("k2")]).await.unwrap_err();
    assert!(error.to_string().contains("1 answers to 2 jobs"), "{error}");
}

#[tokio::test]
async fn a_wait_beyond_patience_ends_the_call() {
    let later = answer(429, "retry-after: 3600\r\n", "{\"title\":\"Slow\"}");
    let (url, seen) = scripted(vec![later, fine()]).await;
    let error = client(&url).send(&Call::get(&["jobs"])).await.unwrap_err();
    assert_eq!(error.problem().map(|problem| problem.status), Some(429));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_is_a_problem_with_its_faults() {
    let body =
        r#"{"title":"Not valid","code":"invalid","errors":[{"pointer":"/type","detail":"is empty"}],"x":1}"#;
    let (url, _) = scripted(vec![answer(422, "", body)]).await;
    let error = client(&url).send(&Call::get(&["jobs"])).await.unwrap_err();
    assert_eq!(error.to_string(), "Not valid; /type: is empty");
    assert_eq!(error.problem().and_then(|problem| problem.code.as_deref()), Some("invalid"));
}

#[tokio::test]
async fn an_answer_from_something_else_says_so() {
    let (url, _) = scripted(vec![answer(404, "", "<hr/>")]).await;
    let error = client(&url).send(&Call::get(&["jobs"])).await.unwrap_err();
    assert!(error.to_string().contains("is this a Tidewheel server?"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = ClientConfig { patience: Patience::NONE, ..ClientConfig::new(url) };
    let error = Client::new(config).unwrap().send(&Call::get(&["jobs"])).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (timeout, patience) = (Duration::from_millis(20), Patience::NONE);
    let config = ClientConfig { timeout, patience, ..ClientConfig::new(url) };
    let error = Client::new(config).unwrap().send(&Call::get(&["jobs"])).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

#[test]
fn unusable_settings_are_refused_before_anything_is_sent() {
    for url in ["", "localhost:7400", "ftp://a", "http://", "http://a/?x=1", "http://u:p@a", "127.0.0.1:7400"]
    {
        assert!(Client::new(ClientConfig::new(url)).is_err(), "{url}");
    }
    let key = Some("two\nlines".to_owned());
    assert!(Client::new(ClientConfig { key, ..ClientConfig::new(URL_DEFAULT) }).is_err());
}
