//! Tenants that are spread over several shards: each job is where its id says, and nobody who asks by the tenant notices.

use std::collections::BTreeSet;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State};
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

use super::trial::{RETRY_MS, Retry, START, Trial, failing, keyed, keyless, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{Due, Filter, KeyUse, OnConflict, Submission, Submitted};

fn ids(jobs: &[Job]) -> BTreeSet<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

fn count(jobs: &[Job]) -> u64 {
    u64::try_from(jobs.len()).expect("a handful")
}

/// A due read finds a spread tenant's jobs in their own shards, page by page, and in no other.
pub async fn a_spread_job_is_due_in_its_own_shard(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let jobs = trial.spread_jobs(&acme, 4, 20, 1_000);
    trial.take_in(&jobs).await;
    trial.add(&globex, 1_000).await;
    let bucket = Bucket::of(START);
    let shards: BTreeSet<Shard> = jobs.iter().map(|job| trial.shard_of(job)).collect();
    assert_eq!(shards.len(), 4, "{shards:?}");
    let mut found = BTreeSet::new();
    for shard in (0..trial.store.layout().shards).map(Shard) {
        for count_max in [2, 100] {
            let (due, _) = walk::due_in(&*trial.store, shard, &acme, bucket, Timestamp::MAX, count_max).await;
            let wanted: Vec<_> = jobs.iter().filter(|job| trial.shard_of(job) == shard).cloned().collect();
            assert_eq!(ids(&due), ids(&wanted), "{shard:?}");
            found.extend(ids(&due));
        }
        let is_named = walk::due_tenants(&*trial.store, shard, bucket, 10).await;
        assert_eq!(is_named.iter().any(|due| due.tenant == acme), shards.contains(&shard), "{shard:?}");
        let next = trial.store.next_bucket(shard, Bucket(0), Bucket(u32::MAX)).await.expect("read");
        assert!(next.is_some() || !shards.contains(&shard), "{shard:?}");
    }
    assert_eq!(found, ids(&jobs));
    // From any position of the reader's own making, too.
    let job = jobs.iter().max_by_key(|job| trial.shard_of(job)).expect("there are some");
    let after = Some(Position { at: START.plus_ms(999), id: JobId::from_bytes([u8::MAX; 16]) });
    let question = Due {
        shard: trial.shard_of(job),
        bucket,
        tenant: acme.clone(),
        after,
        until: Timestamp::MAX,
        count_max: 100,
        bytes_max: usize::MAX,
    };
    let page = trial.store.due(question).await.expect("read");
    assert_eq!(page.jobs.len(), 5);
}

/// Jobs that were taken in under one spread are found, claimed, tried again, moved and ended under any other.
pub async fn jobs_stay_where_they_are_when_the_spread_changes(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut jobs = Vec::new();
    for k in [1, 4, 16, 2, 1] {
        let more = trial.spread_jobs(&acme, k, 16, 0);
        trial.take_in(&more).await;
        jobs.extend(more);
        assert_eq!(trial.waiting().await.len(), jobs.len());
    }
    for job in &jobs {
        trial.holds(job).await;
        let running = trial.claim(job).await;
        trial.order(&running, failing(&running, Retry::Yes)).await;
    }
    trial.pass(RETRY_MS);
    let waiting = walk::everything_waiting(&*trial.store).await;
    assert_eq!(ids(&waiting), ids(&jobs));
    let mut moved_by_ms = 0;
    for job in &waiting {
        moved_by_ms += 60_000;
        let moved = Command::Amend { run_at: Some(trial.now.plus_ms(moved_by_ms)), priority: None };
        trial.order(job, moved).await;
    }
    let moved = walk::everything_waiting(&*trial.store).await;
    assert_eq!(ids(&moved), ids(&jobs));
    trial.pass(moved_by_ms);
    for job in &moved {
        let running = trial.claim(job).await;
        let done = trial.order(&running, succeeding(&running)).await;
        trial.holds(&done).await;
    }
    assert_eq!(trial.waiting().await, []);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Succeeded, count(&jobs))]);
}

/// Lists come in order over all shards, page by page, whatever states the jobs are in; counts are the tenant's.
pub async fn lists_and_counts_cover_all_shards(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut jobs: Vec<Job> = Vec::new();
    for in_ms in [0, 1, 600_000, 86_400_000] {
        jobs.extend(trial.spread_jobs(&acme, 8, 8, in_ms));
    }
    trial.take_in(&jobs).await;
    for job in &jobs[..3] {
        trial.claim(job).await;
    }
    let retried = trial.claim(&jobs[3]).await;
    trial.order(&retried, failing(&retried, Retry::Yes)).await;
    let dead = trial.claim(&jobs[4]).await;
    trial.order(&dead, failing(&dead, Retry::No)).await;
    let done = trial.claim(&jobs[5]).await;
    trial.order(&done, succeeding(&done)).await;
    for count_max in [1, 3, 7, 100] {
        let all = walk::list(&*trial.store, &acme, &Filter::default(), count_max).await;
        assert_eq!(ids(&all), ids(&jobs), "in pages of {count_max}");
        for (state, wanted) in [
            (State::Scheduled, jobs.len() - 6),
            (State::Running, 3),
            (State::Retrying, 1),
            (State::Dead, 1),
            (State::Succeeded, 1),
        ] {
            let filter = Filter { states: vec![state], ..Filter::default() };
            let found = walk::list(&*trial.store, &acme, &filter, count_max).await;
            assert_eq!(found.len(), wanted, "{state:?} in pages of {count_max}");
        }
        let due = Filter { due_by: Some(trial.now.plus_ms(1)), ..Filter::default() };
        let due = walk::list(&*trial.store, &acme, &due, count_max).await;
        assert!(due.iter().all(|job| job.status.due_at <= trial.now.plus_ms(1)), "{due:?}");
    }
    let counts = trial.store.counts(Some(&acme)).await.expect("counted");
    assert_eq!((counts.of(State::Scheduled), counts.of(State::Running)), (count(&jobs) - 6, 3));
    let busiest = trial.store.busiest(3).await.expect("counted");
    assert_eq!(busiest.len(), 1, "one tenant, wherever its jobs are: {busiest:?}");
}

/// A key belongs to the tenant and not to a shard: submitted through two nodes that know of another spread each, and
/// again after it changed, it makes one job.
pub async fn equal_keys_make_one_job_whatever_the_shard(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let first = trial.spread_jobs(&acme, 1, 1, 0).remove(0);
    assert_eq!(trial.submit(vec![keyed(&first, "k", 1)]).await, [Submitted::New]);
    for job in trial.spread_jobs(&acme, 16, 16, 0) {
        let answers = trial.submit(vec![keyed(&job, "k", 1)]).await;
        assert_eq!(answers, [Submitted::Duplicate(first.id)]);
        assert_eq!(trial.get(&job).await, None);
        let answers = trial.submit(vec![keyed(&job, "k", 2)]).await;
        assert_eq!(answers, [Submitted::Conflict(KeyUse::Job(first.id))]);
    }
    let spread = trial.spread_jobs(&acme, 2, 2, 0).remove(1);
    let home_again = trial.spread_jobs(&acme, 1, 1, 0).remove(0);
    let both = vec![keyed(&spread, "other", 1), keyed(&home_again, "other", 1)];
    assert_eq!(trial.submit(both).await, [Submitted::New, Submitted::Duplicate(spread.id)]);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 2)]);
    let held = trial.store.find_key(trial.now, &acme, "other").await.expect("read");
    assert_eq!(held.map(|held| held.used_for), Some(KeyUse::Job(spread.id)));
}

/// All or nothing holds for a batch whatever shards its jobs go to.
pub async fn a_batch_over_many_shards_is_taken_in_whole(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let taken = trial.spread_jobs(&acme, 1, 1, 0).remove(0);
    trial.submit(vec![keyed(&taken, "k", 1)]).await;
    let jobs = trial.spread_jobs(&acme, 8, 16, 0);
    let mut batch: Vec<Submission> = jobs.iter().map(keyless).collect();
    if let Some(last) = batch.last_mut() {
        last.key = keyed(&jobs[15], "k", 2).key;
    }
    let answers = trial.submit_or(batch, OnConflict::KeepNone).await;
    assert!(matches!(answers.last(), Some(Submitted::Conflict(_))), "{answers:?}");
    for job in &jobs {
        assert_eq!(trial.get(job).await, None);
    }
    trial.take_in(&jobs).await;
    assert_eq!(trial.waiting().await.len(), 17);
}

/// Closed and opened again, everything is where it was, attempts under way included.
pub async fn a_spread_tenant_survives_reopening(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = trial.spread_jobs(&acme, 16, 32, 0);
    trial.take_in(&jobs).await;
    let running = trial.claim(&jobs[5]).await;
    let trial = trial.reopen().await;
    let all = walk::list(&*trial.store, &acme, &Filter::default(), 5).await;
    assert_eq!(ids(&all), ids(&jobs));
    assert_eq!(trial.waiting().await.len(), 31);
    assert_eq!(trial.store.running().await.expect("read"), [running.without_payload()]);
    let done = trial.order(&running, succeeding(&running)).await;
    trial.holds(&done).await;
}
