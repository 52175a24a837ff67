//! The checker on records of clusters: an honest one passes, and each kind of broken promise is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_sim::checker::{Ledger, Promise, check};
use tidewheel_sim::history::{Entry, Event};
use tidewheel_store::Held;
use tidewheel_store_testkit::memory::Written;

const BEGAN: Timestamp = Timestamp::from_ms(1_000_000);
const TTL_MS: i64 = 15_000;

fn held(epoch: u64) -> Held {
    Held { shard: Shard(3), epoch }
}

fn leased(node: &str, epoch: u64, at_ms: i64) -> (i64, Written) {
    let until = BEGAN.plus_ms(at_ms + TTL_MS);
    (at_ms, Written::Leased { node: Arc::from(node), held: held(epoch), until })
}

fn claimed(epoch: u64, attempt: u32, at_ms: i64) -> (i64, Written) {
    let id = JobId::new(BEGAN, 7);
    (at_ms, Written::Claimed { id, held: held(epoch), token: Token::new(epoch, attempt) })
}

fn ended(epoch: u64, attempt: u32, at_ms: i64) -> (i64, Written) {
    (at_ms, Written::Ended { id: JobId::new(BEGAN, 7), token: Token::new(epoch, attempt) })
}

/// What is found in what was written and when, with something else in the middle.
fn judge_around(
    before: impl IntoIterator<Item = (i64, Written)>,
    middle: Option<Event>,
    after: impl IntoIterator<Item = (i64, Written)>,
) -> Vec<Promise> {
    let entry = |elapsed_ms: i64, event| Entry { elapsed_ms, wall: BEGAN.plus_ms(elapsed_ms), event };
    let written = |(at_ms, deed)| entry(at_ms, Event::Witnessed { node: 0, deed });
    let mut entries: Vec<Entry> = before.into_iter().map(written).collect();
    let now_ms = entries.last().map_or(0, |last| last.elapsed_ms);
    entries.extend(middle.map(|event| entry(now_ms, event)));
    entries.extend(after.into_iter().map(written));
    let ledger = Ledger {
        jobs: BTreeMap::new(),
        schedules: BTreeMap::new(),
        skew_ms_max: 0,
        call_ms_max: None,
        ended_at: BEGAN.plus_ms(1_000_000),
    };
    check(&entries, &ledger).into_iter().map(|violation| violation.promise).collect()
}

fn judge(written: impl IntoIterator<Item = (i64, Written)>) -> Vec<Promise> {
    judge_around(written, None, [])
}

#[test]
fn an_honest_record_passes() {
    let found = judge([
        leased("a", 1, 0),
        claimed(1, 1, 10),
        leased("a", 1, 5_000),
        ended(1, 1, 6_000),
        leased("b", 2, 20_000),
        claimed(2, 2, 20_001),
        (21_000, Written::Released { shard: Shard(3) }),
        leased("c", 3, 21_001),
        ended(2, 2, 21_002),
    ]);
    assert_eq!(found, []);
}

#[test]
fn finds_a_shard_with_two_nodes() {
    assert_eq!(judge([leased("a", 1, 0), leased("b", 2, 14_999)]), [Promise::OneOwnerPerShard]);
    assert_eq!(judge([leased("a", 1, 0), leased("b", 2, 15_000)]), [], "over");
    let twice = Some(Event::ServedTwice { shard: 3 });
    assert_eq!(judge_around([], twice, []), [Promise::OneOwnerPerShard]);
}

#[test]
fn finds_claims_of_whoever_lost_the_shard() {
    let stale = Promise::StaleEpochRefused;
    assert_eq!(judge([leased("a", 1, 0), claimed(1, 1, 15_000)]), [stale], "over, and nobody else's");
    assert_eq!(judge([leased("a", 1, 0), leased("b", 2, 15_000), claimed(1, 1, 15_001)]), [stale]);
    let released = (5, Written::Released { shard: Shard(3) });
    assert_eq!(judge([leased("a", 1, 0), released, claimed(1, 1, 10)]), [stale], "handed back");
    assert_eq!(judge([leased("a", 2, 0), leased("b", 2, 15_000)]), [stale], "an epoch given twice");
}

#[test]
fn finds_ends_of_attempts_that_are_no_longer_the_newest() {
    let begun = [leased("a", 1, 0), claimed(1, 1, 1), claimed(1, 2, 2)];
    let with = |end| judge(begun.clone().into_iter().chain([end]));
    assert_eq!(with(ended(1, 2, 3)), []);
    assert_eq!(with(ended(1, 1, 3)), [Promise::StaleTokenRefused]);
    let twice = begun.clone().into_iter().chain([ended(1, 2, 3), ended(1, 2, 4)]);
    assert_eq!(judge(twice), [Promise::OneOutcomePerToken]);
    let falling = [leased("a", 1, 0), claimed(1, 2, 1), claimed(1, 1, 2)];
    assert_eq!(judge(falling), [Promise::TokensRise]);
}

#[test]
fn finds_shards_that_move_without_a_reason_and_shares_that_are_uneven() {
    let before = [leased("a", 1, 0)];
    let recovered = || Some(Event::Recovered);
    assert_eq!(judge_around(before.clone(), recovered(), [leased("a", 1, 5_000)]), []);
    assert_eq!(judge_around(before, recovered(), [leased("b", 2, 20_000)]), [Promise::ShardsStay]);
    let shared =
        |counts: &[usize]| judge_around([], Some(Event::Served { shards: 8, counts: counts.to_vec() }), []);
    assert_eq!(shared(&[3, 3, 2]), []);
    assert_eq!(shared(&[4, 2, 2]), [Promise::SharesEven], "more than its share");
    assert_eq!(shared(&[3, 3, 1]), [Promise::SharesEven], "one is nobody's");
}
