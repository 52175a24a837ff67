use tidewheel_core::job::{Change, Command, Job, transition};

use super::*;
use crate::bare::sample;

fn running(job: &Job) -> UnderWay {
    let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: 5_000, detached: false };
    match transition(job, &claim, job.id.run_at()) {
        Ok(Change::To(job)) => UnderWay { job: Arc::new(job), claim: 0, has_lease: false },
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
    view.look_up(std::iter::once((JobTag::of(job), ())), |_, (), known| {
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
    view.publish(Published { changed: vec![JobTag::of(&fresh)], ..Published::default() });
    assert_eq!(known(&view, &fresh), Seen::Nothing, "forgotten when it changes");
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
        Entry::Recent(recent) => recent.job.size_bytes(),
        Entry::UnderWay(..) => panic!("none is running"),
    });
    assert_eq!(kept.sum::<usize>(), bytes);
    assert!((RECENT_BYTES_MAX / 4..=RECENT_BYTES_MAX).contains(&bytes));
}
