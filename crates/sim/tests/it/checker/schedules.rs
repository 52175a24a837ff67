//! The checker's part about schedules: an honest record passes, and each kind of broken promise is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Change, Command, Destination, Finding, Job, Priority, Token, transition};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{
    Definition, Entry as Decided, Misfire, NewSchedule, Next, Outcome, Overlap, Reason, Rule, Schedule,
    ScheduleId, State, Template, Timing, Zone, create, occurrence_job, window_offset_ms,
};
use tidewheel_core::time::Timestamp;
use tidewheel_sim::checker::{KeptSchedule, Ledger, Promise, check};
use tidewheel_sim::history::{Entry, Event};
use tidewheel_sim::runner::start_of;
use tidewheel_sim::schedule_wish::{Deed, ScheduleAnswer, ScheduleWish};

const CREATED_AT: Timestamp = Timestamp::from_ms(1_800_000_000_000);
/// From one instant to the next.
const BEAT_MS: i64 = 10_000;
/// How long a run takes.
const TAKES_MS: i64 = 100;
/// Instants that have come.
const PASSED: i64 = 4;

fn nth(n: i64) -> Timestamp {
    CREATED_AT.plus_ms(n * BEAT_MS)
}

fn definition(every_ms: i64) -> Definition {
    let rule = Rule {
        timing: Timing::Every { interval_ms: every_ms, anchor: CREATED_AT },
        zone: Zone::utc(),
        dst: Default::default(),
        start_at: None,
        end_at: None,
        exclude: Default::default(),
    };
    Definition {
        rule: Arc::new(rule),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: "test".into(),
            payload: Bytes::new(),
            destination: Destination::Queue("mail".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    }
}

fn created(definition: Definition) -> Schedule {
    let (id, tenant) = (ScheduleId::from_bytes([7; 16]), Tenant::new("acme").unwrap());
    create(NewSchedule { id, tenant, name: None, definition, paused: false }, None, CREATED_AT).schedule
}

fn after(job: &Job, command: Command, now: Timestamp) -> Job {
    match transition(job, &command, now) {
        Ok(Change::To(next)) => next,
        other => panic!("{command:?}: {other:?}"),
    }
}

fn claimed(job: &Job, now: Timestamp) -> Job {
    after(job, Command::Claim { epoch: 1, worker: "w".into(), lease_ms: 30_000, detached: false }, now)
}

fn done(job: &Job, now: Timestamp) -> Job {
    after(job, Command::Succeed { token: Token::new(1, 1), finding: Finding::default() }, now)
}

/// A record and what is left of it, to be tampered with.
struct Case {
    schedule: Schedule,
    /// When it happened, and what.
    events: Vec<(Timestamp, Event)>,
    jobs: BTreeMap<JobId, Job>,
    decided: Vec<Decided>,
    is_kept: bool,
    call_ms_max: Option<i64>,
}

impl Case {
    /// A schedule that was created and fired at every instant since.
    fn honest() -> Self {
        Self::of(definition(BEAT_MS))
    }

    fn of(definition: Definition) -> Self {
        let schedule = created(definition.clone());
        let (tenant, id) = (schedule.tenant.clone(), schedule.id);
        let wish = ScheduleWish { tenant, id, deed: Deed::Create, definition: Some(Arc::new(definition)) };
        let mut case = Self {
            schedule,
            events: vec![(CREATED_AT, Event::ScheduleWishing(Box::new(wish)))],
            jobs: BTreeMap::new(),
            decided: Vec::new(),
            is_kept: true,
            call_ms_max: Some(0),
        };
        case.granted(CREATED_AT, Deed::Create);
        for n in 1..=PASSED {
            let at = nth(n).plus_ms(window_offset_ms(id, nth(n), case.schedule.definition.window_ms));
            case.fire(nth(n), at, TAKES_MS);
        }
        case.go_on(nth(PASSED));
        case
    }

    fn granted(&mut self, at: Timestamp, deed: Deed) {
        let answer = ScheduleAnswer { deed, schedule: self.schedule.clone(), changed: true, jobs: vec![] };
        self.events.push((at, Event::ScheduleGranted(Box::new(answer))));
    }

    /// Fires and runs an instant, as the server would note it.
    fn fire(&mut self, fire_at: Timestamp, at: Timestamp, takes_ms: i64) -> JobId {
        let job = claimed(&occurrence_job(&self.schedule, fire_at, at, false, CREATED_AT), at);
        self.events.push((at, Event::Started(start_of(&job))));
        self.decided.push(Decided::single(fire_at, Outcome::Fired { job_id: job.id, catch_up: false }, at));
        self.jobs.insert(job.id, done(&job, at.plus_ms(takes_ms)));
        job.id
    }

    /// Everything up to `decided` is decided, and the occurrence after it waits.
    fn go_on(&mut self, decided: Timestamp) {
        let fire_at = decided.plus_ms(BEAT_MS);
        let job = occurrence_job(&self.schedule, fire_at, fire_at, false, decided);
        self.schedule.decided_until = decided;
        self.schedule.next =
            Some(Next { fire_at, run_at: fire_at, job_id: job.id, catch_up: false, covers_until: fire_at });
        self.jobs.insert(job.id, job);
    }

    /// Forgets all that became of an instant.
    fn forget(&mut self, at: Timestamp) {
        self.decided.retain(|entry| entry.from != at);
        self.jobs.retain(|_, job| job.spec.occurrence.as_ref().unwrap().fire_at != at);
        let is_of = |event: &Event| matches!(event, Event::Started(start) if start.occurrence.as_ref().unwrap().fire_at == at);
        self.events.retain(|(_, event)| !is_of(event));
    }

    /// Says something else of an instant.
    fn decide(&mut self, at: Timestamp, outcome: Outcome) {
        self.forget(at);
        self.decided.push(Decided::single(at, outcome, at));
    }

    fn judge(mut self) -> Vec<Promise> {
        self.events.sort_by_key(|(at, _)| *at);
        let entries: Vec<Entry> = self
            .events
            .into_iter()
            .map(|(wall, event)| Entry { elapsed_ms: wall.since_ms(CREATED_AT), wall, event })
            .collect();
        let kept = KeptSchedule { schedule: self.schedule, entries: self.decided };
        let schedules = self.is_kept.then_some((kept.schedule.id, kept)).into_iter().collect();
        let ended_at = nth(PASSED).plus_ms(5_000);
        let ledger =
            Ledger { jobs: self.jobs, schedules, call_ms_max: self.call_ms_max, skew_ms_max: 0, ended_at };
        let mut promises: Vec<Promise> = check(&entries, &ledger).into_iter().map(|v| v.promise).collect();
        promises.sort_unstable();
        promises.dedup();
        promises
    }
}

fn tampered(with: impl FnOnce(&mut Case)) -> Vec<Promise> {
    let mut case = Case::honest();
    with(&mut case);
    case.judge()
}

#[test]
fn an_honest_record_passes() {
    assert_eq!(Case::honest().judge(), []);
    for outcome in [Outcome::Missed, Outcome::Coalesced { into: nth(3) }, Outcome::Skipped(Reason::Overlap)] {
        assert_eq!(tampered(|case| case.decide(nth(2), outcome)), [], "{outcome:?}");
    }
}

#[test]
fn finds_an_instant_that_nothing_became_of() {
    assert_eq!(tampered(|case| case.forget(nth(2))), [Promise::EveryInstantEnds]);
    let found = tampered(|case| {
        case.forget(nth(PASSED + 1));
        case.go_on(nth(PASSED + 1));
    });
    assert_eq!(found, [Promise::EveryInstantEnds], "passed over, and waiting for the one after it");
}

#[test]
fn finds_an_instant_that_ends_twice() {
    let twice =
        |outcome| tampered(|case| case.decided.push(Decided::single(nth(2), outcome, nth(2).plus_ms(1))));
    assert_eq!(twice(Outcome::Missed), [Promise::OneFirePerInstant], "fired and missed");
    let found = tampered(|case| {
        case.fire(nth(2), nth(2).plus_ms(7), TAKES_MS);
    });
    assert_eq!(found, [Promise::OneFirePerInstant], "fired twice, as two jobs");
    let found = tampered(|case| {
        case.fire(nth(2), nth(2).plus_ms(7), TAKES_MS);
        case.decided.pop();
    });
    assert_eq!(found, [Promise::OneFirePerInstant], "the second of two jobs is in no ledger");
    let rule = Arc::clone(&Case::honest().schedule.definition.rule);
    let found = tampered(|case| {
        let (from, to, decided_at) = (nth(1), nth(2), nth(3));
        let rule = Some(rule);
        case.decided.push(Decided { from, to, count: 2, outcome: Outcome::Missed, decided_at, rule });
    });
    assert_eq!(found, [Promise::OneFirePerInstant], "fired, and in a range besides");
}

#[test]
fn finds_a_fire_without_its_job_and_a_job_without_its_fire() {
    let job_of = |case: &Case, at| {
        let of = |job: &&Job| job.spec.occurrence.as_ref().unwrap().fire_at == at;
        case.jobs.values().find(of).unwrap().id
    };
    let found = tampered(|case| {
        case.jobs.remove(&job_of(case, nth(2)));
    });
    assert_eq!(found, [Promise::NothingLost, Promise::OneFirePerInstant], "gone from the store");
    let found = tampered(|case| {
        case.decided[1].outcome = Outcome::Skipped(Reason::Misfire);
    });
    assert_eq!(found, [Promise::OneFirePerInstant], "skipped, and it ran");
    let found = tampered(|case| {
        let waiting = occurrence_job(&case.schedule, nth(2), nth(2), false, CREATED_AT);
        case.forget(nth(2));
        case.decided.push(Decided::single(
            nth(2),
            Outcome::Fired { job_id: waiting.id, catch_up: false },
            nth(2),
        ));
        case.jobs.insert(waiting.id, waiting);
    });
    assert!(found.contains(&Promise::NothingLost), "fired, and never ran: {found:?}");
}

#[test]
fn finds_what_is_early() {
    let found = tampered(|case| {
        case.forget(nth(2));
        case.fire(nth(2), nth(2).plus_ms(-1), TAKES_MS);
    });
    assert_eq!(found, [Promise::NothingEarly], "before its instant");
    let windowed = || Case::of(Definition { window_ms: 9_000, ..definition(BEAT_MS) });
    assert_eq!(windowed().judge(), []);
    let mut case = windowed();
    let offset_ms = window_offset_ms(case.schedule.id, nth(2), 9_000);
    case.forget(nth(2));
    case.fire(nth(2), nth(2).plus_ms(offset_ms - 1), TAKES_MS);
    assert_eq!(case.judge(), [Promise::NothingEarly], "before its place in the window");
    let found = tampered(|case| case.decided[2].decided_at = nth(3).plus_ms(-1));
    assert_eq!(found, [Promise::NothingEarly], "decided before it came");
}

#[test]
fn finds_a_broken_chain() {
    let waits_for = |case: &Case| case.schedule.next.unwrap().job_id;
    let found = tampered(|case| {
        case.jobs.remove(&waits_for(case));
    });
    assert_eq!(found, [Promise::ChainUnbroken], "what it waits for is gone");
    let found = tampered(|case| {
        case.jobs.remove(&waits_for(case));
        case.schedule.next = None;
    });
    assert_eq!(found, [Promise::ChainUnbroken], "it waits for nothing");
    let found = tampered(|case| {
        let second = occurrence_job(&case.schedule, nth(9), nth(9), false, CREATED_AT);
        case.jobs.insert(second.id, second);
    });
    assert_eq!(found, [Promise::ChainUnbroken], "two wait");
    let found = tampered(|case| {
        case.schedule.state = State::Ended;
        case.schedule.next = None;
    });
    assert!(found.contains(&Promise::ChainUnbroken), "it ended, and one waits");
    let found = tampered(|case| {
        case.jobs.remove(&waits_for(case));
        case.forget(nth(PASSED));
        case.go_on(nth(PASSED - 1));
    });
    assert_eq!(found, [Promise::ChainUnbroken], "what it waits for should have started");
}

/// Paused between the second instant and the third, resumed between the third and the fourth.
fn paused(case: &mut Case) {
    let (next, decided_until) = (case.schedule.next.take(), case.schedule.decided_until);
    for (at, deed, state) in [(25_000, Deed::Pause, State::Paused), (35_000, Deed::Resume, State::Active)] {
        let now = CREATED_AT.plus_ms(at);
        case.schedule.state = state;
        (case.schedule.decided_until, case.schedule.updated_at) = (now, now);
        case.granted(now, deed);
    }
    (case.schedule.next, case.schedule.decided_until) = (next, decided_until);
}

#[test]
fn finds_a_fire_after_an_acknowledged_pause_or_delete() {
    let found = tampered(|case| {
        paused(case);
        case.decide(nth(3), Outcome::Skipped(Reason::Paused));
    });
    assert_eq!(found, [], "skipped meanwhile");
    assert_eq!(tampered(paused), [Promise::EditsHold], "fired meanwhile");
    let missed = tampered(|case| {
        paused(case);
        case.decide(nth(3), Outcome::Missed);
    });
    assert_eq!(missed, [Promise::EditsHold], "missed, though nobody was to fire it");
    let deleted = |at_ms| {
        let mut case = Case::honest();
        case.granted(CREATED_AT.plus_ms(at_ms), Deed::Delete);
        case.jobs.remove(&case.schedule.next.unwrap().job_id);
        case.is_kept = false;
        case.judge()
    };
    assert_eq!(deleted(PASSED * BEAT_MS + 1), [], "after the last");
    assert_eq!(deleted(25_000), [Promise::EditsHold], "fired after it");
    let found = tampered(|case| case.granted(nth(PASSED).plus_ms(1), Deed::Delete));
    assert_eq!(found, [Promise::EditsHold], "still there");
}

/// Given a beat of twenty seconds between the second instant and the third.
fn edited(case: &mut Case) {
    let (next, decided_until) = (case.schedule.next.take(), case.schedule.decided_until);
    let now = CREATED_AT.plus_ms(25_000);
    case.schedule.definition = Arc::new(definition(2 * BEAT_MS));
    (case.schedule.decided_until, case.schedule.updated_at) = (now, now);
    case.granted(now, Deed::Update);
    (case.schedule.next, case.schedule.decided_until) = (next, decided_until);
    case.jobs.remove(&next.unwrap().job_id);
    let fire_at = nth(PASSED + 2);
    let job = occurrence_job(&case.schedule, fire_at, fire_at, false, decided_until);
    case.schedule.next =
        Some(Next { fire_at, run_at: fire_at, job_id: job.id, catch_up: false, covers_until: fire_at });
    case.jobs.insert(job.id, job);
}

#[test]
fn finds_an_edit_that_gives_both_or_neither() {
    let found = tampered(|case| {
        edited(case);
        case.forget(nth(3));
    });
    assert_eq!(found, [], "the old before the edit, the new after it");
    assert_eq!(tampered(edited), [Promise::EditsHold], "an instant of the old rule after the edit");
    let found = tampered(|case| {
        edited(case);
        case.forget(nth(3));
        case.forget(nth(1));
    });
    assert_eq!(found, [Promise::EveryInstantEnds], "an instant of the old rule was dropped");
    let found = tampered(|case| {
        edited(case);
        case.forget(nth(3));
        case.forget(nth(4));
    });
    assert_eq!(found, [Promise::EveryInstantEnds], "an instant of the new rule was dropped");
    let found = tampered(|case| {
        case.schedule.decided_until = nth(100);
        case.granted(CREATED_AT.plus_ms(25_000), Deed::Update);
        case.schedule.decided_until = nth(PASSED);
    });
    assert_eq!(found, [Promise::EditsHold], "it says it has decided what is to come");
}

#[test]
fn finds_runs_that_overlap() {
    for overlap in [Overlap::Skip, Overlap::BufferOne, Overlap::CancelRunning] {
        let long = |takes_ms| {
            let mut case = Case::of(Definition { overlap, ..definition(BEAT_MS) });
            case.forget(nth(2));
            case.fire(nth(2), nth(2), takes_ms);
            case.judge()
        };
        assert_eq!(long(BEAT_MS), [], "{overlap:?}: it ends when the next one starts");
        assert_eq!(long(BEAT_MS + 1), [Promise::NoOverlap], "{overlap:?}");
        let mut unclear = Case::of(Definition { overlap, ..definition(BEAT_MS) });
        unclear.forget(nth(2));
        unclear.fire(nth(2), nth(2), BEAT_MS + 1);
        unclear.call_ms_max = Some(1);
        assert_eq!(unclear.judge(), [], "{overlap:?}: nobody can tell which came first");
    }
    // The third and the fourth both wait for the second.
    let buffered = |ends_at: [i64; 3]| {
        let mut case = Case::of(Definition { overlap: Overlap::BufferOne, ..definition(BEAT_MS) });
        let [second, third, fourth] = ends_at.map(|ms| CREATED_AT.plus_ms(ms));
        (2..=4).for_each(|n| case.forget(nth(n)));
        case.fire(nth(2), nth(2), second.since_ms(nth(2)));
        for (n, starts_at, ends_at) in [(3, second, third), (4, third, fourth)] {
            case.fire(nth(n), starts_at.max(nth(n)), ends_at.since_ms(starts_at.max(nth(n))));
            case.decided.last_mut().unwrap().decided_at = nth(n);
        }
        case.judge()
    };
    assert_eq!(buffered([35_000, 42_000, 43_000]), [], "one after the other");
    assert_eq!(buffered([41_000, 42_000, 43_000]), [Promise::NoOverlap], "two in the queue");
}

#[test]
fn finds_what_nobody_asked_for_and_what_is_lost() {
    let found = tampered(|case| case.events.clear());
    assert!(found.contains(&Promise::NothingUnexpected), "nobody's: {found:?}");
    let found = tampered(|case| {
        case.events.retain(|(_, event)| !matches!(event, Event::ScheduleGranted(_)));
    });
    assert!(found.contains(&Promise::NothingUnexpected), "never acknowledged: {found:?}");
    assert_eq!(tampered(|case| case.is_kept = false), [Promise::NothingLost]);
    let found = tampered(|case| {
        let job_id = JobId::new(nth(1), 7);
        let answer = ScheduleAnswer {
            deed: Deed::Trigger,
            schedule: created(definition(BEAT_MS)),
            changed: true,
            jobs: vec![job_id],
        };
        case.events.push((nth(1), Event::ScheduleGranted(Box::new(answer))));
    });
    assert_eq!(found, [Promise::NothingLost], "an acknowledged trigger is in no ledger");
}
