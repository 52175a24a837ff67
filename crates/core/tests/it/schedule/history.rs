//! Whatever happens to a schedule, its ledger covers every nominal instant exactly once, and none fires twice.

use std::sync::Arc;

use jiff::civil::date;
use proptest::prelude::*;
use tidewheel_core::schedule::{
    Change, Dates, Definition, Misfire, MisfirePolicy, Overlap, Roll, Rule, delete, nominals, pause, repair,
    resume, retime, trigger, update,
};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{HOUR, MINUTE, SECOND, World, at, cron, definition, every};

#[derive(Debug, Clone)]
enum Step {
    Run { ms: i64, lag_ms: i64 },
    Outage { ms: i64 },
    FinishAll,
    FinishOldest,
    Pause,
    Resume,
    Edit(Box<Definition>),
    CancelWaiting,
    Trigger,
    Upkeep,
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let expressions =
        ["*/7 * * * *", "30 2 * * *", "15 1,2,3 * * *", "0 * * * *", "*/3 * * * *", "0 9 29 3 *"];
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo"];
    let timing = prop_oneof![
        3 => (prop::sample::select(expressions.to_vec()), prop::sample::select(zones.to_vec()))
            .prop_map(|(expression, zone)| cron(expression, zone)),
        1 => (3 * MINUTE..2 * HOUR).prop_map(|interval| every(interval, Timestamp::MIN)),
    ];
    let excluded = (prop::sample::select(Roll::ALL.to_vec()), any::<bool>());
    (timing, excluded, prop::option::weighted(0.1, 0..72_i64)).prop_map(
        |(mut rule, (roll, excludes), end)| {
            if excludes {
                rule.exclude.dates = [date(2026, 3, 27), date(2026, 3, 30)].into_iter().collect();
                rule.exclude.calendar = Some("holidays".into());
                rule.exclude.roll = roll;
            }
            rule.end_at = end.map(|hours| at("2026-03-27T12:00:00Z").plus_ms(hours * HOUR));
            rule
        },
    )
}

fn any_definition() -> impl Strategy<Value = Definition> {
    let policy = prop_oneof![
        (1..20_u32).prop_map(|cap| MisfirePolicy::FireAll { cap }),
        Just(MisfirePolicy::FireLatest),
        Just(MisfirePolicy::Skip),
    ];
    let grace = prop::sample::select(vec![SECOND, MINUTE, HOUR]);
    let window = prop::sample::select(vec![0, MINUTE, HOUR]);
    (any_rule(), policy, grace, window, prop::sample::select(Overlap::ALL.to_vec())).prop_map(
        |(rule, policy, grace_ms, window_ms, overlap)| Definition {
            window_ms,
            misfire: Misfire { policy, grace_ms },
            overlap,
            ..definition(rule)
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3 * HOUR, prop::sample::select(vec![0, 5, 90 * SECOND]))
            .prop_map(|(ms, lag_ms)| Step::Run { ms, lag_ms }),
        3 => (0..9 * HOUR).prop_map(|ms| Step::Outage { ms }),
        2 => Just(Step::FinishAll),
        1 => Just(Step::FinishOldest),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        2 => any_definition().prop_map(|definition| Step::Edit(Box::new(definition))),
        1 => Just(Step::CancelWaiting),
        1 => Just(Step::Trigger),
        1 => Just(Step::Upkeep),
    ]
}

/// The rules a schedule has had, each with the time from which on it held.
struct Rules(Vec<(Timestamp, Arc<Rule>)>);

impl Rules {
    fn instants(&self, calendar: &Dates, until: Timestamp) -> Vec<Timestamp> {
        let ends = self.0.iter().skip(1).map(|(from, _)| *from).chain([until]);
        self.0
            .iter()
            .zip(ends)
            .flat_map(|((from, rule), end)| nominals(rule, Some(calendar), *from, end).map(|n| n.fire_at))
            .collect()
    }
}

fn take(world: &mut World, rules: &mut Rules, step: Step) {
    let calendar = world.calendar.clone();
    let calendar = calendar.as_ref();
    match step {
        Step::Run { ms, lag_ms } => world.run_until(world.now.plus_ms(ms), lag_ms),
        Step::Outage { ms } => world.outage(ms),
        Step::FinishAll => world.finish_all(),
        Step::FinishOldest => {
            if let Some(id) = world.running.first().copied() {
                world.finish(id);
            }
        }
        Step::Pause => world.apply(pause(&world.schedule, calendar, world.now)),
        Step::Resume => world.apply(resume(&world.schedule, calendar, world.now)),
        Step::Edit(definition) => {
            let change = Change { definition: *definition, calendar };
            world.apply(update(&world.schedule, calendar, change, world.now));
            rules.0.push((world.now, Arc::clone(&world.schedule.definition.rule)));
        }
        Step::CancelWaiting => {
            // Cancelled after its time; what is cancelled ahead of time is decided ahead of time too.
            if let Some(next) = world.schedule.next.filter(|next| next.fire_at <= world.now) {
                world.cancel_waiting(next.job_id);
            }
        }
        Step::Trigger => world.apply(trigger(&world.schedule, world.now)),
        Step::Upkeep => {
            let zone = world.schedule.definition.rule.zone.clone();
            let retimed = retime(&world.schedule, zone, calendar, world.now);
            assert!(retimed.is_none(&world.schedule), "the same rules change nothing");
            let mended = repair(&world.schedule, calendar, world.now);
            let waiting = world.schedule.next.map(|next| next.job_id);
            assert_eq!(mended.put.map(|job| job.id), waiting, "what is whole is mended to itself");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_instant_ends_exactly_once(first in any_definition(), steps in prop::collection::vec(any_step(), 1..30)) {
        let start = at("2026-03-27T18:00:17.250Z");
        let calendar: Dates = [date(2026, 3, 31)].into_iter().collect();
        let mut world = World::new(first, Some(calendar.clone()), start);
        let mut rules = Rules(vec![(start, Arc::clone(&world.schedule.definition.rule))]);
        for step in steps {
            take(&mut world, &mut rules, step);
        }
        // Deleting it decides what is still open.
        let removal = delete(&world.schedule, Some(&calendar), world.now);
        prop_assert_eq!(removal.withdraw, world.schedule.next.map(|next| next.job_id));
        world.ledger.extend(removal.entries);
        let covered: Vec<_> = world.instants().into_iter().map(|(instant, _)| instant).collect();
        prop_assert_eq!(covered, rules.instants(&calendar, world.now));
        for entry in &world.ledger {
            let count = entry.instants(Some(&calendar)).count();
            prop_assert!(entry.count == u32::try_from(count.min(1_000)).unwrap(), "{entry:?} has {count}");
            let mut backwards: Vec<_> = entry.instants_newest_first(Some(&calendar)).collect();
            backwards.reverse();
            prop_assert!(entry.instants(Some(&calendar)).eq(backwards));
        }
    }
}
