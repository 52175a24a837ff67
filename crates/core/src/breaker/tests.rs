use proptest::prelude::*;

use super::*;
use crate::time::Timestamp;

const CONFIG: BreakerConfig =
    BreakerConfig { failures: 3, percent: 0, lately_ms: 1_000, cooldown_ms: 100, cooldown_ms_max: 1_000 };

fn job(number: u128) -> JobId {
    JobId::new(Timestamp::from_ms(0), number)
}

fn opened() -> Breaker {
    let mut breaker = Breaker::default();
    for n in 0..3 {
        breaker.heard(&CONFIG, &job(n), Answer::Failed, 0);
    }
    breaker
}

#[test]
fn it_opens_after_failures_in_a_row_and_an_answer_starts_the_count_again() {
    let mut breaker = Breaker::default();
    for answer in [Answer::Failed, Answer::Failed, Answer::Fine, Answer::Failed, Answer::Failed] {
        assert_eq!(breaker.heard(&CONFIG, &job(1), answer, 0), None);
    }
    assert!(breaker.admits());
    assert_eq!(breaker.heard(&CONFIG, &job(1), Answer::Failed, 5), Some(Turn::Opened));
    assert_eq!((breaker.state(), breaker.open_until_ms()), (BreakerState::Open, Some(105)));
    assert!(!breaker.admits());
}

#[test]
fn one_probe_decides_and_the_wait_doubles_up_to_its_maximum() {
    let mut breaker = opened();
    let (mut now_ms, mut waits) = (0, Vec::new());
    for n in 10..16 {
        let until_ms = breaker.open_until_ms().unwrap();
        waits.push(until_ms - now_ms);
        assert!(!breaker.cool(until_ms - 1));
        now_ms = until_ms;
        assert!(breaker.cool(now_ms));
        assert!(breaker.began(job(n)), "the first is the probe");
        assert!(!breaker.admits() && !breaker.began(job(99)), "there is one");
        assert_eq!(breaker.heard(&CONFIG, &job(0), Answer::Fine, now_ms), None, "of an earlier time");
        assert_eq!(breaker.heard(&CONFIG, &job(n), Answer::Failed, now_ms), Some(Turn::Reopened));
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
    breaker.cool(i64::MAX);
    breaker.began(job(20));
    assert_eq!(breaker.heard(&CONFIG, &job(20), Answer::Fine, now_ms), Some(Turn::Closed));
    assert!(breaker.is_blank(), "the next time begins from the start");
}

#[test]
fn a_probe_that_comes_to_nothing_leaves_room_for_another() {
    let mut breaker = opened();
    breaker.cool(100);
    breaker.began(job(7));
    assert!(!breaker.gave_up(&job(8)));
    assert!(breaker.gave_up(&job(7)));
    assert!(breaker.admits() && breaker.began(job(8)));
}

#[test]
fn a_target_that_asks_to_wait_is_left_alone_that_long_but_not_for_ever() {
    let mut breaker = Breaker::default();
    for _ in 0..2 {
        assert_eq!(
            breaker.heard(&CONFIG, &job(1), Answer::Wait { ms: 5_000 }, 10),
            None,
            "it may be one path"
        );
    }
    assert_eq!(breaker.heard(&CONFIG, &job(1), Answer::Wait { ms: 5_000 }, 10), Some(Turn::Held));
    assert_eq!((breaker.state(), breaker.open_until_ms()), (BreakerState::Held, Some(5_010)));
    assert_eq!(breaker.heard(&CONFIG, &job(2), Answer::Wait { ms: i64::MAX }, 20), None);
    assert_eq!(breaker.open_until_ms(), Some(20 + BREAKER_HOLD_MS_MAX));
    breaker.cool(i64::MAX);
    breaker.began(job(3));
    assert_eq!(breaker.heard(&CONFIG, &job(3), Answer::Failed, 30), Some(Turn::Opened));
}

#[test]
fn without_a_threshold_it_never_opens() {
    let config = BreakerConfig { failures: 0, ..CONFIG };
    let mut breaker = Breaker::default();
    for answer in [Answer::Failed, Answer::Failed, Answer::Failed, Answer::Wait { ms: 5 }] {
        assert_eq!(breaker.heard(&config, &job(1), answer, 0), None);
    }
    assert!(breaker.is_blank());
}

#[test]
fn one_that_answers_now_and_then_opens_by_the_share_that_fails() {
    let config = BreakerConfig { failures: 0, percent: 50, ..CONFIG };
    let mut breaker = Breaker::default();
    let mut hear = |answer, at_ms| breaker.heard(&config, &job(1), answer, at_ms);
    for call in 1..20 {
        let answer = if call % 2 == 0 { Answer::Fine } else { Answer::Failed };
        assert_eq!(hear(answer, 0), None, "{call} calls are too few to tell");
    }
    assert_eq!(hear(Answer::Failed, 1), Some(Turn::Opened));
    assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Open, 11));
    breaker.cool(i64::MAX);
    breaker.began(job(2));
    assert_eq!(breaker.heard(&config, &job(2), Answer::Fine, 2_000), Some(Turn::Closed));
    assert!(breaker.is_blank(), "what was before the probe is over");
}

#[test]
fn a_share_that_is_small_or_long_ago_opens_nothing() {
    let config = BreakerConfig { failures: 0, percent: 50, ..CONFIG };
    let mut breaker = Breaker::default();
    for call in 0..10_000 {
        let answer = if call % 3 == 0 { Answer::Failed } else { Answer::Fine };
        assert_eq!(breaker.heard(&config, &job(1), answer, call), None, "a third fails");
    }
    for call in 0..19 {
        breaker.heard(&config, &job(1), Answer::Failed, 20_000 + call);
    }
    assert_eq!(breaker.heard(&config, &job(1), Answer::Failed, 22_000), None, "the others are long ago");
    assert!(!breaker.is_blank());
    breaker.heard(&config, &job(1), Answer::Fine, 24_000);
    assert!(breaker.is_blank(), "all of them are");
}

#[derive(Debug, Clone)]
enum Step {
    Pass(i64),
    Begin(u128),
    GiveUp(u128),
    Hear(u128, Answer),
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![
        Just(Answer::Fine),
        Just(Answer::Failed),
        (0..5_000_i64).prop_map(|ms| Answer::Wait { ms })
    ];
    prop_oneof![
        (0..400_i64).prop_map(Step::Pass),
        (0..6_u128).prop_map(Step::Begin),
        (0..6_u128).prop_map(Step::GiveUp),
        (0..6_u128, answer).prop_map(|(n, answer)| Step::Hear(n, answer)),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_it_admits_again_in_time_and_one_probe_at_most(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let (mut breaker, mut now_ms, mut probe) = (Breaker::default(), 0_i64, None);
        for step in steps {
            let before = breaker.state();
            match step {
                Step::Pass(ms) => {
                    now_ms += ms;
                    breaker.cool(now_ms);
                }
                Step::Begin(n) => {
                    if breaker.began(job(n)) {
                        prop_assert_eq!(probe, None, "a second probe");
                        probe = Some(n);
                    }
                }
                Step::GiveUp(n) => {
                    prop_assert_eq!(breaker.gave_up(&job(n)), probe == Some(n));
                    probe = probe.filter(|probe| *probe != n);
                }
                Step::Hear(n, answer) => {
                    let turn = breaker.heard(&CONFIG, &job(n), answer, now_ms);
                    prop_assert_eq!(turn.is_some(), before != breaker.state());
                    if before == BreakerState::HalfOpen && turn == Some(Turn::Closed) {
                        prop_assert_eq!(probe, Some(n), "only the probe closes it");
                    }
                }
            }
            if breaker.state() != BreakerState::HalfOpen {
                probe = None;
            }
            prop_assert_eq!(
                breaker.admits(),
                match breaker.state() {
                    BreakerState::Closed => true,
                    BreakerState::Held | BreakerState::Open => false,
                    BreakerState::HalfOpen => probe.is_none(),
                }
            );
            if let Some(until_ms) = breaker.open_until_ms() {
                prop_assert!(until_ms - now_ms <= CONFIG.cooldown_ms_max.max(5_000));
            }
        }
        if let Some(until_ms) = breaker.open_until_ms() {
            prop_assert!(breaker.cool(until_ms) && breaker.admits());
        }
    }
}
