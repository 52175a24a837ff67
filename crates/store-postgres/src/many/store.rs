//! What the contract asks for jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Applied, Checkpoint, Counts, Database, Due, DuePage, Error, Health, HeldKey, IdempotencyClaim,
    KeyClaimed, KeyUse, Layout, Leases, ListQuery, OnConflict, Order, Page, Refusal, Schedules, Store,
    Submission, Submitted, TenantDue,
};

use super::part::Part;
use super::route::in_order;
use super::{Spread, merge};
use crate::connections::Lane;
use crate::fault::Trouble;
use crate::store::plain;

/// How often databases are brought to one epoch, if others open epochs meanwhile.
const EPOCH_ROUNDS_COUNT_MAX: usize = 16;

impl Spread {
    /// What would become of a batch. Within one database a conflict is found with the write; where a batch is for several
    /// of them and one is to keep all out, it has to be found before anything is written.
    async fn foresee(&self, now: Timestamp, jobs: &[Submission]) -> Result<Vec<Submitted>, Error> {
        let mut keys: BTreeMap<(&Tenant, &str), HeldKey> = BTreeMap::new();
        let mut taken_in: BTreeSet<(&Tenant, JobId)> = BTreeSet::new();
        let mut foreseen = Vec::with_capacity(jobs.len());
        for Submission { job, key, fresh } in jobs {
            let is_there = taken_in.contains(&(&job.tenant, job.id))
                || (!fresh && self.get(&job.tenant, vec![job.id]).await?.iter().any(Option::is_some));
            let Some(claim) = key.as_ref().filter(|_| !is_there) else {
                taken_in.insert((&job.tenant, job.id));
                foreseen.push(Submitted::New);
                continue;
            };
            let held = match keys.get(&(&job.tenant, &*claim.key)) {
                Some(held) => Some(*held),
                None => self.key_in_use(now, &job.tenant, &claim.key).await?,
            };
            foreseen.push(match held {
                None => {
                    taken_in.insert((&job.tenant, job.id));
                    if now < claim.until {
                        let held = HeldKey { used_for: KeyUse::Job(job.id), fingerprint: claim.fingerprint };
                        keys.insert((&job.tenant, &claim.key), held);
                    }
                    Submitted::New
                }
                Some(HeldKey { used_for: KeyUse::Job(id), fingerprint })
                    if fingerprint == claim.fingerprint =>
                {
                    Submitted::Duplicate(id)
                }
                Some(held) => Submitted::Conflict(held.used_for),
            });
        }
        Ok(foreseen)
    }

    /// What a key was used for; that of a schedule that is gone is free.
    async fn key_in_use(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error> {
        let held = self.find_key(now, tenant, key).await?;
        let Some(HeldKey { used_for: KeyUse::NewSchedule(id), .. }) = held else { return Ok(held) };
        let is_there = self.schedules(tenant, vec![id]).await?.iter().any(Option::is_some);
        Ok(held.filter(|_| is_there))
    }

    fn home_of_submission(&self, submission: &Submission) -> usize {
        self.home_of_job(&submission.job.tenant, submission.job.id)
    }
}

impl Part {
    /// Opens an epoch that is not lower than `floor`.
    async fn open_epoch_above(&self, floor: u64) -> Result<u64, Error> {
        let raise = async |part: &Part| {
            let Some(store) = part.until_reachable().await else { return Err(Error::Closed) };
            let client = store.database.connections.get(Lane::Scheduler).await?;
            let floor = i64::try_from(floor.saturating_sub(1)).unwrap_or(i64::MAX);
            let raised = client
                .query("SELECT setval('epochs', greatest($1, nextval('epochs') - 1, 1))", &[&floor])
                .await;
            raised.map(drop).map_err(|error| plain(Trouble::from(error)))
        };
        if floor > 0 {
            raise(self).await?;
        }
        self.ask(|store| store.open_epoch()).await
    }
}

#[async_trait]
impl Store for Spread {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn layout(&self) -> Layout {
        Layout { shards: self.shards }
    }

    /// No transaction spans two databases.
    fn joins(&self, one: Shard, other: Shard) -> bool {
        self.home_of_shard(one) == self.home_of_shard(other)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn databases(&self) -> Vec<Database> {
        self.all().map(|part| part.view(self.shards)).collect()
    }

    fn leases_in(&self, index: u16) -> Option<&dyn Leases> {
        self.parts.get(usize::from(index)).map(|part| -> &dyn Leases { &**part })
    }

    /// Each database counts its own epochs; one that is opened in all of them is the same everywhere.
    async fn open_epoch(&self) -> Result<u64, Error> {
        let mut floor = 0;
        for _ in 0..EPOCH_ROUNDS_COUNT_MAX {
            let epochs = self.ask_whole(self.all(), |part| part.open_epoch_above(floor)).await?;
            floor = epochs.iter().copied().max().unwrap_or(0);
            if epochs.iter().all(|epoch| *epoch == floor) {
                return Ok(floor);
            }
            floor = floor.saturating_add(1);
        }
        Err(Error::Unavailable("others open epochs at the same time".to_owned()))
    }

    async fn submit(
        &self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        let home = |submission: &Submission| self.home_of_submission(submission);
        let first = jobs.first().map(home);
        let is_for_several = jobs.iter().any(|submission| Some(home(submission)) != first);
        if is_for_several && on_conflict == OnConflict::KeepNone {
            let foreseen = self.foresee(now, &jobs).await?;
            if foreseen.iter().any(|answer| matches!(answer, Submitted::Conflict(_))) {
                return Ok(foreseen);
            }
        }
        self.split_whole(jobs, home, |part, jobs| part.ask(move |store| store.submit(now, jobs, on_conflict)))
            .await
    }

    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        let home = |order: &Order| self.home_of_job(&order.tenant, order.id);
        let asked =
            self.split(orders, home, |part, orders| part.ask(move |store| store.apply(now, epoch, orders)));
        let mut all = asked.await?;
        let is_any_answered = all.iter().any(|(_, answers)| answers.is_ok());
        let passes = |answers: &Result<_, Error>| answers.as_ref().err().is_some_and(Error::is_retryable);
        let decisive =
            all.iter().position(|(_, answers)| answers.is_err() && !(is_any_answered && passes(answers)));
        if let Some(at) = decisive
            && let (_, Err(error)) = all.swap_remove(at)
        {
            return Err(error);
        }
        in_order(all, || Ok(Err(Refusal::Away)))
    }

    async fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Result<Option<Bucket>, Error> {
        let part = self.part(self.home_of_shard(shard))?;
        part.ask(|store| store.next_bucket(shard, from, until)).await
    }

    async fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error> {
        let part = self.part(self.home_of_shard(shard))?;
        part.ask(|store| store.due_tenants(shard, bucket, after, count_max)).await
    }

    async fn due(&self, due: Due) -> Result<DuePage, Error> {
        let part = self.part(self.home_of_shard(due.shard))?;
        part.ask(|store| store.due(due)).await
    }

    async fn running(&self) -> Result<Vec<Job>, Error> {
        let all = self.ask_whole(self.all(), |part| part.ask(|store| store.running())).await?;
        Ok(all.into_iter().flatten().collect())
    }

    async fn running_in(&self, shards: &[Shard]) -> Result<Vec<Job>, Error> {
        let is_asked =
            |part: &&Part| shards.iter().any(|shard| self.home_of_shard(*shard) == usize::from(part.index));
        let parts: Vec<&Part> = self.all().filter(is_asked).collect();
        let all = self.ask_whole(parts, |part| part.ask(|store| store.running())).await?;
        Ok(all.into_iter().flatten().collect())
    }

    async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Error> {
        let home = |id: &JobId| self.home_of_job(tenant, *id);
        self.split_whole(ids, home, |part, ids| part.ask(move |store| store.get(tenant, ids))).await
    }

    async fn get_each(&self, now: Timestamp, jobs: Vec<(Tenant, JobId)>) -> Result<Vec<Option<Job>>, Error> {
        let home = |(tenant, id): &(Tenant, JobId)| self.home_of_job(tenant, *id);
        self.split_whole(jobs, home, |part, jobs| part.ask(move |store| store.get_each(now, jobs))).await
    }

    async fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error> {
        let homes = self.homes(tenant);
        let found = self.ask_whole(homes, |part| part.ask(move |store| store.find_key(now, tenant, key)));
        Ok(found.await?.into_iter().flatten().next())
    }

    async fn claim_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        self.part(self.home(tenant))?.ask(|store| store.claim_key(now, tenant, claim)).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, Error> {
        let query = &query;
        let homes = self.homes(&query.tenant);
        let pages = self.ask_whole(homes, |part| part.ask(move |store| store.list(query.clone()))).await?;
        Ok(merge::jobs(pages, query.count_max))
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let counts = match tenant {
            Some(tenant) => {
                let homes = self.homes(tenant);
                self.ask_whole(homes, |part| part.ask(move |store| store.counts(Some(tenant)))).await?
            }
            None => self.ask_whole(self.all(), Part::counts).await?,
        };
        Ok(merge::counts(counts))
    }

    async fn busiest(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Error> {
        let lists = self.ask_those_there(|part| part.ask(move |store| store.busiest(count_max))).await?;
        Ok(merge::busiest(lists, count_max))
    }

    async fn save_checkpoints(&self, checkpoints: Vec<Checkpoint>) -> Result<(), Error> {
        let home = |checkpoint: &Checkpoint| self.home_of_shard(checkpoint.shard);
        let saved = self.split(checkpoints, home, |part, some| async move {
            part.ask(move |store| store.save_checkpoints(some)).await.map(|()| Vec::<()>::new())
        });
        let saved = saved.await?;
        // Losing some costs time, not jobs.
        let failed = saved.into_iter().filter_map(|(_, saved)| saved.err());
        failed.filter(|error| !error.is_retryable()).map(Err).next().unwrap_or(Ok(()))
    }

    async fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        let all = self.ask_whole(self.all(), |part| part.ask(|store| store.checkpoints())).await?;
        let mut all: Vec<Checkpoint> = all.into_iter().flatten().collect();
        all.sort_by_key(|checkpoint| checkpoint.shard);
        Ok(all)
    }

    async fn drop_history(&self, now: Timestamp, before: Timestamp) -> Result<u64, Error> {
        let dropped =
            self.ask_whole(self.all(), |part| part.ask(move |store| store.drop_history(now, before)));
        Ok(dropped.await?.into_iter().sum())
    }

    /// It takes writes as long as one of its databases does: those of others are refused by themselves.
    fn health(&self) -> Health {
        let databases = self.databases();
        if databases.iter().any(Database::is_up) {
            return Health::Ready;
        }
        let reasons: Vec<&str> = databases.iter().filter_map(Database::trouble).collect();
        let reasons = reasons.join("; ");
        let all_are = |is_so: fn(&Health) -> bool| databases.iter().all(|database| is_so(&database.health));
        if all_are(|health| matches!(health, Health::Full(_))) {
            Health::Full(reasons)
        } else if all_are(|health| matches!(health, Health::ReadOnly(_))) {
            Health::ReadOnly(reasons)
        } else {
            Health::Away(reasons)
        }
    }

    async fn close(&self) -> Result<(), Error> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.watches.iter().for_each(tokio::task::JoinHandle::abort);
        self.ask_whole(self.all(), Part::close).await.map(drop)
    }
}
