//! Pulling over a gRPC stream: credits, outcomes, heartbeats, cancelling, filters.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost_types::Duration;
use serde_json::{Value, json};
use tidewheel_api::proto::v1::{
    Drain, Failed, Heartbeat, LeasedJob, Outcome, Outcomes, Subscribe, Succeeded, outcome, server_message,
    worker_message,
};
use tonic::Code;

use crate::grpc::harness::{
    Server, Worker, cancelled, code, end, failed, patient, released, snoozed, subscribe, succeeded,
};

fn beat(job: &LeasedJob) -> Heartbeat {
    Heartbeat { id: job.id.clone(), token: job.token, ..Heartbeat::default() }
}

#[tokio::test]
async fn jobs_come_as_far_as_credits_reach() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 2)).await;
    let ids: BTreeSet<String> = server.submit("q", 5).await.into_iter().collect();
    let first = worker.jobs(2).await;
    worker.nothing_comes().await;
    let shown = server.workers_until(|workers| workers[0]["in_flight"] == 2).await;
    assert_eq!(
        (&shown[0]["credits"], &shown[0]["name"], &shown[0]["queues"], &shown[0]["connected"]),
        (&json!(0), &json!("w1"), &json!(["q"]), &json!(true))
    );
    assert_eq!(shown[0]["id"], *worker.welcome.worker_id);
    let answers = worker.outcomes(first.iter().map(|job| end(job, succeeded())).collect()).await;
    assert!(
        answers.iter().all(|answer| answer.code == "accepted" && answer.state == "succeeded"),
        "{answers:?}"
    );
    worker.nothing_comes().await;
    worker.add_credits(10).await;
    let rest = worker.jobs(3).await;
    let seen: BTreeSet<String> = first.iter().chain(&rest).map(|job| job.id.clone()).collect();
    assert_eq!(seen, ids);
    let workers = server.workers_until(|workers| workers[0]["in_flight"] == 3).await;
    assert_eq!(workers[0]["credits"], 7);
}

#[tokio::test]
async fn a_batch_with_a_number_is_answered_by_it_and_by_what_was_refused() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 3)).await;
    let ids = server.submit("q", 3).await;
    let jobs = worker.jobs(3).await;
    let stale = |job: &LeasedJob| Outcome { token: job.token + 1, ..end(job, succeeded()) };
    let mut answered = async |batch, jobs: Vec<Outcome>| {
        worker.say(worker_message::Message::Outcomes(Outcomes { jobs, batch })).await;
        match worker.next().await {
            Ok(server_message::Message::OutcomeAnswers(answers)) => answers,
            other => panic!("expected answers: {other:?}"),
        }
    };
    let all = || jobs.iter().map(|job| end(job, succeeded()));
    let some = vec![end(&jobs[0], succeeded()), stale(&jobs[1]), end(&jobs[2], succeeded())];
    let answers = answered(7, some).await;
    assert_eq!((answers.batch, answers.jobs.len()), (7, 1), "{answers:?}");
    assert_eq!((&*answers.jobs[0].id, &*answers.jobs[0].code), (&*jobs[1].id, "stale_token"));
    // Two of them were said before.
    let answers = answered(8, all().collect()).await;
    assert_eq!((answers.batch, answers.jobs.len()), (8, 0), "{answers:?}");
    let answers = answered(0, all().collect()).await;
    let codes: Vec<&str> = answers.jobs.iter().map(|answer| &*answer.code).collect();
    assert_eq!((answers.batch, codes), (0, vec!["already"; 3]));
    for id in ids {
        assert_eq!(
            server.api.call("GET", &format!("/v1/jobs/{id}"), &[], "").await.json()["state"],
            "succeeded"
        );
    }
}

#[tokio::test]
async fn a_job_comes_with_all_there_is_to_know_of_it() {
    let server = Server::start(patient()).await;
    let payload = "{\"n\" : 1, \"b\":[2 ]}";
    let body = format!(
        r#"{{"type":"resize","queue":"images","payload":{payload},"priority":"high","timeout":"90s","max_attempts":7,
            "idempotency_key":"k1","labels":{{"a":"b"}}}}"#
    );
    let made = server.api.call("POST", "/v1/jobs", &[], body).await.json();
    let mut worker = server.worker(subscribe("images", 1)).await;
    let job = worker.job().await;
    assert_eq!(job.id, made["id"]);
    assert_eq!(job.payload, payload.as_bytes());
    assert_eq!(
        (job.tenant.as_str(), job.r#type.as_str(), job.queue.as_str()),
        ("default", "resize", "images")
    );
    assert_eq!((job.attempt, job.max_attempts, job.priority.as_str()), (1, 7, "high"));
    assert_eq!((job.idempotency_key.as_str(), job.labels["a"].as_str()), ("k1", "b"));
    assert_eq!(job.timeout, Some(Duration { seconds: 90, nanos: 0 }));
    assert_eq!(job.fire_at, job.run_at);
    assert!(!job.catch_up && job.schedule_id.is_empty() && job.token > 0);
    let (run_at, lease_until) = (job.run_at.unwrap().seconds, job.lease_until.unwrap().seconds);
    assert!((29..60).contains(&(lease_until - run_at)), "{run_at} {lease_until}");
}

#[tokio::test]
async fn each_outcome_is_answered_for_by_itself() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 8)).await;
    server.submit("q", 7).await;
    let jobs = worker.jobs(7).await;
    let dead =
        outcome::Result::Failed(Failed { error: "x".repeat(5_000), r#final: true, ..Failed::default() });
    let bad_result = outcome::Result::Succeeded(Succeeded { result: Bytes::from_static(b"{nonsense") });
    let nobody = Outcome { id: "job_01JDQ5M8ZK0000000000000000".into(), ..end(&jobs[0], succeeded()) };
    let garbled = Outcome { id: "no id".into(), ..end(&jobs[0], succeeded()) };
    let stale = Outcome { token: jobs[0].token - 1, ..end(&jobs[0], succeeded()) };
    let foreign = Outcome { tenant: "other".into(), ..end(&jobs[0], succeeded()) };
    let empty = Outcome { result: None, ..end(&jobs[0], succeeded()) };
    let answers = worker
        .outcomes(vec![
            end(&jobs[0], succeeded()),
            end(&jobs[1], failed()),
            end(&jobs[2], dead),
            end(&jobs[3], snoozed()),
            end(&jobs[4], cancelled()),
            end(&jobs[5], released()),
            end(&jobs[6], bad_result),
            nobody,
            garbled,
            stale,
            foreign,
            empty,
            end(&jobs[0], succeeded()),
            end(&jobs[0], failed()),
        ])
        .await;
    let said: Vec<(&str, &str)> = answers.iter().map(|a| (a.code.as_str(), a.state.as_str())).collect();
    assert_eq!(
        said,
        [
            ("accepted", "succeeded"),
            ("accepted", "retrying"),
            ("accepted", "dead"),
            ("accepted", "retrying"),
            ("accepted", "cancelled"),
            ("accepted", "retrying"),
            ("malformed_json", ""),
            ("job_not_found", ""),
            ("job_not_found", ""),
            ("stale_token", ""),
            ("job_not_found", ""),
            ("missing_field", ""),
            ("already", "succeeded"),
            ("stale_token", ""),
        ]
    );
    assert!(answers.iter().all(|answer| answer.state.is_empty() != answer.detail.is_empty()), "{answers:?}");
    assert_eq!(server.job(&jobs[0].id).await["result"], json!({"ok": 1}));
    assert_eq!(server.job(&jobs[2].id).await["last_error"].as_str().unwrap().len(), 2_048);
    // What was handed back comes again, at no cost; its old token is worth nothing then.
    let again = worker.job().await;
    assert_eq!((&again.id, again.attempt), (&jobs[5].id, 2));
    assert_eq!(worker.end(&jobs[5], succeeded()).await, "stale_token");
    assert_eq!(worker.end(&again, succeeded()).await, "accepted");
}

#[tokio::test]
async fn heartbeats_extend_leases_until_the_attempt_is_over() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 1)).await;
    server.submit("q", 1).await;
    let job = worker.job().await;
    let extended = Heartbeat {
        extend: Some(Duration { seconds: 600, nanos: 0 }),
        progress: Bytes::from_static(b"{\"done\": 0.5}"),
        ..beat(&job)
    };
    let too_long = Heartbeat { extend: Some(Duration { seconds: 100_000, nanos: 0 }), ..beat(&job) };
    let bad = Heartbeat { progress: Bytes::from_static(b"half"), ..beat(&job) };
    let answers = worker.heartbeat(vec![extended.clone(), too_long, bad]).await;
    let codes: Vec<&str> = answers.iter().map(|answer| answer.code.as_str()).collect();
    assert_eq!(codes, ["accepted", "invalid_value", "malformed_json"]);
    let until = answers[0].lease_until.unwrap().seconds;
    assert!(until - job.lease_until.unwrap().seconds > 500);
    assert_eq!(server.job(&job.id).await["progress"], json!({"done": 0.5}));
    assert_eq!(worker.end(&job, succeeded()).await, "accepted");
    let late = worker.heartbeat(vec![extended]).await;
    assert_eq!((late[0].code.as_str(), late[0].lease_until), ("stale_token", None));
}

#[tokio::test]
async fn a_cancel_reaches_the_worker_and_its_outcome_is_refused() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 2)).await;
    server.submit("q", 2).await;
    let jobs = worker.jobs(2).await;
    let answer = server.api.post(&format!("/v1/jobs/{}/cancel", jobs[0].id), &json!({})).await;
    assert_eq!(answer.json()["state"], "cancelled");
    match worker.next().await {
        Ok(server_message::Message::CancelJobs(cancel)) => {
            let told: Vec<_> =
                cancel.jobs.iter().map(|job| (&job.id, job.token, job.reason.as_str())).collect();
            assert_eq!(told, [(&jobs[0].id, jobs[0].token, "cancelled")]);
        }
        other => panic!("expected a cancel: {other:?}"),
    }
    assert_eq!(worker.end(&jobs[0], succeeded()).await, "stale_token");
    // A worker that gives a job up itself is not told to.
    assert_eq!(worker.end(&jobs[1], cancelled()).await, "accepted");
    worker.nothing_comes().await;
    assert_eq!(server.workers_until(|workers| workers[0]["in_flight"] == 0).await.len(), 1);
}

#[tokio::test]
async fn a_lease_that_runs_out_is_told_and_the_job_given_out_anew() {
    let server = Server::start(patient()).await;
    let lease = Some(Duration { seconds: 1, nanos: 0 });
    let mut worker = server.worker(Subscribe { lease, ..subscribe("q", 1) }).await;
    let job = json!({"type": "t", "queue": "q", "retry": {"max_attempts": 3, "policy": "fixed", "base": 0}});
    server.api.submit(&job).await;
    let first = worker.job().await;
    match worker.next().await {
        Ok(server_message::Message::CancelJobs(cancel)) => assert_eq!(cancel.jobs[0].reason, "lease_over"),
        other => panic!("expected a cancel: {other:?}"),
    }
    // To one whose lease does not run out as soon.
    let mut other = server.worker(subscribe("q", 1)).await;
    let second = other.job().await;
    assert_eq!((&second.id, second.attempt), (&first.id, 2));
    assert!(second.token > first.token);
    assert_eq!(worker.end(&first, succeeded()).await, "stale_token");
    assert_eq!(other.end(&second, succeeded()).await, "accepted");
}

#[tokio::test]
async fn pools_take_only_what_they_are_for() {
    let server = Server::start(patient()).await;
    let mails = Subscribe { worker: "mails".into(), types: vec!["mail".into()], ..subscribe("q", 10) };
    let urgent = Subscribe { worker: "urgent".into(), min_priority: "high".into(), ..subscribe("q", 10) };
    let mut mails = server.worker(mails).await;
    let low = json!({"type": "report", "queue": "q", "priority": "low"});
    let report = server.api.submit(&low).await;
    let mail = server.api.submit(&json!({"type": "mail", "queue": "q", "priority": "low"})).await;
    // The report stands before the mail, and stays.
    assert_eq!(mails.job().await.id, mail);
    let mut urgent = server.worker(urgent).await;
    let fire = server.api.submit(&json!({"type": "fire", "queue": "q", "priority": "critical"})).await;
    assert_eq!(urgent.job().await.id, fire);
    urgent.nothing_comes().await;
    mails.nothing_comes().await;
    let mut all = server.worker(subscribe("q", 10)).await;
    assert_eq!(all.job().await.id, report);
}

#[tokio::test]
async fn a_worker_works_for_the_tenants_it_names() {
    let server = Server::start(patient()).await;
    let (acme, globex) = (server.api.as_tenant("acme"), server.api.as_tenant("globex"));
    let job = json!({"type": "t", "queue": "q"});
    let of_acme = acme.submit(&job).await;
    let of_globex = globex.submit(&job).await;
    let of_default = server.api.submit(&job).await;
    let mut own = server.worker(subscribe("q", 10)).await;
    assert_eq!(own.job().await.id, of_default);
    own.nothing_comes().await;
    let named = Subscribe { tenants: vec!["acme".into()], ..subscribe("q", 10) };
    let mut named = server.worker(named).await;
    let taken = named.job().await;
    assert_eq!((taken.id.as_str(), taken.tenant.as_str()), (of_acme.as_str(), "acme"));
    // It has one tenant, so it need not name it.
    let unnamed = Outcome { tenant: String::new(), ..end(&taken, succeeded()) };
    assert_eq!(named.outcomes(vec![unnamed]).await[0].code, "accepted");
    let mut every = server.worker(Subscribe { all_tenants: true, ..subscribe("q", 10) }).await;
    let taken = every.job().await;
    assert_eq!((taken.id.as_str(), taken.tenant.as_str()), (of_globex.as_str(), "globex"));
    assert_eq!(every.end(&taken, succeeded()).await, "accepted");
    // Each tenant sees the workers that work for it.
    let count = |workers: Value| workers["items"].as_array().unwrap().len();
    assert_eq!(count(acme.get("/v1/workers").await.json()), 2);
    assert_eq!(count(globex.get("/v1/workers").await.json()), 1);
}

#[tokio::test]
async fn an_idle_worker_is_fed_before_a_busy_one() {
    let server = Server::start(patient()).await;
    let mut busy = server.worker(subscribe("q", 100)).await;
    server.submit("q", 3).await;
    busy.jobs(3).await;
    let mut idle = server.worker(subscribe("q", 2)).await;
    server.submit("q", 1).await;
    idle.job().await;
    // Now one of two against three of a hundred.
    server.submit("q", 1).await;
    busy.job().await;
}

#[tokio::test]
async fn the_list_of_workers_comes_in_pages() {
    let server = Server::start(patient()).await;
    let mut connected = Vec::new();
    for name in ["a", "b", "c"] {
        let named = Subscribe { worker: name.into(), types: vec!["t".into()], ..subscribe("q", 5) };
        connected.push(server.worker(named).await);
    }
    let (mut names, mut path) = (Vec::new(), "/v1/workers?limit=2".to_owned());
    loop {
        let page = server.api.get(&path).await.json();
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()));
        assert!(
            items.iter().all(|worker| worker["types"] == json!(["t"]) && worker["min_priority"] == "low")
        );
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/workers?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["a", "b", "c"]);
    server.api.get("/v1/workers?cursor=x").await.problem(400, "invalid_cursor");
    server.api.get("/v1/workers?state=x").await.problem(400, "unknown_parameter");
}

#[tokio::test]
async fn a_draining_worker_gets_no_more_and_may_finish() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 10)).await;
    server.submit("q", 1).await;
    let job = worker.job().await;
    worker.started(&[&job]).await;
    worker.drain().await;
    worker.add_credits(5).await;
    server.workers_until(|workers| workers[0]["draining"] == true && workers[0]["credits"] == 0).await;
    let ids = server.submit("q", 1).await;
    assert_eq!(worker.end(&job, succeeded()).await, "accepted");
    worker.nothing_comes().await;
    let explained = server.api.get(&format!("/v1/jobs/{}/explain", ids[0])).await.json();
    assert_eq!(explained["waits_for"], "workers_busy", "{explained}");
    drop(worker);
    server.workers_until(<[Value]>::is_empty).await;
    let mut next = server.worker(subscribe("q", 1)).await;
    assert_eq!(next.job().await.id, ids[0]);
}

#[tokio::test]
async fn a_stopping_server_sends_its_workers_away() {
    let server = Server::start(patient()).await;
    let mut worker = server.worker(subscribe("q", 1)).await;
    server.submit("q", 1).await;
    let job = worker.job().await;
    server.api.engine.drain(std::time::Duration::from_secs(5)).await;
    assert!(matches!(worker.next().await, Ok(server_message::Message::GoAway(_))));
    let ended = worker.next().await.unwrap_err().unwrap();
    assert_eq!((ended.code(), code(&ended)), (Code::Unavailable, "draining"));
    let refused = Worker::connect(server.channel().await, "default", subscribe("q", 1)).await.err().unwrap();
    assert_eq!((refused.code(), code(&refused)), (Code::Unavailable, "draining"));
    // The attempt is the worker's own: it outlives the server.
    assert_eq!(server.job(&job.id).await["state"], "running");
}

#[tokio::test]
async fn what_breaks_the_protocol_is_refused_in_words() {
    let server = Server::start(patient()).await;
    let refuse = async |tenant: &str, subscribe: Subscribe| {
        let refused = Worker::connect(server.channel().await, tenant, subscribe).await.err().unwrap();
        assert!(!refused.message().is_empty());
        (refused.code(), code(&refused).to_owned())
    };
    let invalid = |code: &str| (Code::InvalidArgument, code.to_owned());
    assert_eq!(refuse("no tenant", subscribe("q", 1)).await, invalid("invalid_tenant"));
    assert_eq!(refuse("default", subscribe("no queue", 1)).await, invalid("invalid_value"));
    assert_eq!(refuse("default", subscribe("q", 10_001)).await, invalid("invalid_value"));
    let none = Subscribe { queues: Vec::new(), ..subscribe("q", 1) };
    assert_eq!(refuse("default", none).await, invalid("missing_field"));
    let both = Subscribe { tenants: vec!["a".into()], all_tenants: true, ..subscribe("q", 1) };
    assert_eq!(refuse("default", both).await, invalid("conflicting_fields"));
    let urgent = Subscribe { min_priority: "urgent".into(), ..subscribe("q", 1) };
    assert_eq!(refuse("default", urgent).await, invalid("invalid_value"));
    let lease = Some(Duration { seconds: 0, nanos: 1 });
    assert_eq!(refuse("default", Subscribe { lease, ..subscribe("q", 1) }).await, invalid("invalid_value"));

    let first = worker_message::Message::Drain(Drain {});
    let (mut hear, _say) = Worker::open(server.channel().await, "default", first).await.unwrap();
    assert_eq!(hear.message().await.unwrap_err().code(), Code::InvalidArgument);
    let mut twice = server.worker(subscribe("q", 1)).await;
    twice.say(worker_message::Message::Subscribe(subscribe("q", 1))).await;
    let ended = twice.next().await.unwrap_err().unwrap();
    assert_eq!((ended.code(), code(&ended)), (Code::InvalidArgument, "invalid_value"));
}
