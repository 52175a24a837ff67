//! What holds for every expression in every zone.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::{Cron, Dst, Fire, Fold, Gap, zone};
use super::oracle::{expression, expression_with_seconds};
use super::{fires, fires_backwards, steps_of};

/// Each changes its clock in a way of its own: by half an hour, by two hours, at midnight, at a quarter to,
/// across the date line, by the moon, with winter time as the exception, or once and for all.
const ZONES: [&str; 20] = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Chatham",
    "Pacific/Apia",
    "America/Havana",
    "America/Asuncion",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Europe/Dublin",
    "America/Caracas",
    "Africa/Cairo",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Pyongyang",
    "Europe/Moscow",
    "Pacific/Kwajalein",
    "UTC",
];

/// More work than any search has been seen to need is a search that has lost its way.
const STEPS_MAX: u64 = 300;

fn any_zone() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&ZONES)
}

/// Any time from 1990 to 2040.
fn any_instant() -> impl Strategy<Value = Timestamp> {
    (631_152_000..2_208_988_800i64).prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn any_dst() -> impl Strategy<Value = Dst> {
    let gap = prop::sample::select(vec![Gap::NextValid, Gap::Skip]);
    let fold = prop::sample::select(vec![Fold::First, Fold::Both]);
    (gap, fold).prop_map(|(gap, fold)| Dst { gap, fold })
}

/// A change of the zone's clock, or the instant itself where there is none to come.
fn change_after(tz: &str, after: Timestamp) -> Timestamp {
    zone(tz).unwrap().following(after).next().map_or(after, |change| change.timestamp())
}

fn instants(fires: &[Fire]) -> Vec<Timestamp> {
    fires.iter().map(|fire| fire.at).collect()
}

proptest! {
    #[test]
    fn agrees_with_the_daemon_around_zone_changes(
        expression in expression(), tz in any_zone(), dst in any_dst(),
        near in any_instant(), back_m in 0..1800i64, ahead_m in 0..1800i64,
    ) {
        let change = change_after(tz, near);
        let (from, until) = (change - SignedDuration::from_mins(back_m), change + SignedDuration::from_mins(ahead_m));
        let cron = Cron::parse(&expression.text()).unwrap();
        let expected = expression.fires(tz, dst, from, until);
        let forward = fires(&cron, tz, dst, from, until);
        prop_assert_eq!(&instants(&forward), &expected, "{} {}", cron, tz);
        prop_assert_eq!(fires_backwards(&cron, tz, dst, from, until), forward, "{} {}", cron, tz);
    }

    #[test]
    fn next_is_later_and_prev_leads_back(
        expression in expression(), tz in any_zone(), dst in any_dst(), at in any_instant(), nanos in 0..2i64,
    ) {
        let (cron, zone) = (Cron::parse(&expression.text()).unwrap(), zone(tz).unwrap());
        let at = at + SignedDuration::from_nanos(nanos);
        let (next, steps) = steps_of(|| cron.next_after(at, &zone, dst));
        prop_assert!(steps < STEPS_MAX, "{cron} {tz}: {steps} steps");
        let next = next.unwrap();
        prop_assert!(next.at > at);
        let (prev, steps) = steps_of(|| cron.prev_before(next.at, &zone, dst));
        prop_assert!(steps < STEPS_MAX, "{cron} {tz}: {steps} steps back");
        let prev = prev.unwrap();
        prop_assert!(prev.at <= at);
        prop_assert_eq!(cron.next_after(prev.at, &zone, dst), Some(next));
    }

    #[test]
    fn no_fires_are_closer_than_the_shortest_gap(expression in expression_with_seconds(), at in any_instant()) {
        let cron = Cron::parse(&expression.text()).unwrap();
        let one = cron.next_after(at, &jiff::tz::TimeZone::UTC, Dst::default()).unwrap().at;
        let two = cron.next_after(one, &jiff::tz::TimeZone::UTC, Dst::default()).unwrap().at;
        prop_assert!(two.duration_since(one).as_secs() >= i64::try_from(cron.min_gap_seconds()).unwrap());
    }

    #[test]
    fn seconds_may_be_left_out(expression in expression(), tz in any_zone(), dst in any_dst(), at in any_instant()) {
        let (five, six) = (expression.text(), format!("0 {}", expression.text()));
        let (five, six) = (Cron::parse(&five).unwrap(), Cron::parse(&six).unwrap());
        let tz = zone(tz).unwrap();
        prop_assert_eq!(five.next_after(at, &tz, dst), six.next_after(at, &tz, dst));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        read_or_refuse(&text);
    }

    #[test]
    fn any_text_of_crons_letters_is_read_or_refused(text in "[-0-9*,/?#LWlwSUNMONJANFEB@ ]{0,40}") {
        read_or_refuse(&text);
    }

    #[test]
    fn any_five_fields_are_read_or_refused(fields in prop::collection::vec("[-0-9*,/?#LW]{1,6}", 5..7)) {
        read_or_refuse(&fields.join(" "));
    }

    #[test]
    fn any_zone_name_is_known_or_refused(name in any::<String>()) {
        if let Err(refused) = zone(&name) {
            prop_assert!(!refused.to_string().is_empty());
        }
    }
}

proptest! {
    // The daemon of seconds is slow, and differs from that of minutes in little.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_a_daemon_of_seconds_around_zone_changes(
        expression in expression_with_seconds(), tz in any_zone(), dst in any_dst(),
        near in any_instant(), back_s in 0..4000i64, ahead_s in 0..8000i64,
    ) {
        let change = change_after(tz, near);
        let (from, until) = (change - SignedDuration::from_secs(back_s), change + SignedDuration::from_secs(ahead_s));
        let cron = Cron::parse(&expression.text()).unwrap();
        let expected = expression.fires(tz, dst, from, until);
        let forward = fires(&cron, tz, dst, from, until);
        prop_assert_eq!(&instants(&forward), &expected, "{} {}", cron, tz);
        prop_assert_eq!(fires_backwards(&cron, tz, dst, from, until), forward, "{} {}", cron, tz);
    }
}

fn read_or_refuse(text: &str) {
    match Cron::parse(text) {
        Ok(cron) => {
            let (next, steps) =
                steps_of(|| cron.next_after(Timestamp::UNIX_EPOCH, &jiff::tz::TimeZone::UTC, Dst::default()));
            assert!(next.is_some() && steps < STEPS_MAX, "{text:?}");
            assert_eq!(cron.to_string(), text);
        }
        Err(refused) => {
            assert!(refused.position <= text.len() && text.is_char_boundary(refused.position), "{text:?}");
            assert!(!refused.to_string().contains('\n'));
        }
    }
}
