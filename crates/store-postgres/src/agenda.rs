//! The agenda: in which buckets tenants have jobs that wait for their first time, and from which id on. A batch that puts
//! such jobs in adds the places it puts them into, then asks which of them count as through already, or soon will
//! ([`crate::settle`]): jobs that come in below that are late, and get a timer.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;
use tokio_postgres::Row;

use crate::batch::{Batch, table};
use crate::changes::JobWrites;
use crate::fault::Trouble;
use crate::load::{bucket_column, ordinal};
use crate::read::due::first_of;
use crate::sql;
use crate::uid::Uid;

table!(Places { shard: i16, bucket: i32, tenant: String, from_id: Uid, to_id: Uid });
table!(Firsts { shard: i16, bucket: i32, tenant: String, first_id: Uid });

/// Jobs that wait for their first time, by place. Sorted, so that two batches never wait for each other.
#[derive(Default)]
pub(crate) struct Agenda(BTreeMap<(i16, Bucket, Tenant), Vec<Arc<Job>>>);

impl Agenda {
    pub(crate) fn add(&mut self, shard: i16, job: &Arc<Job>) {
        let place = (shard, Bucket::of(job.id.run_at()), job.tenant.clone());
        self.0.entry(place).or_default().push(Arc::clone(job));
    }

    /// Adds what puts the places in; returns the question which of them have late jobs.
    pub(crate) fn batches(&self, batches: &mut Vec<Batch>) -> Option<Batch> {
        let (mut places, mut firsts) = (Places::default(), Firsts::default());
        for ((shard, bucket, tenant), jobs) in &self.0 {
            let Some(first) = jobs.iter().map(|job| job.id).min() else { continue };
            let (column, tenant) = (bucket_column(*bucket), tenant.as_str().to_owned());
            places.shard.push(*shard);
            places.bucket.push(column);
            places.tenant.push(tenant.clone());
            places.from_id.push(first_of(*bucket));
            places.to_id.push(first_of(bucket.next()));
            firsts.shard.push(*shard);
            firsts.bucket.push(column);
            firsts.tenant.push(tenant);
            firsts.first_id.push(first.into());
        }
        places.batch(sql::INSERT_AGENDA, false, batches);
        let mut question = Vec::new();
        firsts.batch(sql::LATE_AGENDA, false, &mut question);
        question.pop()
    }

    /// Gives a timer to what the answer says came in late.
    pub(crate) fn late(
        &self,
        answer: &[Row],
        now: Timestamp,
        batches: &mut Vec<Batch>,
    ) -> Result<(), Trouble> {
        let mut late = Vec::new();
        let places: Vec<_> = self.0.iter().collect();
        for row in answer {
            let Some(((shard, ..), jobs)) = places.get(ordinal(row)?) else { continue };
            let begun: Option<Uid> = row.try_get("begun")?;
            let below = |job: &&Arc<Job>| begun.is_none_or(|begun| Uid::from(job.id) < begun);
            late.extend(jobs.iter().filter(below).map(|job| (Arc::clone(job), *shard)));
        }
        JobWrites::of_late(now, late.into_iter()).batches(batches);
        Ok(())
    }
}
