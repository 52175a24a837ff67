//! Due reads: what waits, where it waits, and nothing else.

use bytes::Bytes;
use tidewheel_core::job::{Command, Job};
use tidewheel_core::limits::BUCKET_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position};
use tidewheel_core::time::Timestamp;

use super::trial::{RETRY_MS, Retry, START, Trial, amending, failing, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{Due, Filter, TenantDue};

/// Every job once, in order of time, however small the pages; the same order every time.
pub async fn due_jobs_come_in_order_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let times = [9, 3, 3, 7, 1, 3, 0, 9, 12, 3, 5, 8, 2, 3, 11, 4, 9, 10, 6, 3];
    let jobs: Vec<_> = times.iter().map(|s| trial.job(&acme, s * 1_000)).collect();
    trial.take_in(&jobs).await;
    let mut expected: Vec<_> = jobs.iter().map(Job::position).collect();
    expected.sort();
    let bucket = Bucket::of(START);
    let (whole, next_at) = walk::due(&*trial.store, &acme, bucket, bucket.end(), 1_000).await;
    assert_eq!(next_at, None);
    for count_max in [1, 2, 3, 7, 19, 20, 21] {
        let (paged, _) = walk::due(&*trial.store, &acme, bucket, bucket.end(), count_max).await;
        assert_eq!(paged, whole, "pages of {count_max}");
    }
    let mut found: Vec<_> = whole.iter().map(Job::position).collect();
    found.sort();
    assert_eq!(found, expected);
}

/// A page holds about as many bytes as asked for, and at least one job.
pub async fn pages_end_at_their_bytes(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let payload = Bytes::from(vec![b'x'; 32_768]);
    let jobs: Vec<_> =
        (0..12).map(|s| trial.job_with(&acme, s, |spec| spec.payload = payload.clone())).collect();
    trial.take_in(&jobs).await;
    for (bytes_max, most) in [(0, 1), (1, 1), (100_000, 4)] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page =
                trial.store.due(Due { bytes_max, after, ..due(&trial, &acme, 100) }).await.expect("read");
            assert!(page.jobs.len() <= most, "{} jobs in {bytes_max} bytes", page.jobs.len());
            found.extend(page.jobs.iter().map(|job| Job::clone(job)));
            let Some(resume) = page.resume else { break };
            assert_ne!(after, Some(resume), "the next page starts further on");
            after = Some(resume);
        }
        assert_eq!(found, jobs, "pages of {bytes_max} bytes");
    }
}

/// The instant itself belongs to the range; what comes after it is told, not handed out.
pub async fn a_read_ends_at_its_instant_and_tells_what_is_next(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = [1_000, 2_000, 3_000].map(|ms| trial.job(&acme, ms));
    trial.take_in(&jobs).await;
    trial.add(&acme, BUCKET_MS).await;
    let at = |ms| START.plus_ms(ms);
    for (until, count, next_at) in [
        (at(0), 0, Some(at(1_000))),
        (at(999), 0, Some(at(1_000))),
        (at(1_000), 1, Some(at(2_000))),
        (at(2_999), 2, Some(at(3_000))),
        (at(3_000), 3, None),
        (at(2 * BUCKET_MS), 3, None),
        (Timestamp::MAX, 3, None),
    ] {
        let (found, next) = walk::due(&*trial.store, &acme, Bucket::of(START), until, 10).await;
        assert_eq!((&*found, next), (&jobs[..count], next_at), "until {until}");
    }
    let after = Some(jobs[1].position());
    let page =
        trial.store.due(Due { after, until: at(2_500), ..due(&trial, &acme, 10) }).await.expect("read");
    assert_eq!((page.jobs.len(), page.resume, page.next_at), (0, None, Some(at(3_000))));
    let (found, next) = walk::due(&*trial.store, &acme, Bucket::of(START).next(), at(0), 10).await;
    assert_eq!((found.len(), next), (0, Some(at(BUCKET_MS))), "before the bucket begins");
}

/// A position stays good when the job that stood there has gone.
pub async fn a_page_can_be_read_on_after_its_jobs_are_claimed(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs: Vec<_> = (0..10).map(|n| trial.job(&acme, n / 4)).collect();
    trial.take_in(&jobs).await;
    trial.pass(1_000);
    let (mut found, mut after): (Vec<Position>, _) = (Vec::new(), None);
    loop {
        let page = trial.store.due(Due { after, ..due(&trial, &acme, 3) }).await.expect("read");
        for job in &page.jobs {
            trial.claim(job).await;
            found.push(job.position());
        }
        let Some(resume) = page.resume else { break };
        after = Some(resume);
    }
    let mut expected: Vec<_> = jobs.iter().map(Job::position).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(trial.waiting().await, []);
    let trial = trial.reopen().await;
    assert_eq!(trial.waiting().await, []);
}

fn due(trial: &Trial<'_>, tenant: &Tenant, count_max: usize) -> Due {
    Due {
        shard: trial.shard(tenant),
        bucket: Bucket::of(START),
        tenant: tenant.clone(),
        after: None,
        until: Timestamp::MAX,
        count_max,
        bytes_max: usize::MAX,
    }
}

/// What runs or has ended is not due.
pub async fn only_waiting_jobs_are_due(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let jobs = trial.add_one_in_each_state(&tenant("acme")).await;
    let mut expected: Vec<_> = jobs.iter().filter_map(|job| Some((job.armed_at()?, job.id))).collect();
    expected.sort();
    assert_eq!(expected.len(), 2, "one scheduled, one retrying");
    assert_eq!(trial.waiting().await, expected);
    let trial = trial.reopen().await;
    assert_eq!(trial.waiting().await, expected);
}

/// Moved within its bucket, to another, back, and before its first time; it keeps its id.
pub async fn a_moved_job_is_due_at_its_new_time_only(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.add(&acme, 10_000).await;
    for ms in [20_000, 5_000, 5 * BUCKET_MS, 10_000, -3 * BUCKET_MS, 40 * 86_400_000, 10_001, 10_000] {
        let at = START.plus_ms(ms);
        let moved = trial.order(&job, amending(at)).await;
        assert_eq!((moved.id, moved.status.due_at), (job.id, at));
        assert_eq!(trial.waiting().await, [(at, job.id)], "moved by {ms} ms");
        trial.holds(&moved).await;
    }
    trial.order(&job, amending(START.plus_ms(2 * BUCKET_MS))).await;
    trial.pass(1_000);
    let hurried = trial.order(&job, Command::RunNow).await;
    assert_eq!(trial.waiting().await, [(trial.now, job.id)]);
    let trial = trial.reopen().await;
    assert_eq!(trial.waiting().await, [(trial.now, job.id)]);
    let running = trial.claim(&hurried).await;
    assert_eq!(trial.waiting().await, []);
    trial.order(&job, succeeding(&running)).await;
    let trial = trial.reopen().await;
    assert_eq!(trial.waiting().await, []);
}

fn lease_over(job: &Job) -> Command {
    let lease_until = job.status.running.as_ref().map_or(Timestamp::MIN, |running| running.lease_until);
    Command::LeaseOver { token: job.status.token, lease_until, jitter: 0 }
}

/// After a failure, a snooze, a lost lease, a lost server or a release.
pub async fn a_job_tried_again_is_due_at_its_new_time_only(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut job = trial.add(&acme, 0).await;
    type Ends = fn(&Job) -> Command;
    let endings: [(Ends, i64, i64); 6] = [
        (|job| failing(job, Retry::Yes), 0, RETRY_MS),
        (|job| Command::Snooze { token: job.status.token, delay_ms: 2 * BUCKET_MS }, 0, 2 * BUCKET_MS),
        (|job| Command::Release { token: job.status.token }, 1_000, 0),
        (lease_over, 60_000, RETRY_MS),
        (|job| Command::Lost { token: job.status.token }, 0, 0),
        (|job| Command::Snooze { token: job.status.token, delay_ms: 0 }, 0, 0),
    ];
    for (ends, runs_ms, waits_ms) in endings {
        job = trial.claim(&job).await;
        assert_eq!(trial.waiting().await, [], "while it runs");
        trial.pass(runs_ms);
        job = trial.order(&job, ends(&job)).await;
        let at = trial.now.plus_ms(waits_ms);
        assert_eq!(trial.waiting().await, [(at, job.id)]);
        trial = trial.reopen().await;
        assert_eq!(trial.waiting().await, [(at, job.id)], "after reopening");
        trial.holds(&job).await;
        trial.pass(waits_ms);
    }
}

/// A job that ended and is run again waits at its new time, also when that is its first.
pub async fn a_job_run_again_is_due_at_its_new_time_only(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let mut job = trial.add(&tenant("acme"), 0).await;
    let first = job.status.due_at;
    for run_at in [first, first.plus_ms(1), first.plus_ms(-BUCKET_MS), first] {
        trial.pass(1);
        job = trial.claim(&job).await;
        job = trial.order(&job, succeeding(&job)).await;
        assert_eq!(trial.waiting().await, [], "when it has ended");
        job = trial.order(&job, Command::Rerun { run_at }).await;
        assert_eq!(trial.waiting().await, [(run_at, job.id)]);
        trial = trial.reopen().await;
        assert_eq!(trial.waiting().await, [(run_at, job.id)], "after reopening");
    }
}

/// The first and the last millisecond of a bucket are in it, their neighbours are not.
pub async fn the_edges_of_a_bucket_belong_to_it(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = [-1, 0, BUCKET_MS - 1, BUCKET_MS].map(|ms| trial.job(&acme, ms));
    trial.take_in(&jobs).await;
    let [before, first, last, after] = jobs.map(|job| job.id);
    assert_eq!(trial.due_in_bucket(&acme, START.plus_ms(-1)).await, [before]);
    assert_eq!(trial.due_in_bucket(&acme, START).await, [first, last]);
    assert_eq!(trial.due_in_bucket(&acme, START.plus_ms(BUCKET_MS)).await, [after]);
}

/// Names in order, each with the time of its first job, however many jobs it has.
pub async fn tenants_of_a_bucket_come_by_name_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(7);
    for (tenant, first) in neighbours.iter().zip([5, 1, 4, 2, 9, 3, 8]) {
        let jobs: Vec<_> = [2, 0, 1].map(|more| trial.job(tenant, first * 1_000 + more)).into();
        trial.take_in(&jobs).await;
    }
    trial.add(&neighbours[0], BUCKET_MS).await;
    let expected: Vec<_> = neighbours
        .iter()
        .zip([5, 1, 4, 2, 9, 3, 8])
        .map(|(tenant, first)| TenantDue { tenant: tenant.clone(), first_at: START.plus_ms(first * 1_000) })
        .collect();
    let (shard, bucket) = (trial.shard(&neighbours[0]), Bucket::of(START));
    for count_max in [1, 2, 6, 7, 8] {
        assert_eq!(walk::due_tenants(&*trial.store, shard, bucket, count_max).await, expected);
    }
    let absent = Some(tenant("neighbour-"));
    let all = trial.store.due_tenants(shard, bucket, absent, 100).await.expect("read");
    assert_eq!(all, expected, "after a name that has no work");
}

/// It leaves the bucket with its last waiting job and comes back with the next.
pub async fn a_tenant_is_named_while_it_has_work(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let [first, second] = [0, 1_000].map(|ms| trial.job(&acme, ms));
    trial.take_in(&[first.clone(), second.clone()]).await;
    trial.pass(1_000);
    let named = async |trial: &Trial<'_>| {
        let tenants = walk::due_tenants(&*trial.store, trial.shard(&acme), Bucket::of(START), 10).await;
        tenants.into_iter().map(|due| due.first_at).collect::<Vec<_>>()
    };
    assert_eq!(named(&trial).await, [START]);
    let running = trial.claim(&first).await;
    assert_eq!(named(&trial).await, [START.plus_ms(1_000)]);
    trial.claim(&second).await;
    assert_eq!(named(&trial).await, []);
    trial.order(&first, Command::Release { token: running.status.token }).await;
    assert_eq!(named(&trial).await, [trial.now]);
    trial.order(&first, amending(START.plus_ms(-1))).await;
    assert_eq!(named(&trial).await, []);
}

/// Over gaps, from and until themselves included, by shard.
pub async fn the_next_bucket_is_the_oldest_with_work(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let base = Bucket::of(START);
    let job = trial.add(&acme, BUCKET_MS).await;
    trial.add(&acme, 5 * BUCKET_MS + 7).await;
    trial.add(&acme, 5 * BUCKET_MS + 9).await;
    let shard = trial.shard(&acme);
    let next = async |trial: &Trial<'_>, from: u32, until: u32| {
        let (from, until) = (Bucket(base.0 + from), Bucket(base.0 + until));
        let found = trial.store.next_bucket(shard, from, until).await.expect("read");
        found.map(|bucket| bucket.0 - base.0)
    };
    for (from, until, expected) in [
        (0, 100, Some(1)),
        (1, 100, Some(1)),
        (1, 1, Some(1)),
        (0, 0, None),
        (2, 4, None),
        (2, 5, Some(5)),
        (5, 5, Some(5)),
        (6, 100, None),
        (5, 2, None),
    ] {
        assert_eq!(next(&trial, from, until).await, expected, "from {from} until {until}");
    }
    trial.order(&job, Command::Cancel).await;
    assert_eq!(next(&trial, 0, 100).await, Some(5));
    let whole = trial.store.next_bucket(shard, Bucket(0), Bucket(u32::MAX)).await.expect("read");
    assert_eq!(whole, Some(Bucket(base.0 + 5)));
    let trial = trial.reopen().await;
    assert_eq!(next(&trial, 0, 100).await, Some(5));
}

/// Neighbours in a shard, and tenants whose names begin alike.
pub async fn tenants_of_one_shard_do_not_see_each_other(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let mut tenants = trial.neighbours(3);
    tenants.extend(["a", "a-", "a:", "aa", "a.b", "A"].map(tenant));
    let mut expected = Vec::new();
    for tenant in &tenants {
        let mut jobs: Vec<_> = [0, 0, 500].map(|ms| trial.job(tenant, ms)).into();
        trial.take_in(&jobs).await;
        jobs.sort_by_key(Job::position);
        expected.push(jobs);
    }
    for (tenant, jobs) in tenants.iter().zip(&expected) {
        let (mut found, _) = walk::due(&*trial.store, tenant, Bucket::of(START), Timestamp::MAX, 2).await;
        found.sort_by_key(Job::position);
        assert_eq!(found, *jobs, "{tenant}");
        assert_eq!(walk::list(&*trial.store, tenant, &Filter::default(), 2).await.len(), 3, "{tenant}");
    }
    let running = trial.claim(&expected[0][0]).await;
    trial.order(&running, succeeding(&running)).await;
    assert_eq!(trial.waiting().await.len(), 3 * tenants.len() - 1);
}
