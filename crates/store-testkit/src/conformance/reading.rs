//! Lookups, lists and counts.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Job, Occurrence, Spec, State, Target};
use tidewheel_core::limits::{BATCH_COUNT_MAX, BUCKET_MS, LIST_SCAN_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;

use super::trial::{RETRY_MS, Retry, START, Trial, failing, keyed, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{Filter, ListQuery};

/// Waiting, running or ended: a lookup finds the job as the last order left it.
pub async fn jobs_are_found_in_every_state(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let jobs = trial.add_one_in_each_state(&tenant("acme")).await;
    for job in &jobs {
        trial.holds(job).await;
    }
    let trial = trial.reopen().await;
    for job in &jobs {
        trial.holds(job).await;
    }
}

/// One answer per id, in the order of the ids, also for ids that are unknown, repeated or another tenant's.
pub async fn lookups_are_answered_in_order(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(2);
    let (a, b) = (trial.add(&neighbours[0], 5_000).await, trial.add(&neighbours[0], 0).await);
    let theirs = trial.add(&neighbours[1], 0).await;
    let unknown = trial.job(&neighbours[0], 5_000);
    let ids = vec![
        b.id,
        unknown.id,
        a.id,
        theirs.id,
        b.id,
        JobId::from_bytes([0; 16]),
        JobId::from_bytes([255; 16]),
    ];
    let found = trial.store.get(&neighbours[0], ids).await.expect("looked up");
    assert_eq!(found, [Some(b.clone()), None, Some(a.clone()), None, Some(b.clone()), None, None]);
    let running = trial.add_running(&tenant("globex")).await;
    let mixed = [&b, &running, &unknown, &theirs, &a].map(|job| (job.tenant.clone(), job.id));
    let found = trial.store.get_each(trial.now, mixed.to_vec()).await.expect("looked up");
    assert_eq!(found, [Some(b), Some(running.clone()), None, Some(theirs), Some(a)]);
    assert_eq!(trial.store.get_each(trial.now, Vec::new()).await.expect("nothing is looked up"), []);
    let done = trial.order(&running, succeeding(&running)).await;
    let found = trial.store.get_each(trial.now, vec![(running.tenant, running.id)]).await.expect("looked up");
    assert_eq!(found, [Some(done)], "not as it was seen before");
}

/// Of all tenants, as long as their attempts last.
pub async fn what_runs_is_listed_and_nothing_else(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let jobs = trial.add_one_in_each_state(&acme).await;
    let other = trial.add_running(&globex).await;
    let mine = jobs.into_iter().find(|job| job.status.state == State::Running).expect("one runs");
    let running = async |trial: &Trial<'_>| {
        let mut running = trial.store.running().await.expect("read");
        running.sort_by_key(|job| job.tenant.clone());
        running
    };
    assert_eq!(running(&trial).await, [mine.without_payload(), other.without_payload()]);
    let extend = Command::Heartbeat { token: other.status.token, extend_ms: 99_000, progress: None };
    let other = trial.order(&other, extend).await;
    assert_eq!(running(&trial).await, [mine.without_payload(), other.without_payload()]);
    trial.order(&mine, succeeding(&mine)).await;
    assert_eq!(running(&trial).await, [other.without_payload()]);
    trial.order(&other, Command::Cancel).await;
    assert_eq!(running(&trial).await, []);
}

/// By the time in the id, however small the pages.
pub async fn lists_come_latest_first_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(2);
    let mut jobs = trial.add_one_in_each_state(&neighbours[0]).await;
    for ms in [0, 86_400_000, 5_000, 5_000, -5_000, 700_000] {
        jobs.push(trial.add(&neighbours[0], ms).await);
        trial.add(&neighbours[1], ms).await;
    }
    let moved = trial.order(&jobs[9], Command::RunNow).await;
    jobs[9] = moved;
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    for count_max in [1, 2, 5, 13, 14, 15, 1_000] {
        let found = walk::list(&*trial.store, &neighbours[0], &Filter::default(), count_max).await;
        assert_eq!(found, jobs, "pages of {count_max}");
    }
    let nobody = walk::list(&*trial.store, &tenant("nobody"), &Filter::default(), 10).await;
    assert_eq!(nobody, []);
}

/// Every part of a filter, alone and with others.
pub async fn lists_are_filtered(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut jobs = trial.add_one_in_each_state(&acme).await;
    let edits: [fn(&mut Spec); 5] = [
        |spec| spec.kind = Arc::from("report"),
        |spec| spec.destination = Destination::Queue(Arc::from("slow")),
        |spec| {
            let target = Target { url: "http://mail/".into(), method: "POST".into(), headers: Vec::new() };
            spec.destination = Destination::Target(Arc::new(target));
        },
        |spec| spec.labels = vec![("env".into(), "prod".into()), ("team".into(), "a".into())],
        |spec| {
            let schedule_id = ScheduleId::from_bytes([1; 16]);
            spec.occurrence = Some(Occurrence { schedule_id, fire_at: START, catch_up: false });
        },
    ];
    for (edit, ms) in edits.into_iter().zip([60_000, 70_000, 80_000, 90_000, 100_000]) {
        jobs.push(trial.job_with(&acme, ms, edit));
    }
    trial.take_in(&jobs[State::ALL.len()..]).await;
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    for (filter, count) in filters() {
        let expected: Vec<_> = jobs.iter().filter(|job| filter.matches(job)).cloned().collect();
        assert_eq!(expected.len(), count, "{filter:?}");
        assert_eq!(walk::list(&*trial.store, &acme, &filter, 2).await, expected, "{filter:?}");
    }
}

/// Filters for the jobs of [`lists_are_filtered`], and how many of them each wants.
fn filters() -> Vec<(Filter, usize)> {
    let all = Filter::default;
    let label = |key: &str, value: &str| (Box::from(key), Box::from(value));
    let mut filters: Vec<_> = State::ALL
        .into_iter()
        .map(|state| (Filter { states: vec![state], ..all() }, if state == State::Scheduled { 6 } else { 1 }))
        .collect();
    filters.extend([
        (all(), 13),
        (Filter { states: vec![State::Dead, State::Running], ..all() }, 2),
        (Filter { kind: Some(Arc::from("report")), ..all() }, 1),
        (Filter { kind: Some(Arc::from("repor")), ..all() }, 0),
        (Filter { queue: Some(Arc::from("slow")), ..all() }, 1),
        (Filter { queue: Some(Arc::from("mail")), states: vec![State::Scheduled], ..all() }, 4),
        (Filter { schedule: Some(ScheduleId::from_bytes([1; 16])), ..all() }, 1),
        (Filter { labels: vec![label("team", "a")], ..all() }, 1),
        (Filter { labels: vec![label("team", "a"), label("env", "prod")], ..all() }, 1),
        (Filter { labels: vec![label("team", "a"), label("env", "test")], ..all() }, 0),
        (Filter { from: Some(START.plus_ms(70_000)), ..all() }, 5),
        (Filter { to: Some(START.plus_ms(70_000)), ..all() }, 8),
        (Filter { from: Some(START.plus_ms(70_000)), to: Some(START.plus_ms(90_000)), ..all() }, 2),
        (Filter { from: Some(START.plus_ms(90_000)), to: Some(START.plus_ms(70_000)), ..all() }, 0),
    ]);
    filters
}

/// Jobs that end, move, come and go between two pages neither hide nor double the others.
pub async fn a_walk_sees_every_job_once_while_others_change(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs: Vec<_> = (0..40).map(|n| trial.job(&acme, n * 10)).collect();
    trial.take_in(&jobs).await;
    trial.pass(1_000);
    let (mut seen, mut after, mut page_number) = (Vec::new(), None, 0);
    loop {
        let query = ListQuery { tenant: acme.clone(), filter: Filter::default(), after, count_max: 3 };
        let page = trial.store.list(query).await.expect("listed");
        seen.extend(page.jobs.iter().map(|job| job.id));
        let Some(next) = page.next else { break };
        assert_ne!(after, Some(next), "the next page starts further on");
        after = Some(next);
        disturb(&mut trial, &acme, &jobs, page_number).await;
        page_number += 1;
    }
    let original: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
    seen.retain(|id| original.contains(id));
    assert_eq!(seen, original);
}

/// Changes one job from each end of the list, and adds one at each.
async fn disturb(trial: &mut Trial<'_>, tenant: &Tenant, jobs: &[Job], page_number: usize) {
    for job in [jobs.get(page_number), jobs.iter().rev().nth(page_number)].into_iter().flatten() {
        let Ok(running) = trial.try_order(job, trial.claiming()).await else { continue };
        let ending = match page_number % 4 {
            0 => succeeding(&running.job),
            1 => failing(&running.job, Retry::Yes),
            2 => failing(&running.job, Retry::No),
            _ => continue,
        };
        trial.order(&running.job, ending).await;
    }
    trial.add(tenant, 3_600_000).await;
    trial.add(tenant, -3_600_000).await;
}

/// However few records one call may look at, a walk gets to the end.
pub async fn a_rare_match_is_found_behind_many_others(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let rare = trial.job_with(&acme, 0, |spec| spec.kind = Arc::from("rare"));
    trial.take_in(std::slice::from_ref(&rare)).await;
    let many: Vec<_> = (1..).take(LIST_SCAN_COUNT_MAX + 10).map(|ms| trial.job(&acme, ms)).collect();
    for batch in many.chunks(BATCH_COUNT_MAX) {
        trial.take_in(batch).await;
    }
    let filter = Filter { kind: Some(Arc::from("rare")), ..Filter::default() };
    assert_eq!(walk::list(&*trial.store, &acme, &filter, 10).await, [rare]);
    rare_states_are_read_without_the_many(&mut trial, &acme, &many).await;
    let count = u64::try_from(many.len() + 1 + ROUNDS).expect("it fits");
    assert_eq!(trial.counts(Some(&acme)).await[0], (State::Scheduled, count));
}

/// How many of each kind there are among the many.
const ROUNDS: usize = 3;

/// What runs, is tried again, is dead, has ended or is due is found at the cost of what there is of it, although
/// `many` wait for later.
async fn rare_states_are_read_without_the_many(trial: &mut Trial<'_>, acme: &Tenant, many: &[Job]) {
    let mut expected = Vec::new();
    for number in 0..ROUNDS {
        let running = trial.add_running(acme).await;
        // One is tried again at the very instant it was first set for, the others later.
        let again = trial.add_running(acme).await;
        let again = match number {
            0 => trial.order(&again, Command::Release { token: again.status.token }).await,
            _ => trial.order(&again, failing(&again, Retry::Yes)).await,
        };
        let dead = trial.add_running(acme).await;
        let dead = trial.order(&dead, failing(&dead, Retry::No)).await;
        let cancelled = trial.add(acme, 0).await;
        let cancelled = trial.order(&cancelled, Command::Cancel).await;
        let ready = trial.add(acme, 30 * BUCKET_MS).await;
        let ready = trial.order(&ready, Command::RunNow).await;
        expected.extend([running, again, dead, cancelled, ready]);
    }
    let now = trial.now;
    let filter = Filter { due_by: Some(now), ..Filter::default() };
    let page = trial.store.list(query(acme, filter, 1_000)).await.expect("a page");
    let is_ready = |job: &&Job| job.armed_at().is_some_and(|at| at <= now);
    assert!(page.jobs.iter().all(|job| is_ready(&job)));
    assert!(expected.iter().filter(is_ready).all(|job| page.jobs.contains(job)));
    assert!(page.looked < many.len() / 2, "{} records were looked at for what is due", page.looked);
    let some: [&[State]; 7] = [
        &[State::Running],
        &[State::Retrying],
        &[State::Dead],
        &[State::Cancelled],
        &[State::Running, State::Retrying],
        &[State::Retrying, State::Dead],
        &[State::Running, State::Retrying, State::Dead, State::Cancelled],
    ];
    for states in some {
        let mut wanted: Vec<_> =
            expected.iter().filter(|job| states.contains(&job.status.state)).cloned().collect();
        wanted.sort_by_key(|job| std::cmp::Reverse(job.id));
        let filter = Filter { states: states.to_vec(), ..Filter::default() };
        let page = trial.store.list(query(acme, filter.clone(), 1_000)).await.expect("a page");
        assert_eq!(page.jobs, wanted, "{states:?}");
        assert!(page.next.is_none(), "{states:?}");
        assert!(page.looked <= 4 * expected.len(), "{states:?}: {} records were looked at", page.looked);
        assert_eq!(walk::list(&*trial.store, acme, &filter, 2).await, wanted, "{states:?}, page by page");
    }
}

fn query(tenant: &Tenant, filter: Filter, count_max: usize) -> ListQuery {
    ListQuery { tenant: tenant.clone(), filter, after: None, count_max }
}

/// One job through its whole life, counted at every step, also after reopening.
pub async fn counts_follow_every_change(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    assert_eq!(trial.counts(Some(&acme)).await, []);
    let mut job = trial.add(&acme, 0).await;
    let at_now = |trial: &Trial<'_>, _: &Job| Command::Rerun { run_at: trial.now };
    type Step = fn(&Trial<'_>, &Job) -> Command;
    let steps: [(Step, State); 16] = [
        (|_, _| Command::RunNow, State::Scheduled),
        (|trial, _| trial.claiming(), State::Running),
        (|_, job| Command::Detach { token: job.status.token, lease_ms: 9_000 }, State::Running),
        (|_, job| failing(job, Retry::Yes), State::Retrying),
        (|trial, _| trial.claiming(), State::Running),
        (|_, job| Command::Snooze { token: job.status.token, delay_ms: RETRY_MS }, State::Retrying),
        (|_, _| Command::Cancel, State::Cancelled),
        (at_now, State::Scheduled),
        (|trial, _| trial.claiming(), State::Running),
        (|_, job| succeeding(job), State::Succeeded),
        (at_now, State::Scheduled),
        (|trial, _| trial.claiming(), State::Running),
        (|_, job| failing(job, Retry::No), State::Dead),
        (
            |trial, _| Command::Replay { run_at: trial.now, payload: None, target: None, timeout_ms: None },
            State::Scheduled,
        ),
        (|trial, _| trial.claiming(), State::Running),
        (|_, job| failing(job, Retry::No), State::Dead),
    ];
    for (number, (command, state)) in steps.into_iter().enumerate() {
        job = trial.order(&job, command(&trial, &job)).await;
        assert_eq!(trial.counts(Some(&acme)).await, [(state, 1)], "step {number}");
        assert_eq!(trial.counts(None).await, [(state, 1)], "step {number}");
        if number % 3 == 0 {
            trial = trial.reopen().await;
            assert_eq!(trial.counts(Some(&acme)).await, [(state, 1)], "step {number}, reopened");
            assert_eq!(trial.counts(None).await, [(state, 1)], "step {number}, reopened");
        }
        trial.pass(RETRY_MS);
    }
    trial.order(&job, Command::Discard).await;
    assert_eq!(trial.counts(Some(&acme)).await, []);
    assert_eq!(trial.counts(None).await, []);
}

/// Neighbours are counted apart, and what changes nothing is not counted.
pub async fn counts_are_per_tenant_and_in_all(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(2);
    trial.add_one_in_each_state(&neighbours[0]).await;
    let job = trial.job(&neighbours[1], 0);
    trial.submit(vec![keyed(&job, "k", 1)]).await;
    let (duplicate, conflict) = (trial.job(&neighbours[1], 0), trial.job(&neighbours[1], 0));
    trial.submit(vec![keyed(&duplicate, "k", 1), keyed(&conflict, "k", 2), keyed(&job, "k", 1)]).await;
    let check = async |trial: &Trial<'_>| {
        let one_each: Vec<_> = State::ALL.into_iter().map(|state| (state, 1)).collect();
        assert_eq!(trial.counts(Some(&neighbours[0])).await, one_each);
        assert_eq!(trial.counts(Some(&neighbours[1])).await, [(State::Scheduled, 1)]);
        assert_eq!(trial.counts(Some(&tenant("nobody"))).await, []);
        let busiest = trial.store.busiest(10).await.expect("they are counted");
        let waiting: Vec<_> = busiest.iter().map(|(tenant, counts)| (tenant, counts.waiting())).collect();
        assert_eq!(waiting, [(&neighbours[0], 2), (&neighbours[1], 1)]);
        assert_eq!(trial.store.busiest(1).await.expect("they are counted"), busiest[..1]);
        let mut all = one_each;
        all[0].1 = 2;
        assert_eq!(trial.counts(None).await, all);
    };
    check(&trial).await;
    check(&trial.reopen().await).await;
}
