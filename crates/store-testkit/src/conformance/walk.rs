//! Reading page by page to the end, with a check of what every page promises.

use std::collections::BTreeSet;

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::schedule::{Entry, Schedule};
use tidewheel_core::time::Timestamp;

use tidewheel_store::{Due, Filter, ListQuery, ScheduleQuery, Store, TenantDue};

/// No walk of the suite needs more pages; one that does goes in circles.
const PAGES_COUNT_MAX: usize = 1_000;

/// The home shard of `tenant` in `store`.
pub(super) fn shard_of(store: &dyn Store, tenant: &Tenant) -> Shard {
    Shard::of(tenant, store.layout().shards)
}

/// All of `tenant`'s due jobs in `bucket` of its home shard up to `until`, and when its next one there is due.
pub(super) async fn due(
    store: &dyn Store,
    tenant: &Tenant,
    bucket: Bucket,
    until: Timestamp,
    count_max: usize,
) -> (Vec<Job>, Option<Timestamp>) {
    due_in(store, shard_of(store, tenant), tenant, bucket, until, count_max).await
}

/// The same in any shard.
pub(super) async fn due_in(
    store: &dyn Store,
    shard: Shard,
    tenant: &Tenant,
    bucket: Bucket,
    until: Timestamp,
    count_max: usize,
) -> (Vec<Job>, Option<Timestamp>) {
    let mut jobs: Vec<Job> = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_COUNT_MAX {
        let question =
            Due { shard, bucket, tenant: tenant.clone(), after, until, count_max, bytes_max: usize::MAX };
        let page = store.due(question).await.expect("due jobs are read");
        assert!(page.jobs.len() <= count_max, "a page of {} for {count_max}", page.jobs.len());
        jobs.extend(page.jobs.iter().map(|job| Job::clone(job)));
        let Some(resume) = page.resume else {
            let is_here = |job: &Job| Shard::of_job(tenant, job.id, store.layout().shards) == shard;
            assert!(jobs.iter().all(is_here), "a due job is in the shard asked for");
            check_due(&jobs, tenant, bucket, until);
            return (jobs, page.next_at);
        };
        assert_eq!(page.next_at, None, "what is next is told only at the end of the range");
        assert_ne!(after, Some(resume), "the next page starts further on");
        after = Some(resume);
    }
    unreachable!("the pages of {tenant} in {bucket:?} never end");
}

fn check_due(jobs: &[Job], tenant: &Tenant, bucket: Bucket, until: Timestamp) {
    let mut ids = BTreeSet::new();
    let mut last = Timestamp::MIN;
    for job in jobs {
        let at = job.armed_at().expect("a due job waits");
        assert_eq!(job.tenant, *tenant, "a due job belongs to the tenant asked for");
        assert_eq!(Bucket::of(at), bucket, "a due job is in the bucket asked for");
        assert!(at <= until, "a due job is not beyond the instant asked for");
        assert!(last <= at, "due jobs come in order of their time");
        assert!(ids.insert(job.id), "{} is on two pages", job.id);
        last = at;
    }
}

/// All tenants with work in `bucket`.
pub(super) async fn due_tenants(
    store: &dyn Store,
    shard: Shard,
    bucket: Bucket,
    count_max: usize,
) -> Vec<TenantDue> {
    let mut all: Vec<TenantDue> = Vec::new();
    for _ in 0..PAGES_COUNT_MAX {
        let after = all.last().map(|due| due.tenant.clone());
        let page = store.due_tenants(shard, bucket, after, count_max).await.expect("tenants are read");
        assert!(page.len() <= count_max, "a page of {} for {count_max}", page.len());
        if page.is_empty() {
            assert!(
                all.windows(2).all(|pair| pair[0].tenant < pair[1].tenant),
                "tenants come by name, once each"
            );
            return all;
        }
        all.extend(page);
    }
    unreachable!("the tenants of {bucket:?} never end");
}

/// Everything that waits, found as the server finds it: shard by shard, bucket by bucket, tenant by tenant.
pub(super) async fn everything_waiting(store: &dyn Store) -> Vec<Job> {
    let mut jobs = Vec::new();
    for shard in (0..store.layout().shards).map(Shard) {
        let mut from = Bucket(0);
        while let Some(bucket) =
            store.next_bucket(shard, from, Bucket(u32::MAX)).await.expect("buckets are read")
        {
            assert!(bucket >= from, "the next bucket is not an older one");
            let tenants = due_tenants(store, shard, bucket, 2).await;
            assert!(!tenants.is_empty(), "a bucket with work has tenants with work");
            for TenantDue { tenant, first_at } in tenants {
                let (found, next_at) = due_in(store, shard, &tenant, bucket, Timestamp::MAX, 7).await;
                assert_eq!(
                    found.first().and_then(Job::armed_at),
                    Some(first_at),
                    "the first job of {tenant}"
                );
                assert_eq!(next_at, None, "nothing is due after the end of time");
                jobs.extend(found);
            }
            from = bucket.next();
        }
    }
    jobs.sort_by_key(|job| (job.tenant.clone(), job.position()));
    jobs
}

/// All of `tenant`'s jobs that `filter` wants.
pub(super) async fn list(store: &dyn Store, tenant: &Tenant, filter: &Filter, count_max: usize) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_COUNT_MAX {
        let query = ListQuery { tenant: tenant.clone(), filter: filter.clone(), after, count_max };
        let page = store.list(query).await.expect("jobs are listed");
        assert!(page.jobs.len() <= count_max, "a page of {} for {count_max}", page.jobs.len());
        jobs.extend(page.jobs);
        let Some(next) = page.next else {
            assert!(
                jobs.windows(2).all(|pair| pair[0].id > pair[1].id),
                "lists come latest first, once each"
            );
            assert!(
                jobs.iter().all(|job| job.tenant == *tenant && filter.matches(job)),
                "only what is wanted"
            );
            return jobs;
        };
        assert_ne!(after, Some(next), "the next page starts further on");
        after = Some(next);
    }
    unreachable!("the list of {tenant} never ends");
}

/// All of a schedule's ledger, latest first.
pub(super) async fn ledger(store: &dyn Store, schedule: &Schedule, count_max: usize) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut before = None;
    for _ in 0..PAGES_COUNT_MAX {
        let page = store.ledger(&schedule.tenant, schedule.id, before, count_max).await.expect("read");
        assert!(page.entries.len() <= count_max, "a page of {} for {count_max}", page.entries.len());
        entries.extend(page.entries);
        let Some(next) = page.next else {
            assert!(entries.windows(2).all(|pair| pair[0].from >= pair[1].from), "ledgers come latest first");
            return entries;
        };
        assert!(before.is_none_or(|before| next < before), "the next page starts further on");
        before = Some(next);
    }
    unreachable!("the ledger of {} never ends", schedule.id);
}

/// All of a tenant's schedules that the query wants.
pub(super) async fn schedules(store: &dyn Store, mut query: ScheduleQuery) -> Vec<Schedule> {
    let mut schedules: Vec<Schedule> = Vec::new();
    for _ in 0..PAGES_COUNT_MAX {
        let page = store.list_schedules(query.clone()).await.expect("schedules are listed");
        assert!(page.schedules.len() <= query.count_max, "a page of {}", page.schedules.len());
        schedules.extend(page.schedules);
        let Some(next) = page.next else {
            assert!(schedules.windows(2).all(|pair| pair[0].id < pair[1].id), "lists come by id, once each");
            assert!(schedules.iter().all(|schedule| query.matches(schedule)), "only what is wanted");
            return schedules;
        };
        assert!(query.after.is_none_or(|after| next > after), "the next page starts further on");
        query.after = Some(next);
    }
    unreachable!("the list of {} never ends", query.tenant);
}
