//! The checker itself: an honest record passes, and each kind of broken promise is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Change, transition};
use tidewheel_core::job::{Command, Destination, Ending, Finding, Job, Priority, Spec, State, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_sim::checker::{Ledger, Promise, check};
use tidewheel_sim::history::{Asked, Entry, Event, Start, Wish};

const RUN_AT: Timestamp = Timestamp::from_ms(1_000_000);

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn id() -> JobId {
    JobId::new(RUN_AT, 7)
}

fn asked() -> Asked {
    Asked {
        tenant: tenant(),
        id: id(),
        key: Some(Arc::from("key")),
        run_at: RUN_AT,
        expires_at: None,
        max_attempts: 2,
        deserted: false,
    }
}

fn token(attempt: u32) -> Token {
    Token::new(1, attempt)
}

fn start(attempt: u32) -> Start {
    Start {
        tenant: tenant(),
        id: id(),
        token: token(attempt),
        attempt,
        due_at: RUN_AT,
        claimed_at: RUN_AT.plus_ms(5),
        run_key: "key".to_owned(),
        occurrence: None,
    }
}

fn reporting(attempt: u32, ending: Ending) -> Event {
    Event::Reporting { id: id(), token: token(attempt), ending: Some(ending) }
}

fn accepted(attempt: u32, ending: Ending) -> Event {
    Event::Accepted { id: id(), token: token(attempt), ending: Some(ending), changed: true }
}

/// A job that was submitted, started and done.
fn honest() -> Vec<Event> {
    vec![
        Event::Submitting(asked()),
        Event::Taken { id: id() },
        Event::Started(start(1)),
        reporting(1, Ending::Succeeded),
        accepted(1, Ending::Succeeded),
    ]
}

fn stored(with: impl IntoIterator<Item = Command>) -> Job {
    let spec = Spec {
        kind: Arc::from("test"),
        payload: Bytes::new(),
        destination: Destination::Queue(Arc::from("mail")),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: 1_000,
        expires_at: None,
        idempotency_key: Some(Arc::from("key")),
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: RUN_AT,
    };
    let job = Job::new(tenant(), spec, RUN_AT, 7);
    with.into_iter().fold(job, |job, command| match transition(&job, &command, RUN_AT.plus_ms(5)) {
        Ok(Change::To(next)) => next,
        other => panic!("{command:?}: {other:?}"),
    })
}

fn claim() -> Command {
    Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: 1_000, detached: false }
}

fn done() -> Job {
    stored([claim(), Command::Succeed { token: token(1), finding: Finding::default() }])
}

fn judge(events: Vec<Event>, job: Option<Job>) -> Vec<Promise> {
    let entries: Vec<Entry> = events
        .into_iter()
        .enumerate()
        .map(|(n, event)| {
            let elapsed_ms = i64::try_from(n).unwrap() * 10;
            Entry { elapsed_ms, wall: RUN_AT.plus_ms(elapsed_ms), event }
        })
        .collect();
    let jobs: BTreeMap<JobId, Job> = job.into_iter().map(|job| (job.id, job)).collect();
    let schedules = BTreeMap::new();
    let ledger =
        Ledger { jobs, schedules, call_ms_max: None, skew_ms_max: 0, ended_at: RUN_AT.plus_ms(1_000_000) };
    let mut promises: Vec<Promise> = check(&entries, &ledger).into_iter().map(|v| v.promise).collect();
    promises.dedup();
    promises
}

fn after_honest(more: impl IntoIterator<Item = Event>) -> Vec<Promise> {
    judge(honest().into_iter().chain(more).collect(), Some(done()))
}

#[test]
fn an_honest_record_passes() {
    assert_eq!(judge(honest(), Some(done())), []);
    let fine = [
        Event::Known { tenant: tenant(), key: Arc::from("key"), id: id() },
        Event::Held { count: 5, bound: 5 },
        Event::Accepted { id: id(), token: token(1), ending: Some(Ending::Succeeded), changed: false },
        Event::ServerGone { drained: false },
    ];
    assert_eq!(after_honest(fine), []);
}

#[test]
fn finds_a_lost_job() {
    assert_eq!(judge(honest(), None), [Promise::NothingLost], "gone from the store");
    let submitted = || honest().into_iter().take(2).collect::<Vec<_>>();
    assert_eq!(judge(submitted(), Some(stored([]))), [Promise::NothingLost], "never started");
    assert_eq!(judge(submitted(), Some(stored([claim()]))), [Promise::NothingLost], "never ended");
    assert_eq!(judge(vec![Event::Submitting(asked())], None), [], "it was never acknowledged");
}

#[test]
fn finds_an_early_start() {
    let mut early = honest();
    early[2] =
        Event::Started(Start { claimed_at: RUN_AT.plus_ms(-1), due_at: RUN_AT.plus_ms(-1), ..start(1) });
    assert_eq!(judge(early, Some(done())), [Promise::NothingEarly], "before what was asked for");
    let mut early = honest();
    early[2] = Event::Started(Start { due_at: RUN_AT.plus_ms(6), ..start(1) });
    assert_eq!(judge(early, Some(done())), [Promise::NothingEarly], "before its time");
    let mut early = honest();
    early[2] = Event::Started(Start { claimed_at: RUN_AT.plus_ms(60_000), ..start(1) });
    assert_eq!(judge(early, Some(done())), [Promise::NothingEarly], "by a time no clock has shown");
    let mut moved = honest();
    let wish = Wish::Amend(RUN_AT.plus_ms(100));
    moved.splice(2..2, [Event::Wishing { id: id(), wish }, Event::Granted { id: id(), wish }]);
    assert_eq!(judge(moved, Some(done())), [Promise::NothingEarly], "before the time it was moved to");
    let mut late = honest();
    late[0] = Event::Submitting(Asked { expires_at: Some(RUN_AT.plus_ms(5)), ..asked() });
    assert_eq!(judge(late.clone(), Some(done())), [Promise::NothingEarly], "after it expired");
    let wish = Wish::Rerun(RUN_AT.plus_ms(5));
    late.splice(2..2, [Event::Wishing { id: id(), wish }, Event::Granted { id: id(), wish }]);
    assert_eq!(judge(late, Some(done())), [], "it was asked for again in spite of that");
}

#[test]
fn finds_a_start_after_a_cancel() {
    let mut cancelled = honest();
    let wish = Wish::Cancel;
    cancelled.splice(2..2, [Event::Wishing { id: id(), wish }, Event::Granted { id: id(), wish }]);
    assert_eq!(judge(cancelled.clone(), Some(done())), [Promise::NoStartAfterCancel]);
    let again = Wish::Rerun(RUN_AT);
    cancelled
        .splice(4..4, [Event::Wishing { id: id(), wish: again }, Event::Granted { id: id(), wish: again }]);
    assert_eq!(judge(cancelled, Some(done())), [], "it was asked for again");
}

#[test]
fn finds_a_start_after_a_completion() {
    assert_eq!(after_honest([Event::Started(start(2))]), [Promise::NoStartAfterCompletion]);
    let wish = Wish::Rerun(RUN_AT);
    let (wishing, granted) = (Event::Wishing { id: id(), wish }, Event::Granted { id: id(), wish });
    let mut again = honest();
    again.push(Event::Started(start(2)));
    again.splice(2..2, [wishing.clone(), granted.clone()]);
    assert_eq!(judge(again, Some(done())), [Promise::NoStartAfterCompletion], "the run asked for is over");
    let mut crossed = honest();
    crossed.push(Event::Started(start(2)));
    crossed.insert(2, wishing);
    crossed.insert(5, granted);
    assert_eq!(judge(crossed, Some(done())), [], "the end was told before another run was granted");
    let wish = Wish::Replay(RUN_AT);
    let mut dead_only = honest();
    dead_only.push(Event::Started(start(2)));
    dead_only.insert(2, Event::Wishing { id: id(), wish });
    dead_only.insert(5, Event::Granted { id: id(), wish });
    assert_eq!(
        judge(dead_only, Some(done())),
        [Promise::NoStartAfterCompletion],
        "what succeeded is not dead"
    );
}

#[test]
fn finds_tokens_that_do_not_rise() {
    let mut twice = honest();
    twice.insert(3, Event::Started(start(1)));
    assert_eq!(judge(twice, Some(done())), [Promise::TokensRise]);
}

#[test]
fn finds_two_outcomes_under_one_token() {
    let other = [reporting(1, Ending::Failed), accepted(1, Ending::Failed)];
    assert_eq!(after_honest(other), [Promise::OneOutcomePerToken], "different ones");
    let same = [reporting(1, Ending::Succeeded), accepted(1, Ending::Succeeded)];
    assert_eq!(after_honest(same), [Promise::OneOutcomePerToken], "the same, taken twice");
    let released = stored([claim(), Command::Release { token: token(1) }]);
    let lost = judge(honest(), Some(released));
    assert!(lost.contains(&Promise::OneOutcomePerToken), "an outcome that was not kept: {lost:?}");
}

#[test]
fn finds_a_stale_token_that_was_accepted() {
    let mut stale = honest();
    stale.truncate(3);
    stale.extend([Event::Started(start(2)), reporting(1, Ending::Failed), accepted(1, Ending::Failed)]);
    assert!(judge(stale, Some(done())).contains(&Promise::StaleTokenRefused));
    let mut slow = honest();
    slow.truncate(3);
    slow.extend([reporting(1, Ending::Succeeded), Event::Started(start(2)), accepted(1, Ending::Succeeded)]);
    assert_eq!(judge(slow, Some(done())), [], "sent in time, answered late");
}

#[test]
fn finds_a_key_that_made_two_jobs() {
    let other = JobId::new(RUN_AT, 8);
    let second = [
        Event::Submitting(Asked { id: other, ..asked() }),
        Event::Known { tenant: tenant(), key: Arc::from("key"), id: other },
    ];
    assert!(after_honest(second).contains(&Promise::OneJobPerKey), "acknowledged twice");
    let ran =
        [Event::Submitting(Asked { id: other, ..asked() }), Event::Started(Start { id: other, ..start(1) })];
    assert_eq!(after_honest(ran), [Promise::OneJobPerKey], "started twice");
}

#[test]
fn finds_a_run_key_that_changes() {
    let mut changing = honest();
    changing.insert(3, Event::Started(Start { run_key: "another".to_owned(), ..start(2) }));
    assert!(judge(changing, Some(done())).contains(&Promise::RunKeyStable));
}

#[test]
fn finds_too_many_attempts() {
    let mut many = honest();
    many.splice(3..3, [Event::Started(start(2)), Event::Started(start(3))]);
    assert!(judge(many.clone(), Some(done())).contains(&Promise::AttemptsBounded));
    many.insert(3, Event::ServerGone { drained: false });
    assert!(!judge(many, Some(done())).contains(&Promise::AttemptsBounded), "one was lost with its server");
    let mut handed_back = honest();
    handed_back
        .splice(3..3, [Event::Started(start(2)), reporting(2, Ending::Released), Event::Started(start(3))]);
    assert!(!judge(handed_back, Some(done())).contains(&Promise::AttemptsBounded), "one was handed back");
}

#[test]
fn finds_what_nobody_asked_for() {
    let stranger = Start { tenant: Tenant::new("other").unwrap(), ..start(1) };
    let mut crossed = honest();
    crossed[2] = Event::Started(stranger);
    assert_eq!(judge(crossed, Some(done())), [Promise::NothingUnexpected], "another tenant's");
    assert_eq!(judge(vec![], Some(done())), [Promise::NothingUnexpected], "nobody's");
    let mut deserted = honest();
    deserted[0] = Event::Submitting(Asked { deserted: true, ..asked() });
    assert_eq!(judge(deserted, Some(done())), [Promise::NothingUnexpected], "nobody takes those");
}

#[test]
fn finds_lateness_and_broken_bounds() {
    let late = Event::Overdue { id: id(), state: State::Scheduled, since: RUN_AT };
    assert_eq!(after_honest([late.clone(), late]), [Promise::LagRecovers]);
    assert_eq!(after_honest([Event::Held { count: 6, bound: 5 }]), [Promise::Bounded]);
    assert_eq!(after_honest([Event::TooManyPushes { count: 6, bound: 5 }]), [Promise::Bounded]);
}
