use tidewheel_core::job::{Change, Command, Job, transition};

use super::*;
use crate::bare::sample;

fn running(job: &Job) -> UnderWay {
    let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: 5_000, detached: false };
    match transition(job, &claim, job.id.run_at()) {
        Ok(Change::To(job)) => UnderWay::new(Arc::new(job), 0, false),
        other => panic!("{other:?}"),
    }
}

fn started(job: &Job) -> Published {
    Published { running: vec![(JobTag::of(job), running(job))], ..Published::default() }
}

fn ended(job: &Job) -> Published {
    let key = JobTag::of(job);
    Published { ended: vec![key], ..Published::default() }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    UnderWay,
    Waiting,
    Nothing,
}

fn known(view: &View, job: &Job) -> Seen {
    let mut seen = Seen::Nothing;
    view.look_up(vec![(JobTag::of(job), ())], |_, (), known| {
        seen = match known {
            Known::UnderWay(_) => Seen::UnderWay,
            Known::Waiting(_) => Seen::Waiting,
            Known::Nothing => Seen::Nothing,
        }
    });
    seen
}

#[test]
fn a_reader_that_began_before_an_attempt_ended_still_knows_of_it() {
    let (view, job) = (View::default(), sample(1, 8));
    let key = JobTag::of(&job);
    view.publish(started(&job));
    let old = view.begin();
    view.publish(ended(&job));
    let new = view.begin();
    assert!(old.is_under_way(key, 0), "its snapshot may still show the job waiting");
    assert!(view.running().is_empty());
    assert_eq!(known(&view, &job), Seen::Nothing);
    drop(old);
    view.publish(Published::default());
    assert!(!new.is_under_way(key, 0));
    drop(new);
    assert!(!view.is_read());
}

#[test]
fn payloads_beyond_what_there_is_room_for_are_left_out_and_completed_by_the_record() {
    let view = View::default();
    let jobs: Vec<Job> = (1..=3).map(|n| sample(n, PAYLOADS_BYTES_MAX * 2 / 3)).collect();
    let is_whole = |job: &Job| {
        let reading = view.begin();
        let under_way = reading.under_way(JobTag::of(job), 0).unwrap();
        let completed = under_way.completed(job).unwrap();
        assert_eq!(completed.spec, job.spec, "whatever is kept of it");
        under_way.whole().is_some()
    };
    view.publish(started(&jobs[0]));
    view.publish(started(&jobs[1]));
    assert!(is_whole(&jobs[0]) && !is_whole(&jobs[1]));
    let left_out = view.begin().under_way(JobTag::of(&jobs[1]), 0).unwrap();
    assert!(left_out.completed(&jobs[2]).is_none(), "a record with another payload is of another time");
    view.publish(started(&jobs[0]));
    assert!(is_whole(&jobs[0]), "what is kept is kept, a heartbeat later, too");
    view.publish(ended(&jobs[0]));
    view.publish(started(&jobs[2]));
    assert!(is_whole(&jobs[2]), "there is room again");
    for job in &jobs[1..] {
        view.publish(ended(job));
    }
    assert_eq!(view.lock().payloads_bytes, 0);
}

#[test]
fn an_attempt_holds_only_for_older_records() {
    let (view, job) = (View::default(), sample(1, 8));
    let key = JobTag::of(&job);
    view.publish(started(&job));
    let reading = view.begin();
    assert!(reading.is_under_way(key, 0));
    assert!(!reading.is_under_way(key, 1), "the record knows how that attempt ended");
}

#[test]
fn what_changed_since_it_was_read_is_not_remembered() {
    let view = View::default();
    let (fresh, stale) = (sample(1, 8), sample(2, 8));
    let reading = view.begin();
    view.publish(Published { changed: vec![JobTag::of(&stale)], ..Published::default() });
    reading.keep_waiting(&mut vec![Arc::new(fresh.clone()), Arc::new(stale.clone())]);
    assert_eq!(known(&view, &fresh), Seen::Waiting);
    assert_eq!(known(&view, &stale), Seen::Nothing);
    view.begin().keep_waiting(&mut vec![Arc::new(fresh.clone())]);
    view.publish(Published { changed: vec![JobTag::of(&fresh)], ..Published::default() });
    assert_eq!(known(&view, &fresh), Seen::Nothing, "forgotten when it changes");
}

#[test]
fn what_is_handed_over_is_gone_until_it_is_read_again() {
    let (view, job) = (View::default(), sample(1, 8));
    for _ in 0..2 {
        view.begin().keep_waiting(&mut vec![Arc::new(job.clone())]);
        assert_eq!(known(&view, &job), Seen::Waiting);
        assert_eq!(known(&view, &job), Seen::Nothing, "whoever asks next reads it from disk");
    }
    assert_eq!(view.lock().recent_bytes, [job.size_bytes(), 0], "read twice, it takes room once");
    view.publish(started(&job));
    assert_eq!((known(&view, &job), view.lock().recent_bytes), (Seen::UnderWay, [0, 0]));
}

#[test]
fn what_is_remembered_is_bounded() {
    let view = View::default();
    let count = RECENT_BYTES_MAX / sample(0, 60_000).size_bytes();
    for n in 0..u64::try_from(count).unwrap() + 50 {
        view.begin().keep_waiting(&mut vec![Arc::new(sample(n, 60_000))]);
    }
    let inner = view.lock();
    let bytes: usize = inner.recent_bytes.iter().sum();
    let kept = inner.jobs.values().map(|entry| match entry {
        Entry::Recent(recent) => recent.job.as_ref().map_or(0, |job| job.size_bytes()),
        Entry::UnderWay(..) => panic!("none is running"),
    });
    assert_eq!(kept.sum::<usize>(), bytes);
    assert!((RECENT_BYTES_MAX / 4..=RECENT_BYTES_MAX).contains(&bytes));
}
