//! The desk, told what happens and asked what it has to say.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::{GRPC_MESSAGE_BYTES_MAX, RESULT_BYTES_MAX};
use tokio::time::Instant;

use super::attend::Ended;
use super::context::{Attempt, Context, Stop};
use super::desk::{Beats, Desk, Room};
use super::time;
use crate::proto::job_batch::JobBatch;
use crate::proto::v1::worker_message::Message;
use crate::proto::v1::{
    AttemptRef, CancelJob, CancelJobs, Failed, HeartbeatAnswer, HeartbeatAnswers, LeasedJob, OutcomeAnswer,
    OutcomeAnswers, Succeeded, TakeBack, outcome,
};

const LEASE: Duration = Duration::from_secs(30);

/// A desk of two at work and four in hand, as it is after a welcome.
fn desk(now: Instant) -> Desk {
    let room = Room { concurrency: 2, capacity: 4, lease: LEASE, many_tenants: false };
    let mut desk = Desk::new(room, now);
    assert_eq!(desk.subscribe(), 4);
    desk.welcomed(true, Beats::default(), now);
    desk
}

fn jobs(ids: &[&str], token: u64) -> JobBatch {
    let job = |id: &&str| LeasedJob { id: (*id).to_owned(), token, ..LeasedJob::default() };
    JobBatch::new(&ids.iter().map(job).collect::<Vec<_>>())
}

fn start_all(desk: &mut Desk, now: Instant) -> Vec<Arc<Attempt>> {
    std::iter::from_fn(|| desk.next_to_start(now)).collect()
}

fn ended(attempt: &Arc<Attempt>) -> Ended {
    let outcome = Some(outcome::Result::Succeeded(Succeeded::default()));
    Ended { attempt: Arc::clone(attempt), outcome }
}

fn answer(id: &str, token: u64, code: &str) -> OutcomeAnswer {
    OutcomeAnswer { id: id.into(), token, code: code.into(), ..OutcomeAnswer::default() }
}

/// Ids in the outcomes said, and whether each was released.
fn outcomes(words: &[Message]) -> Vec<(String, bool)> {
    let mut said = Vec::new();
    for word in words {
        if let Message::Outcomes(batch) = word {
            said.extend(
                batch
                    .jobs
                    .iter()
                    .map(|job| (job.id.clone(), matches!(job.result, Some(outcome::Result::Released(_))))),
            );
        }
    }
    said
}

fn credits(words: &[Message]) -> u32 {
    words.iter().map(|word| if let Message::AddCredits(more) = word { more.credits } else { 0 }).sum()
}

#[test]
fn no_more_run_at_once_than_may_and_credits_come_back_as_jobs_end() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c", "d"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    assert_eq!(running.len(), 2);
    assert!(desk.words(now).is_empty(), "nothing to say, no room to offer");
    desk.ended(ended(&running[0]));
    let words = desk.words(now);
    assert_eq!(outcomes(&words), [("a".to_owned(), false)]);
    assert_eq!(credits(&words), 1);
    assert_eq!(start_all(&mut desk, now).len(), 1);
}

#[test]
fn outcomes_gather_while_others_are_answered_and_are_said_again_after_a_break() {
    let now = time::now();
    let mut desk = desk(now);
    for id in ["a", "b", "c"] {
        desk.receive(jobs(&[id], 1), now).unwrap();
        let started = start_all(&mut desk, now);
        desk.ended(ended(&started[0]));
        let said = outcomes(&desk.words(now)).len();
        assert_eq!(said, usize::from(id != "c"), "two batches are under way at most");
    }
    let refused = desk.outcomes_answered(OutcomeAnswers { jobs: vec![answer("a", 1, "accepted")], batch: 0 });
    assert!(refused.is_empty());
    assert_eq!(outcomes(&desk.words(now)), [("c".to_owned(), false)]);
    // The stream breaks: what was not answered is said again.
    assert_eq!(desk.holding().len(), 2);
    assert_eq!(desk.subscribe(), 4);
    assert_eq!(outcomes(&desk.words(now)).len(), 2);
    let answers = vec![answer("b", 1, "stale_token"), answer("c", 1, "already")];
    assert_eq!(desk.outcomes_answered(OutcomeAnswers { jobs: answers, batch: 0 }).len(), 1);
    assert!(desk.is_empty());
}

#[test]
fn a_job_in_the_place_of_one_that_is_over_has_nothing_of_it() {
    let now = time::now();
    let mut desk = desk(now);
    let full = LeasedJob {
        id: "a".to_owned(),
        tenant: "acme".to_owned(),
        payload: "{}".into(),
        labels: [("k".to_owned(), "v".to_owned())].into(),
        token: 7,
        catch_up: true,
        lease_until: Some(prost_types::Timestamp::default()),
        ..LeasedJob::default()
    };
    desk.receive(JobBatch::new(&[full, LeasedJob { id: "b".to_owned(), ..LeasedJob::default() }]), now)
        .unwrap();
    let over = start_all(&mut desk, now);
    for attempt in &over {
        attempt.stop(Stop::TimedOut);
        desk.ended(ended(attempt));
    }
    let places: Vec<_> = over.iter().map(Arc::as_ptr).collect();
    // Somebody still has the second one.
    let kept = over[1].clone();
    drop(over);
    assert_eq!(outcomes(&desk.words(now)).len(), 2);
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 1 });
    desk.receive(jobs(&["c", "d"], 1), now).unwrap();
    let [c, d] = &*start_all(&mut desk, now) else { panic!("both may start") };
    assert_eq!((Arc::as_ptr(c), kept.job.id.as_str()), (places[0], "b"));
    assert_ne!(Arc::as_ptr(d), places[1]);
    for (attempt, id) in [(c, "c"), (d, "d")] {
        assert_eq!(attempt.job, LeasedJob { id: id.to_owned(), token: 1, ..LeasedJob::default() });
        assert_eq!((attempt.stopping(), attempt.take_progress()), (None, None));
    }
}

#[test]
fn while_a_batch_is_answered_no_small_one_goes() {
    let now = time::now();
    let room = Room { concurrency: 64, capacity: 64, lease: LEASE, many_tenants: false };
    let mut desk = Desk::new(room, now);
    assert_eq!(desk.subscribe(), 64);
    desk.welcomed(true, Beats::default(), now);
    desk.receive(jobs(&["a", "b", "c", "d", "e", "f"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    let mut said = Vec::new();
    for attempt in &running {
        desk.ended(ended(attempt));
        said.push(outcomes(&desk.words(now)).len());
    }
    assert_eq!(said, [1, 0, 0, 0, 4, 0], "four are a sixteenth of all");
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 1 });
    assert!(outcomes(&desk.words(now)).is_empty(), "the second is not answered yet");
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 2 });
    assert_eq!(
        outcomes(&desk.words(now)),
        [("f".to_owned(), false)],
        "at once, when nothing is being answered"
    );
}

#[test]
fn a_brief_answer_is_for_all_of_its_batch_that_it_does_not_name() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c", "d"], 1), now).unwrap();
    let report = |desk: &mut Desk| {
        start_all(desk, now).iter().for_each(|attempt| desk.ended(ended(attempt)));
        let words = desk.words(now);
        words.iter().find_map(|word| if let Message::Outcomes(said) = word { Some(said.batch) } else { None })
    };
    assert_eq!((report(&mut desk), report(&mut desk)), (Some(1), Some(2)));
    // The second is answered first; one of it does not count, and one is said again as a failure.
    let mut invalid = answer("d", 1, "invalid_value");
    invalid.detail = "too long".into();
    let answers = OutcomeAnswers { jobs: vec![answer("c", 1, "stale_token"), invalid], batch: 2 };
    assert_eq!(desk.outcomes_answered(answers).len(), 2);
    assert_eq!(desk.unreported(), 3, "a and b are not answered for, and d is reported otherwise");
    assert_eq!(report(&mut desk), Some(3));
    // A number that no batch has, or has no more, says nothing of anything.
    for batch in [2, 9] {
        assert!(desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch }).is_empty());
    }
    assert_eq!(desk.unreported(), 3);
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 1 });
    assert_eq!(desk.unreported(), 1);
    // A later attempt of a job is not ended by an answer to an earlier one.
    desk.receive(jobs(&["d"], 2), now).unwrap();
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 3 });
    assert_eq!(desk.unreported(), 1);
    assert_eq!(report(&mut desk), Some(4));
    desk.outcomes_answered(OutcomeAnswers { jobs: Vec::new(), batch: 4 });
    assert!(desk.is_empty());
}

#[test]
fn what_has_not_started_is_handed_back_and_what_has_is_told() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c"], 1), now).unwrap();
    start_all(&mut desk, now);
    let attempt = |id: &str| AttemptRef { id: id.into(), token: 1 };
    desk.asked_back(TakeBack {
        jobs: vec![attempt("a"), attempt("c"), AttemptRef { id: "b".into(), token: 9 }],
    });
    let words = desk.words(now);
    assert_eq!(outcomes(&words), [("c".to_owned(), true)]);
    let started: Vec<_> = words
        .iter()
        .filter_map(|word| if let Message::Started(it) = word { Some(&it.jobs) } else { None })
        .collect();
    assert_eq!(started, [&vec![attempt("a")]]);
}

#[test]
fn a_cancel_stops_what_runs_and_drops_what_waits() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    let cancel = |id: &str, token| CancelJob { id: id.into(), token, reason: "cancelled".into() };
    desk.called_off(&CancelJobs { jobs: vec![cancel("a", 1), cancel("b", 7), cancel("c", 1)] });
    assert_eq!(running[0].stopping(), Some(Stop::Cancelled));
    assert_eq!(running[1].stopping(), None, "another attempt was meant");
    desk.ended(Ended { attempt: Arc::clone(&running[0]), outcome: None });
    assert!(desk.next_to_start(now).is_none(), "what waited is gone");
    assert_eq!(credits(&desk.words(now)), 2);
}

#[test]
fn leases_are_extended_in_time_and_not_trusted_to_their_end() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    desk.receive(jobs(&["b", "c"], 1), now).unwrap();
    let later = now + LEASE / 2;
    let beats = |words: &[Message]| -> usize {
        words
            .iter()
            .map(|word| if let Message::Heartbeats(beats) = word { beats.jobs.len() } else { 0 })
            .sum()
    };
    assert_eq!(beats(&desk.words(later)), 3);
    assert_eq!(beats(&desk.words(later + Duration::from_secs(6))), 0, "one batch at a time");
    let beat = |id: &str, code: &str| HeartbeatAnswer {
        id: id.into(),
        token: 1,
        code: code.into(),
        ..HeartbeatAnswer::default()
    };
    desk.heartbeats_answered(&HeartbeatAnswers {
        jobs: vec![beat("a", "accepted"), beat("b", "stale_token")],
    });
    let end = now + LEASE;
    desk.look(end);
    assert_eq!(running[0].stopping(), None);
    assert!(start_all(&mut desk, end).is_empty(), "one was refused, the other not heard of");
    desk.look(later + LEASE);
    assert_eq!(running[0].stopping(), Some(Stop::LeaseOver));
}

#[test]
fn with_empty_hands_it_is_heard_of_less_often() {
    let start = time::now();
    let mut desk = desk(start);
    let beats = Beats { busy: Duration::from_secs(5), idle: Duration::from_secs(60) };
    desk.welcomed(true, beats, start);
    assert_eq!(desk.look_at(), start + beats.idle);
    assert!(desk.words(start + beats.busy).is_empty());
    let handed_at = start + 2 * beats.busy;
    desk.receive(jobs(&["a"], 1), handed_at).unwrap();
    let said = desk.words(handed_at);
    assert!(matches!(said[..], [Message::Heartbeats(_)]), "{said:?}");
    assert_eq!(desk.unanswered_since(), Some(handed_at));
}

#[test]
fn while_an_answer_is_late_it_is_heard_of_and_its_wait_counts_from_the_question() {
    let start = time::now();
    let mut desk = desk(start);
    desk.receive(jobs(&["a"], 1), start).unwrap();
    start_all(&mut desk, start);
    let asked_at = start + LEASE / 2;
    assert!(matches!(&desk.words(asked_at)[..], [.., Message::Heartbeats(beats)] if beats.jobs.len() == 1));
    for late in 1..4_u32 {
        let now = asked_at + late * Beats::default().busy;
        let said = desk.words(now);
        assert!(!said.is_empty(), "a worker that says nothing is taken for dead");
        assert!(!said.iter().any(|word| matches!(word, Message::Heartbeats(_))), "asked again: {said:?}");
        assert_eq!(desk.unanswered_since(), Some(asked_at));
    }
    desk.heartbeats_answered(&HeartbeatAnswers::default());
    assert_eq!(desk.unanswered_since(), None);
}

#[test]
fn another_session_hears_at_once_of_all_that_is_still_held() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    desk.ended(ended(&running[0]));
    let named = |words: &[Message]| -> Vec<String> {
        let mut ids = Vec::new();
        for word in words {
            if let Message::Heartbeats(beats) = word {
                ids.extend(beats.jobs.iter().map(|beat| beat.id.clone()));
            }
        }
        ids.sort_unstable();
        ids
    };
    for (resumed, expected) in [(true, &[][..]), (false, &["b", "c"][..])] {
        desk.subscribe();
        desk.welcomed(resumed, Beats::default(), now);
        assert_eq!(named(&desk.words(now)), expected, "resumed: {resumed}");
    }
}

#[test]
fn a_later_attempt_of_the_same_job_replaces_the_earlier() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a"], 1), now).unwrap();
    let first = start_all(&mut desk, now);
    desk.receive(jobs(&["a"], 2), now).unwrap();
    desk.receive(jobs(&["a"], 2), now).unwrap();
    assert_eq!(first[0].stopping(), Some(Stop::LeaseOver));
    let second = start_all(&mut desk, now);
    assert_eq!(second.len(), 1);
    desk.ended(ended(&first[0]));
    assert!(outcomes(&desk.words(now)).is_empty(), "the earlier no longer counts");
    desk.ended(ended(&second[0]));
    assert_eq!(outcomes(&desk.words(now)).len(), 1);
}

#[test]
fn a_drained_desk_hands_back_and_asks_for_nothing() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    desk.drain();
    desk.receive(jobs(&["d"], 1), now).unwrap();
    let words = desk.words(now);
    assert_eq!(outcomes(&words), [("c".to_owned(), true), ("d".to_owned(), true)]);
    assert_eq!(credits(&words), 0);
    desk.stop_all();
    assert_eq!(running[1].stopping(), Some(Stop::Shutdown));
}

/// The failure said of a job, if one is.
fn failure(words: &[Message], id: &str) -> Option<Failed> {
    words.iter().find_map(|word| {
        let Message::Outcomes(batch) = word else { return None };
        let said = batch.jobs.iter().find(|job| job.id == id)?;
        if let Some(outcome::Result::Failed(failed)) = &said.result { Some(failed.clone()) } else { None }
    })
}

#[test]
fn what_the_server_cannot_take_of_an_attempt_becomes_its_failure_once() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    running.iter().for_each(|attempt| desk.ended(ended(attempt)));
    assert_eq!(outcomes(&desk.words(now)).len(), 2);
    let mut invalid = answer("a", 1, "invalid_value");
    invalid.detail = "`retry_after`: it is too long".into();
    let answers = vec![invalid.clone(), answer("b", 1, "stale_token")];
    let refused = desk.outcomes_answered(OutcomeAnswers { jobs: answers, batch: 0 });
    assert_eq!(refused.len(), 2, "both are told");
    let words = desk.words(now);
    assert_eq!(
        outcomes(&words),
        [("a".to_owned(), false)],
        "nothing more is said of an attempt that is over"
    );
    let said = failure(&words, "a").expect("it has failed");
    assert!(said.r#final && said.error.contains("`retry_after`: it is too long"), "{said:?}");
    // It is said again after a break, but not for ever.
    desk.subscribe();
    assert_eq!(failure(&desk.words(now), "a"), Some(said));
    assert_eq!(desk.outcomes_answered(OutcomeAnswers { jobs: vec![invalid], batch: 0 }).len(), 1);
    assert!(outcomes(&desk.words(now)).is_empty());
    assert!(desk.is_empty());
    desk.receive(jobs(&["c"], 1), now).unwrap();
    assert_eq!(start_all(&mut desk, now).len(), 1, "it goes on with others");
}

#[test]
fn a_farewell_says_first_what_has_begun_and_what_was_handed_back_is_nobodys_news() {
    let now = time::now();
    let mut desk = desk(now);
    desk.receive(jobs(&["a", "b", "c", "d"], 1), now).unwrap();
    let running = start_all(&mut desk, now);
    desk.ended(ended(&running[0]));
    desk.drain();
    let words = desk.farewell();
    let [Message::Started(started), Message::Drain(_)] = &words[..] else { panic!("{words:?}") };
    let mut begun: Vec<&str> = started.jobs.iter().map(|job| job.id.as_str()).collect();
    begun.sort_unstable();
    assert_eq!(begun, ["a", "b"], "what has ended and is not answered for has begun, too");
    let mut said = outcomes(&desk.words(now));
    said.sort();
    let (a, c, d) = (("a".to_owned(), false), ("c".to_owned(), true), ("d".to_owned(), true));
    assert_eq!(said, [a, c, d]);
    let answers = [("a", "accepted"), ("c", "accepted"), ("d", "stale_token")];
    let jobs = answers.map(|(id, code)| answer(id, 1, code)).to_vec();
    assert!(desk.outcomes_answered(OutcomeAnswers { jobs, batch: 0 }).is_empty());
    assert_eq!(desk.unreported(), 1, "one runs still");
}

#[test]
fn progress_of_many_jobs_is_said_in_parts_that_a_server_takes() {
    const COUNT: usize = 1_000;
    let now = time::now();
    let room = Room { concurrency: COUNT, capacity: COUNT, lease: LEASE, many_tenants: false };
    let mut desk = Desk::new(room, now);
    desk.subscribe();
    desk.welcomed(true, Beats::default(), now);
    let ids: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    desk.receive(jobs(&ids, 1), now).unwrap();
    for attempt in start_all(&mut desk, now) {
        Context::new(attempt).progress(&"x".repeat(RESULT_BYTES_MAX - 2)).expect("it fits");
    }
    let (mut told, mut at) = (0, now);
    while told < COUNT {
        at += Duration::from_secs(1);
        let before = told;
        for word in desk.words(at) {
            assert!(word.encoded_len() < GRPC_MESSAGE_BYTES_MAX, "{} bytes", word.encoded_len());
            if let Message::Heartbeats(beats) = word {
                told += beats.jobs.iter().filter(|beat| !beat.progress.is_empty()).count();
            }
        }
        assert!(told > before, "{told} of {COUNT} were told");
        desk.heartbeats_answered(&HeartbeatAnswers::default());
    }
}
