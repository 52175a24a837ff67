//! What becomes of instants that were missed, that overlap, or that an edit meets.

use tidewheel_core::cron::Fold;
use tidewheel_core::job::Job;
use tidewheel_core::limits::{LEDGER_RANGE_COUNT_MAX, SCHEDULE_INTERVAL_MS_MIN_DEFAULT};
use tidewheel_core::schedule::{
    Change, Dates, Definition, Misfire, MisfirePolicy, Outcome, Overlap, Reason, Roll, State, Timing,
    backfill, backfill_job, calendar_changed, check, create, delete, occurrence_job, pause, repair, resume,
    retime, trigger, update,
};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{
    DAY, HOUR, MINUTE, SECOND, World, at, cron, definition, every, new_schedule, zone,
};

const START: &str = "2026-06-01T00:00:30Z";

fn minutely(policy: MisfirePolicy) -> Definition {
    let mut definition = definition(cron("* * * * *", "UTC"));
    definition.misfire = Misfire { policy, grace_ms: MINUTE };
    definition
}

/// Works for two minutes, is away for ten, works for two more.
fn after_an_outage(policy: MisfirePolicy) -> World {
    let mut world = World::new(minutely(policy), None, at(START));
    world.run_until(at("2026-06-01T00:02:30Z"), 5);
    world.outage(10 * MINUTE);
    world.run_until(at("2026-06-01T00:14:30Z"), 5);
    world
}

#[test]
fn fire_latest_makes_up_once() {
    let world = after_an_outage(MisfirePolicy::FireLatest);
    let into = "coalesced into the fire of 2026-06-01T00:11:00.000Z";
    let mut expected = vec!["00:01 fired".to_owned(), "00:02 fired".to_owned()];
    expected.extend((3..11).map(|minute| format!("00:{minute:02} {into}")));
    // 00:12 was late by half a minute only, which its grace allows.
    expected.extend(["00:11 fired late", "00:12 fired", "00:13 fired", "00:14 fired"].map(str::to_owned));
    assert_eq!(world.outcomes(), expected);
    assert_eq!(world.ledger.len(), 7, "a range is one entry");
}

#[test]
fn fire_all_makes_up_for_the_newest_oldest_first() {
    let world = after_an_outage(MisfirePolicy::FireAll { cap: 4 });
    let mut expected = vec!["00:01 fired".to_owned(), "00:02 fired".to_owned()];
    expected.extend((3..8).map(|minute| format!("00:{minute:02} missed")));
    expected.extend((8..12).map(|minute| format!("00:{minute:02} fired late")));
    expected.extend(["00:12 fired", "00:13 fired", "00:14 fired"].map(str::to_owned));
    assert_eq!(world.outcomes(), expected);
    assert!(world.fired.is_sorted_by_key(|fired| fired.fire_at), "oldest first");
}

#[test]
fn skip_makes_up_for_nothing() {
    let world = after_an_outage(MisfirePolicy::Skip);
    let skipped = world.instants().iter().filter(|(_, o)| *o == Outcome::Skipped(Reason::Misfire)).count();
    assert_eq!(skipped, 9);
    assert!(world.fired.iter().all(|fired| !fired.catch_up));
    assert_eq!(world.fired.len(), 5);
}

#[test]
fn late_within_window_and_grace_is_no_misfire() {
    for (late_ms, is_misfire) in [(0, false), (11 * MINUTE, false), (11 * MINUTE + 1, true)] {
        let mut daily = definition(cron("0 9 * * *", "UTC"));
        daily.window_ms = 10 * MINUTE;
        daily.misfire.policy = MisfirePolicy::Skip;
        let mut world = World::new(daily, None, at("2026-06-01T08:00:00Z"));
        world.outage(HOUR + late_ms);
        let until = world.now.max(world.schedule.next.unwrap().run_at);
        world.run_until(until, 0);
        assert_eq!(world.fired.is_empty(), is_misfire, "late by {late_ms}");
    }
}

#[test]
fn a_year_of_missed_minutes_is_one_entry_made_in_no_time() {
    for policy in [MisfirePolicy::FireLatest, MisfirePolicy::FireAll { cap: 1_000 }, MisfirePolicy::Skip] {
        let mut world = World::new(minutely(policy), None, at(START));
        world.outage(365 * DAY);
        let job: Job = world.waiting.values().next().unwrap().clone();
        world.claim(&job);
        assert_eq!(world.ledger.len(), 1, "{policy:?}");
        assert_eq!(world.ledger[0].count, LEDGER_RANGE_COUNT_MAX);
        assert_eq!(world.ledger[0].from, at("2026-06-01T00:01:00Z"));
        let newest: Vec<_> = world.ledger[0].instants_newest_first(None).take(2).collect();
        assert_eq!(newest, [world.ledger[0].to, world.ledger[0].to.plus_ms(-MINUTE)]);
    }
}

#[test]
fn a_schedule_that_is_always_late_still_fires() {
    let mut world = World::new(minutely(MisfirePolicy::FireLatest), None, at(START));
    world.run_until(at("2026-06-01T01:00:00Z"), 5 * MINUTE);
    assert!(world.fired.len() > 5, "{:?}", world.outcomes());
    assert!(world.fired.iter().all(|fired| fired.catch_up));
}

#[test]
fn moved_by_hand_is_not_late() {
    let mut hourly = definition(cron("0 * * * *", "UTC"));
    hourly.misfire.policy = MisfirePolicy::Skip;
    let mut world = World::new(hourly, None, at("2026-06-01T00:30:00Z"));
    let mut job = world.waiting.values().next().unwrap().clone();
    job.status.due_at = at("2026-06-01T01:40:00Z");
    world.waiting.insert(job.id, job.clone());
    world.outage(70 * MINUTE + 10);
    world.claim(&job);
    assert_eq!(world.outcomes(), ["01:00 fired"]);
}

fn overlapping(overlap: Overlap) -> World {
    let definition = Definition { overlap, ..minutely(MisfirePolicy::FireLatest) };
    let mut world = World::new(definition, None, at(START));
    world.run_until(at("2026-06-01T00:03:30Z"), 5);
    world
}

#[test]
fn overlap_allow_and_skip() {
    let world = overlapping(Overlap::Allow);
    assert_eq!(world.running.len(), 3);
    assert_eq!(world.schedule.active.len(), 1, "what may overlap is not kept");

    let mut world = overlapping(Overlap::Skip);
    assert_eq!(world.outcomes(), ["00:01 fired", "00:02 skipped: overlap", "00:03 skipped: overlap"]);
    world.finish_all();
    world.run_until(at("2026-06-01T00:04:30Z"), 5);
    assert_eq!(world.outcomes().last().unwrap(), "00:04 fired");
}

#[test]
fn overlap_cancel_running() {
    let world = overlapping(Overlap::CancelRunning);
    assert_eq!(world.outcomes(), ["00:01 fired", "00:02 fired", "00:03 fired"]);
    assert_eq!((world.running.len(), world.cancelled.len()), (1, 2));
}

#[test]
fn overlap_buffer_one() {
    let mut world = overlapping(Overlap::BufferOne);
    assert_eq!(world.outcomes(), ["00:01 fired", "00:02 fired", "00:03 skipped: overlap"]);
    assert_eq!((world.running.len(), world.fired.len()), (1, 1), "the second has fired, but waits");
    world.finish_all();
    let now = world.now;
    world.run_until(now, 0);
    assert_eq!((world.running.len(), world.fired.len()), (1, 2), "released by the end of the first");
    assert_eq!(world.schedule.held, None);

    // Should the news be lost, the next look finds out by itself.
    let mut world = overlapping(Overlap::BufferOne);
    world.running.clear();
    world.run_until(at("2026-06-01T00:03:50Z"), 5);
    world.run_until(at("2026-06-01T00:04:10Z"), 5);
    assert_eq!(world.fired[1].fire_at, at("2026-06-01T00:02:00Z"));
}

#[test]
fn a_buffered_occurrence_can_be_cancelled() {
    let mut world = overlapping(Overlap::BufferOne);
    let held = world.schedule.held.unwrap();
    world.cancel_waiting(held);
    assert_eq!(world.schedule.held, None);
    world.run_until(at("2026-06-01T00:04:30Z"), 5);
    assert!(world.schedule.held.is_some(), "there is room for another");
}

#[test]
fn a_run_by_hand_counts_for_overlap_but_not_for_the_chain() {
    let mut world = overlapping(Overlap::Skip);
    world.finish_all();
    let next = world.schedule.next;
    world.apply(trigger(&world.schedule, world.now));
    let now = world.now;
    world.run_until(now, 0);
    assert_eq!(world.schedule.next, next);
    assert_eq!(world.running.len(), 1);
    world.run_until(at("2026-06-01T00:04:30Z"), 5);
    assert_eq!(world.outcomes().last().unwrap(), "00:04 skipped: overlap");
}

#[test]
fn what_passes_while_paused_is_skipped() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    world.run_until(at("2026-06-01T00:01:30Z"), 5);
    world.apply(pause(&world.schedule, None, world.now));
    assert_eq!((world.schedule.state, world.waiting.len(), world.schedule.version), (State::Paused, 0, 2));
    assert!(pause(&world.schedule, None, world.now).is_none(&world.schedule));
    world.outage(3 * MINUTE);
    world.apply(resume(&world.schedule, None, world.now));
    world.run_until(at("2026-06-01T00:05:30Z"), 5);
    let skipped = |minute| format!("00:{minute:02} skipped: paused");
    assert_eq!(
        world.outcomes(),
        ["00:01 fired".to_owned(), skipped(2), skipped(3), skipped(4), "00:05 fired".to_owned()]
    );
}

#[test]
fn paused_and_resumed_before_its_time_it_is_the_same_job() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    let id = world.schedule.next.unwrap().job_id;
    world.apply(pause(&world.schedule, None, world.now));
    world.outage(SECOND);
    world.apply(resume(&world.schedule, None, world.now));
    assert_eq!(world.schedule.next.unwrap().job_id, id);
}

#[test]
fn deleting_says_what_is_left_to_do() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    world.outage(MINUTE);
    let removal = delete(&world.schedule, None, world.now);
    assert_eq!(removal.withdraw, world.schedule.next.map(|next| next.job_id));
    assert_eq!(removal.entries[0].outcome, Outcome::Skipped(Reason::Deleted));
}

fn edit(world: &mut World, definition: Definition) {
    let calendar = world.calendar.clone();
    let change = Change { definition, calendar: calendar.as_ref() };
    world.apply(update(&world.schedule, calendar.as_ref(), change, world.now));
}

#[test]
fn an_edit_at_the_very_instant_gives_old_or_new() {
    let due = at("2026-06-01T09:00:00Z");
    for (edited_at, expected) in
        [(due.plus_ms(-1), "10:30 fired"), (due, "09:00 fired"), (due.plus_ms(1), "09:00 fired")]
    {
        let mut world = World::new(definition(cron("0 9 * * *", "UTC")), None, at("2026-06-01T08:00:00Z"));
        world.now = edited_at;
        edit(&mut world, definition(cron("30 10 * * *", "UTC")));
        world.run_until(at("2026-06-01T10:00:00Z"), 5);
        assert_eq!(world.fired.len(), usize::from(expected.starts_with("09")), "edited at {edited_at}");
        world.run_until(at("2026-06-01T11:00:00Z"), 5);
        assert_eq!(world.outcomes()[0], expected, "edited at {edited_at}");
        assert_eq!(world.outcomes().last().unwrap(), "10:30 fired");
    }
}

#[test]
fn an_edit_in_the_very_millisecond_keeps_what_is_due_however_late_it_is_claimed() {
    for policy in [MisfirePolicy::FireLatest, MisfirePolicy::FIRE_ALL, MisfirePolicy::Skip] {
        let mut world = World::new(minutely(policy), None, at(START));
        world.now = at("2026-06-01T00:01:00Z");
        let mut hourly = definition(cron("0 * * * *", "UTC"));
        hourly.misfire = Misfire { policy, grace_ms: MINUTE };
        edit(&mut world, hourly.clone());
        // Changed once more before it is claimed, which is only after an outage.
        hourly.rule = std::sync::Arc::new(cron("30 * * * *", "UTC"));
        edit(&mut world, hourly);
        world.outage(10 * MINUTE);
        world.run_until(at("2026-06-01T00:40:00Z"), 5);
        let first = if policy == MisfirePolicy::Skip { "00:01 skipped: misfire" } else { "00:01 fired late" };
        assert_eq!(world.outcomes(), [first, "00:30 fired"], "{policy:?}");
    }
}

#[test]
fn what_is_due_from_an_old_rule_outlives_a_clock_that_is_set_back_and_an_edit_of_the_policies() {
    let mut world = World::new(minutely(MisfirePolicy::FireLatest), None, at(START));
    world.now = at("2026-06-01T00:01:00.005Z");
    let mut hourly = definition(cron("0 * * * *", "UTC"));
    edit(&mut world, hourly.clone());
    world.now = at("2026-06-01T00:00:40Z");
    hourly.misfire.policy = MisfirePolicy::FIRE_ALL;
    edit(&mut world, hourly);
    world.run_until(at("2026-06-01T01:00:30Z"), 5);
    assert_eq!(world.outcomes(), ["00:01 fired", "01:00 fired"]);
}

#[test]
fn an_edit_of_the_job_alone_keeps_the_beat() {
    let hourly = definition(every(HOUR, Timestamp::MIN));
    let mut world = World::new(hourly.clone(), None, at("2026-06-01T08:17:00Z"));
    let first = world.schedule.next.unwrap();
    assert_eq!(first.fire_at, at("2026-06-01T09:17:00Z"), "an interval counts from the creation");
    let mut edited = hourly.clone();
    edited.template.payload = "[]".into();
    edit(&mut world, edited.clone());
    assert_eq!(world.schedule.next.unwrap().job_id, first.job_id);
    assert_eq!(&world.waiting[&first.job_id].spec.payload[..], b"[]");
    assert_eq!(world.schedule.version, 2);
    // The same again is no edit.
    let again = update(&world.schedule, None, Change { definition: edited, calendar: None }, world.now);
    assert!(again.is_none(&world.schedule));
    // Due already: it goes out as it was.
    world.outage(HOUR);
    edit(&mut world, hourly);
    world.run_until(at("2026-06-01T09:18:00Z"), 0);
    assert_eq!(world.outcomes(), ["09:17 fired"]);
}

#[test]
fn an_edit_after_an_outage_fires_once_for_what_was_due() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    world.outage(3 * MINUTE);
    edit(&mut world, definition(cron("0 12 * * *", "UTC")));
    edit(&mut world, definition(cron("0 13 * * *", "UTC")));
    world.run_until(at("2026-06-01T14:00:00Z"), 5);
    let into = "coalesced into the fire of 2026-06-01T00:03:00.000Z";
    let expected = [&format!("00:01 {into}"), &format!("00:02 {into}"), "00:03 fired", "13:00 fired"];
    assert_eq!(world.outcomes(), expected);
}

#[test]
fn a_cancelled_occurrence_does_not_break_the_chain() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    world.cancel_waiting(world.schedule.next.unwrap().job_id);
    world.run_until(at("2026-06-01T00:02:30Z"), 5);
    assert_eq!(world.outcomes(), ["00:01 skipped: cancelled", "00:02 fired"]);
}

#[test]
fn a_lost_occurrence_is_made_again() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    let (id, job) = world.waiting.pop_first().unwrap();
    let mended = repair(&world.schedule, None, at(START));
    assert_eq!((mended.put.as_ref().unwrap().id, mended.put.as_ref()), (id, Some(&job)));
    world.apply(mended);
    world.schedule.next = None;
    world.waiting.clear();
    world.apply(repair(&world.schedule, None, world.now));
    assert_eq!(world.schedule.next.unwrap().job_id, id);
}

#[test]
fn it_ends_with_its_last_instant() {
    let mut rule = cron("* * * * *", "UTC");
    rule.end_at = Some(at("2026-06-01T00:02:00Z"));
    let mut world = World::new(definition(rule), None, at(START));
    world.run_until(at("2026-06-01T00:05:00Z"), 5);
    assert_eq!(world.outcomes(), ["00:01 fired", "00:02 fired"]);
    assert_eq!((world.schedule.state, world.waiting.len()), (State::Ended, 0));
    edit(&mut world, minutely(MisfirePolicy::Skip));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-01T00:06:00Z"), "an edit can revive it");
}

#[test]
fn a_wall_clock_time_that_fired_does_not_fire_again_by_new_rules() {
    // The zone turns out to be three hours further west than was thought: nine o'clock is still to come.
    let daily = definition(cron("0 9 * * *", "America/New_York"));
    let mut world = World::new(daily, None, at("2026-06-01T12:00:00Z"));
    world.run_until(at("2026-06-01T13:30:00Z"), 5);
    assert_eq!(world.fired.len(), 1);
    let west = zone("America/Los_Angeles");
    world.apply(retime(&world.schedule, west.clone(), None, world.now));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-02T16:00:00Z"), "tomorrow's");

    // Further east: today's has not fired and its time is over by half an hour. It is late, not lost.
    let daily = definition(cron("0 9 * * *", "America/Los_Angeles"));
    let mut world = World::new(daily, None, at("2026-06-01T12:00:00Z"));
    world.now = at("2026-06-01T13:30:00Z");
    world.apply(retime(&world.schedule, zone("America/New_York"), None, world.now));
    let now = world.now;
    world.run_until(now, 0);
    assert_eq!(world.outcomes(), ["13:00 fired late"]);

    // A beat of real minutes does not care.
    let mut world = World::new(definition(cron("*/5 * * * *", "America/New_York")), None, at(START));
    world.run_until(at("2026-06-01T00:06:00Z"), 5);
    let retimed = retime(&world.schedule, west, None, world.now);
    assert_eq!((retimed.schedule.next, retimed.withdraw, retimed.put), (world.schedule.next, None, None));
}

#[test]
fn rules_that_have_not_changed_decide_nothing() {
    // Fires on both passes of the fold; between them the program is started again, with the rules it had.
    let mut rule = cron("30 1 * * *", "America/New_York");
    rule.dst.fold = Fold::Both;
    let mut world = World::new(definition(rule), None, at("2026-11-01T05:00:00Z"));
    world.run_until(at("2026-11-01T05:45:00Z"), 5);
    let retimed = retime(&world.schedule, zone("America/New_York"), None, world.now);
    assert!(retimed.is_none(&world.schedule), "{retimed:?}");
    world.apply(retimed);
    world.run_until(at("2026-11-01T07:00:00Z"), 5);
    assert_eq!(world.outcomes(), ["05:30 fired", "06:30 fired"]);
}

#[test]
fn a_changed_calendar_holds_from_now_on() {
    let mut rule = cron("0 9 * * *", "UTC");
    rule.exclude.calendar = Some("holidays".into());
    let old: Dates = ["2026-06-02", "2026-06-04"].iter().map(|date| date.parse().unwrap()).collect();
    let new: Dates = ["2026-06-03"].iter().map(|date| date.parse().unwrap()).collect();
    let mut world = World::new(definition(rule), Some(old.clone()), at("2026-06-01T12:00:00Z"));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-03T09:00:00Z"));
    world.outage(DAY);
    let edit = calendar_changed(&world.schedule, Some(&old), Some(&new), world.now);
    world.calendar = Some(new);
    world.apply(edit);
    world.run_until(at("2026-06-05T12:00:00Z"), 5);
    let days: Vec<_> = world.fired.iter().map(|fired| fired.fire_at).collect();
    assert_eq!(days, [at("2026-06-04T09:00:00Z"), at("2026-06-05T09:00:00Z")], "the 2nd stays excluded");
}

#[test]
fn a_backfill_has_the_keys_of_the_occurrences_it_stands_for() {
    let world = World::new(definition(cron("0 * * * *", "UTC")), None, at("2026-06-01T08:30:00Z"));
    let (from, to) = (at("2026-05-31T22:00:00Z"), at("2026-06-01T00:30:00Z"));
    let instants: Vec<_> = backfill(&world.schedule, None, from, to).map(|nominal| nominal.fire_at).collect();
    assert_eq!(instants, [from, from.plus_ms(HOUR), from.plus_ms(2 * HOUR)]);
    let (job, entry) = backfill_job(&world.schedule, from, world.now, world.now);
    let occurrence = occurrence_job(&world.schedule, from, world.now, true, world.now);
    assert_eq!(job.spec, occurrence.spec);
    assert_ne!(job.id, occurrence.id);
    assert_eq!((job.status.due_at, entry.outcome), (world.now, Outcome::Backfilled { job_id: job.id }));
}

#[test]
fn what_is_made_up_for_is_due_at_once() {
    let mut world = World::new(minutely(MisfirePolicy::FIRE_ALL), None, at(START));
    world.outage(20 * MINUTE);
    let late = world.waiting.values().next().unwrap().clone();
    world.claim(&late);
    let next = world.schedule.next.unwrap();
    assert_eq!((next.run_at, next.catch_up), (world.now, true));
    assert!(next.fire_at < world.now);
}

#[test]
fn faults_name_their_fields() {
    let now = at(START);
    let fields = |definition: &Definition| -> Vec<&str> {
        let faults = check(definition, None, SCHEDULE_INTERVAL_MS_MIN_DEFAULT, now);
        assert!(faults.iter().all(|fault| !fault.detail.is_empty()));
        faults.into_iter().map(|fault| fault.field).collect()
    };
    assert!(fields(&minutely(MisfirePolicy::FIRE_ALL)).is_empty());
    assert_eq!(fields(&definition(cron("*/30 * * * * *", "UTC"))), ["cron_expr"]);
    assert_eq!(fields(&definition(every(MINUTE - 1, now))), ["every"]);

    let mut all_wrong = minutely(MisfirePolicy::FireAll { cap: 0 });
    all_wrong.window_ms = DAY + 1;
    all_wrong.misfire.grace_ms = 0;
    all_wrong.idempotency_key = Some("k".repeat(223).into());
    all_wrong.note = Some("n".repeat(2_000).into());
    let mut rule = cron("0 9 * * *", "UTC");
    (rule.start_at, rule.end_at) = (Some(now), Some(now.plus_ms(-1)));
    rule.exclude.calendar = Some("a b".into());
    all_wrong.rule = rule.into();
    let expected =
        ["window", "misfire_grace", "misfire_cap", "exclude.calendar", "idempotency_key", "note", "end_at"];
    assert_eq!(fields(&all_wrong), expected);

    let mut over = cron("0 9 * * *", "UTC");
    over.end_at = Some(at("2026-06-01T08:59:59Z"));
    assert_eq!(fields(&definition(over)), ["end_at"]);
}

#[test]
fn an_occurrence_says_what_it_is() {
    let mut hourly = definition(cron("0 * * * *", "UTC"));
    hourly.idempotency_key = Some("report".into());
    hourly.window_ms = MINUTE;
    let made = create(new_schedule(7, hourly.clone()), None, at("2026-05-19T12:30:00Z"));
    let (next, job) = (made.schedule.next.unwrap(), made.put.unwrap());
    assert_eq!(job.run_key(), "report:2026-05-19T13:00:00.000Z");
    assert_eq!((job.id, job.status.due_at), (next.job_id, next.run_at));
    assert!((0..MINUTE).contains(&next.run_at.since_ms(next.fire_at)));
    let again = create(new_schedule(7, hourly.clone()), None, at("2026-05-19T12:45:00Z"));
    assert_eq!(again.put.unwrap().id, job.id, "made twice it is the same job");
    let other = create(new_schedule(8, hourly), None, at("2026-05-19T12:30:00Z"));
    assert_ne!(other.put.unwrap().id, job.id);
    let plain =
        create(new_schedule(7, definition(cron("0 * * * *", "UTC"))), None, at("2026-05-19T12:30:00Z"));
    let key = format!("{}:2026-05-19T13:00:00.000Z", plain.schedule.id);
    assert_eq!(plain.put.unwrap().run_key(), key);
    assert!(matches!(plain.schedule.definition.rule.timing, Timing::Cron(_)));
    assert_eq!(plain.schedule.definition.rule.exclude.roll, Roll::None);
}
