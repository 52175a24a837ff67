//! Taking jobs in: idempotency keys, batches, and batches sent again.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job, Occurrence, Priority, State, Target};
use tidewheel_core::limits::{IDEMPOTENCY_KEY_CHARS_MAX, PAYLOAD_BYTES_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

use super::Home;
use super::trial::{START, Trial, keyed, keyless, succeeding, tenant};
use tidewheel_store::{KeyUse, OnConflict, Submission, Submitted};

/// Jobs of several tenants in one batch are all there afterwards.
pub async fn jobs_are_taken_in_and_answered_in_order(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let jobs: Vec<_> = ["acme", "globex", "acme"].map(|name| trial.job(&tenant(name), 5_000)).into();
    trial.take_in(&jobs).await;
    for job in &jobs {
        trial.holds(job).await;
    }
    assert_eq!(trial.counts(Some(&tenant("acme"))).await, [(State::Scheduled, 2)]);
}

/// Nothing in, nothing out.
pub async fn an_empty_batch_is_fine(home: &dyn Home) {
    let trial = Trial::start(home).await;
    assert_eq!(trial.submit(Vec::new()).await, []);
    assert!(trial.orders(Vec::new()).await.is_empty());
    assert_eq!(trial.store.get(&tenant("acme"), Vec::new()).await.expect("nothing is looked up"), []);
}

/// Payloads of every size and byte, and everything else of a job, come back as they went in.
pub async fn every_field_survives_byte_for_byte(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut jobs = vec![full_job(&mut trial, &acme)];
    for size in [0, 1, 255, 256, PAYLOAD_BYTES_MAX - 1, PAYLOAD_BYTES_MAX] {
        let payload: Bytes = (0..=u8::MAX).cycle().take(size).collect();
        jobs.push(trial.job_with(&acme, 1_000, |spec| spec.payload = payload));
    }
    trial.take_in(&jobs).await;
    for job in &jobs {
        trial.holds(job).await;
    }
    let trial = trial.reopen().await;
    for job in &jobs {
        trial.holds(job).await;
    }
}

fn full_job(trial: &mut Trial<'_>, tenant: &Tenant) -> Job {
    let target = Target {
        url: "https://example.com/hook?a=1".into(),
        method: "PUT".into(),
        headers: vec![("x-a".into(), "1".into()), ("x-b".into(), "é".into())],
    };
    trial.job_with(tenant, 86_400_000, |spec| {
        spec.kind = Arc::from("invoice.render");
        spec.destination = Destination::Target(Arc::new(target));
        spec.priority = Priority::Critical;
        spec.retry = RetryPolicy {
            max_attempts: 9,
            backoff: Backoff::ExponentialJitter,
            base_ms: 123,
            multiplier: 1.75,
            max_ms: 9_999,
        };
        spec.timeout_ms = 77_777;
        spec.expires_at = Some(START.plus_ms(90_000_000));
        spec.idempotency_key = Some(Arc::from("the caller's own"));
        spec.labels = vec![("env".into(), "prod".into()), ("team".into(), "billing 💶".into())];
        spec.occurrence = Some(Occurrence {
            schedule_id: ScheduleId::from_bytes([1; 16]),
            fire_at: START.plus_ms(86_399_000),
            catch_up: true,
        });
    })
}

/// The second submission of one request under one key is answered with the first job and not stored.
pub async fn a_repeat_under_a_key_gets_the_first_job(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (first, second) = (trial.job(&acme, 1_000), trial.job(&acme, 2_000));
    assert_eq!(trial.submit(vec![keyed(&first, "order-1", 1)]).await, [Submitted::New]);
    assert_eq!(found(&trial, &acme, "order-1").await, Some(first.id));
    assert_eq!(trial.submit(vec![keyed(&second, "order-1", 1)]).await, [Submitted::Duplicate(first.id)]);
    assert_eq!(trial.get(&second).await, None);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 1)]);
    assert_eq!(trial.waiting().await, [(first.status.due_at, first.id)]);

    let trial = trial.reopen().await;
    assert_eq!(found(&trial, &acme, "order-1").await, Some(first.id));
    assert_eq!(trial.submit(vec![keyed(&second, "order-1", 1)]).await, [Submitted::Duplicate(first.id)]);
}

/// A different request under a key in use is refused, and the key keeps pointing where it did.
pub async fn another_request_under_a_key_conflicts(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (first, second) = (trial.job(&acme, 1_000), trial.job(&acme, 2_000));
    assert_eq!(trial.submit(vec![keyed(&first, "order-1", 1)]).await, [Submitted::New]);
    assert_eq!(
        trial.submit(vec![keyed(&second, "order-1", 2)]).await,
        [Submitted::Conflict(KeyUse::Job(first.id))]
    );
    assert_eq!(trial.get(&second).await, None);
    assert_eq!(found(&trial, &acme, "order-1").await, Some(first.id));
    assert_eq!(found(&trial, &acme, "order-2").await, None);
}

/// After its window a key points nowhere and can be used for another request.
pub async fn a_key_is_free_again_when_its_time_is_over(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (first, second) = (trial.job(&acme, 1_000), trial.job(&acme, 200_000));
    assert_eq!(trial.submit(vec![keyed(&first, "order-1", 1)]).await, [Submitted::New]);
    trial.pass(59_000);
    assert_eq!(found(&trial, &acme, "order-1").await, Some(first.id));
    trial.pass(2_000);
    assert_eq!(found(&trial, &acme, "order-1").await, None);
    let again = until(keyed(&second, "order-1", 2), trial.now.plus_ms(60_000));
    assert_eq!(trial.submit(vec![again]).await, [Submitted::New]);
    assert_eq!(found(&trial, &acme, "order-1").await, Some(second.id));
    trial.holds(&first).await;
    trial.holds(&second).await;
}

fn until(mut submission: Submission, until: Timestamp) -> Submission {
    if let Some(key) = &mut submission.key {
        key.until = until;
    }
    submission
}

/// The first of a batch takes the key, the later ones meet it.
pub async fn a_key_used_twice_in_one_batch_behaves_as_in_two_calls(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [a, b, c, d] = [1, 2, 3, 4].map(|ms| trial.job(&acme, ms));
    let batch = vec![keyed(&a, "k", 1), keyed(&b, "k", 1), keyed(&c, "k", 2), keyed(&d, "other", 2)];
    let expected =
        [Submitted::New, Submitted::Duplicate(a.id), Submitted::Conflict(KeyUse::Job(a.id)), Submitted::New];
    assert_eq!(trial.submit(batch).await, expected);
    assert_eq!(trial.waiting().await, [(a.status.due_at, a.id), (d.status.due_at, d.id)]);
}

/// Two tenants may use one key, in one batch and over several.
pub async fn keys_belong_to_their_tenant(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(3);
    let jobs: Vec<_> = neighbours.iter().map(|tenant| trial.job(tenant, 1_000)).collect();
    let batch = vec![keyed(&jobs[0], "k", 1), keyed(&jobs[1], "k", 2)];
    assert_eq!(trial.submit(batch).await, [Submitted::New, Submitted::New]);
    assert_eq!(found(&trial, &neighbours[2], "k").await, None);
    assert_eq!(trial.submit(vec![keyed(&jobs[2], "k", 3)]).await, [Submitted::New]);
    for (tenant, job) in neighbours.iter().zip(&jobs) {
        assert_eq!(found(&trial, tenant, "k").await, Some(job.id));
    }
}

/// Keys and tenants that run into each other when written one after the other are still different.
pub async fn keys_are_compared_whole(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let longest = "ü".repeat(IDEMPOTENCY_KEY_CHARS_MAX);
    let shorter = "ü".repeat(IDEMPOTENCY_KEY_CHARS_MAX - 1);
    let pairs = [
        ("a", "bc"),
        ("ab", "c"),
        ("a", "b"),
        ("a", "bc "),
        ("a", "BC"),
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b/c"),
        ("a", longest.as_str()),
        ("a", shorter.as_str()),
    ];
    let mut expected = Vec::new();
    for (name, key) in pairs {
        let job = trial.job(&tenant(name), 1_000);
        assert_eq!(trial.submit(vec![keyed(&job, key, 1)]).await, [Submitted::New], "{name} {key}");
        expected.push((tenant(name), key, job.id));
    }
    for (tenant, key, id) in expected {
        assert_eq!(found(&trial, &tenant, key).await, Some(id), "{tenant} {key}");
    }
}

/// A key keeps a finished request from being made again.
pub async fn a_key_outlives_the_end_of_its_job(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (first, second) = (trial.job(&acme, 0), trial.job(&acme, 1_000));
    assert_eq!(trial.submit(vec![keyed(&first, "k", 1)]).await, [Submitted::New]);
    let running = trial.claim(&first).await;
    trial.order(&first, succeeding(&running)).await;
    assert_eq!(trial.submit(vec![keyed(&second, "k", 1)]).await, [Submitted::Duplicate(first.id)]);
    assert_eq!(found(&trial, &acme, "k").await, Some(first.id));
}

/// [`OnConflict::KeepOthers`].
pub async fn a_conflict_leaves_the_others_when_asked_to(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [first, before, clash, after] = [1, 2, 3, 4].map(|ms| trial.job(&acme, ms));
    trial.submit(vec![keyed(&first, "k", 1)]).await;
    let batch = vec![keyed(&before, "b", 1), keyed(&clash, "k", 2), keyless(&after)];
    let answers = trial.submit_or(batch, OnConflict::KeepOthers).await;
    assert_eq!(answers, [Submitted::New, Submitted::Conflict(KeyUse::Job(first.id)), Submitted::New]);
    trial.holds(&before).await;
    trial.holds(&after).await;
    assert_eq!(trial.get(&clash).await, None);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 3)]);
}

/// [`OnConflict::KeepNone`]: neither jobs nor keys of the batch stay.
pub async fn a_conflict_takes_the_whole_batch_with_it_when_asked_to(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [first, before, clash, after] = [1, 2, 3, 4].map(|ms| trial.job(&acme, ms));
    trial.submit(vec![keyed(&first, "k", 1)]).await;
    let batch = vec![keyed(&before, "b", 1), keyed(&clash, "k", 2), keyless(&after)];
    let answers = trial.submit_or(batch, OnConflict::KeepNone).await;
    assert_eq!(answers[1], Submitted::Conflict(KeyUse::Job(first.id)));
    for job in [&before, &clash, &after] {
        assert_eq!(trial.get(job).await, None);
    }
    assert_eq!(found(&trial, &acme, "b").await, None);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 1)]);
    assert_eq!(trial.waiting().await, [(first.status.due_at, first.id)]);

    let batch = vec![keyed(&before, "b", 9), keyed(&first, "k", 1), keyless(&after)];
    let answers = trial.submit_or(batch, OnConflict::KeepNone).await;
    assert_eq!(answers, [Submitted::New, Submitted::New, Submitted::New], "no conflict: all are taken in");
    trial.holds(&before).await;
    trial.holds(&after).await;
}

/// [`OnConflict::KeepNone`] with the conflict between two of the batch.
pub async fn a_conflict_within_the_batch_takes_it_all(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [a, b] = [1, 2].map(|ms| trial.job(&acme, ms));
    let answers = trial.submit_or(vec![keyed(&a, "k", 1), keyed(&b, "k", 2)], OnConflict::KeepNone).await;
    assert_eq!(answers[1], Submitted::Conflict(KeyUse::Job(a.id)));
    assert_eq!(trial.counts(None).await, []);
    assert_eq!(found(&trial, &acme, "k").await, None);
    assert_eq!(trial.submit(vec![keyed(&b, "k", 2)]).await, [Submitted::New]);
}

/// The answer was lost; the same ids come again, whatever has become of the jobs since.
pub async fn a_batch_sent_again_changes_nothing(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [keyed_job, claimed, finished, waiting] = [0, 0, 0, 9_000].map(|ms| trial.job(&acme, ms));
    let batch = || vec![keyed(&keyed_job, "k", 1), keyless(&claimed), keyless(&finished), keyless(&waiting)];
    let all_new = [Submitted::New; 4];
    assert_eq!(trial.submit(batch()).await, all_new);
    assert_eq!(trial.submit(batch()).await, all_new);
    let running = trial.claim(&claimed).await;
    let ended = trial.claim(&finished).await;
    let ended = trial.order(&finished, succeeding(&ended)).await;
    let counts = trial.counts(Some(&acme)).await;
    assert_eq!(trial.submit(batch()).await, all_new);
    let trial = trial.reopen().await;
    assert_eq!(trial.submit_or(batch(), OnConflict::KeepNone).await, all_new);
    for job in [&keyed_job, &running, &ended, &waiting] {
        trial.holds(job).await;
    }
    assert_eq!(trial.counts(Some(&acme)).await, counts);
    let mut expected = [&keyed_job, &waiting].map(|job| (job.status.due_at, job.id));
    expected.sort();
    assert_eq!(trial.waiting().await, expected);
}

/// Tenant and id together are the key of a job.
pub async fn an_id_may_be_used_by_two_tenants(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(2);
    let mine = trial.job(&neighbours[0], 0);
    let theirs = trial.job_with(&neighbours[1], 0, |spec| spec.payload = Bytes::from_static(b"theirs"));
    let theirs = Job { id: mine.id, ..theirs };
    trial.take_in(&[mine.clone(), theirs.clone()]).await;
    let running = trial.claim(&mine).await;
    trial.holds(&running).await;
    trial.holds(&theirs).await;
    assert_eq!(trial.due_in_bucket(&neighbours[0], trial.now).await, []);
    assert_eq!(trial.due_in_bucket(&neighbours[1], trial.now).await, [theirs.id]);
}

/// A firing that policy forbids is stored for the record and never runs.
pub async fn a_job_taken_in_as_skipped_is_finished(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.skipped(&acme);
    trial.take_in(std::slice::from_ref(&job)).await;
    let trial = trial.reopen().await;
    trial.holds(&job).await;
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Skipped, 1)]);
    assert_eq!(trial.waiting().await, []);
}

async fn found(trial: &Trial<'_>, tenant: &Tenant, key: &str) -> Option<JobId> {
    let held = trial.store.find_key(trial.now, tenant, key).await.expect("the key is looked up");
    held.map(|held| match held.used_for {
        KeyUse::Job(id) => id,
        KeyUse::NewSchedule(_) | KeyUse::Schedule(_) | KeyUse::Call => unreachable!("it was used for a job"),
    })
}
