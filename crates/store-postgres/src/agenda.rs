//! The agenda: in which buckets tenants have jobs that wait for their first time, and from which id on. A batch that puts
//! such jobs in adds the places it puts them into, then gives a timer to those that lie below what
//! counts as through already, or soon will ([`crate::settle`]): they are late.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::job::{Job, Status};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;

use crate::batch::{Batch, Column, table};
use crate::load::bucket_column;
use crate::read::due::first_of;
use crate::record::status;
use crate::sql;
use crate::uid::Uid;

table!(PlaceRows { shard: i16, bucket: i32, tenant: String, from_id: Uid, to_id: Uid });

/// What a batch takes the places of its jobs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// They are there, and nothing of it is late.
    Known,
    /// They may be new, or through.
    Any,
}

/// Jobs, each with the number of its place.
#[derive(Default)]
struct Jobs {
    place: Vec<i32>,
    id: Vec<Uid>,
    run_at: Vec<i64>,
    size: Vec<i32>,
}

/// Jobs that wait for their first time, by place. Sorted, so that two batches never wait for each other.
#[derive(Default)]
pub(crate) struct Agenda(BTreeMap<(i16, Bucket, Tenant), Vec<Arc<Job>>>);

impl Agenda {
    pub(crate) fn add(&mut self, shard: i16, job: &Arc<Job>) {
        let place = (shard, Bucket::of(job.id.run_at()), job.tenant.clone());
        self.0.entry(place).or_default().push(Arc::clone(job));
    }

    /// Adds what puts the places in, and what gives late jobs a timer; or only what holds all
    /// places to be there and no job to be late, ahead of everything else: most are, and that costs
    /// the least.
    pub(crate) fn batches(&self, now: Timestamp, are_new: Places, batches: &mut Vec<Batch>) {
        let (mut places, mut firsts, mut jobs) = (PlaceRows::default(), Vec::new(), Jobs::default());
        for ((shard, bucket, tenant), waiting) in &self.0 {
            let Some(first) = waiting.iter().map(|job| job.id).min() else { continue };
            places.shard.push(*shard);
            places.bucket.push(bucket_column(*bucket));
            places.tenant.push(tenant.as_str().to_owned());
            places.from_id.push(first_of(*bucket));
            places.to_id.push(first_of(bucket.next()));
            firsts.push(Uid::from(first));
            for job in waiting.iter().filter(|_| are_new == Places::Any) {
                jobs.place.push(i32::try_from(firsts.len()).unwrap_or(i32::MAX));
                jobs.id.push(job.id.into());
                jobs.run_at.push(job.id.run_at().as_ms());
                jobs.size.push(i32::try_from(job.size_bytes()).unwrap_or(i32::MAX));
            }
        }
        if firsts.is_empty() {
            return;
        }
        if are_new == Places::Known {
            let columns: Vec<Column> = vec![
                Box::new(places.shard),
                Box::new(places.bucket),
                Box::new(places.tenant),
                Box::new(firsts),
            ];
            batches.insert(0, Batch { sql: sql::KNOWS_AGENDA, columns, expected: None });
            return;
        }
        // How a job stands that waits for its first time, which is the same for all: instants count
        // from that.
        let base = Timestamp::from_ms(0);
        let standing = status::encode(&Status::scheduled(base), base);
        let late: Vec<Column> = vec![
            Box::new(places.shard.clone()),
            Box::new(places.bucket.clone()),
            Box::new(places.tenant.clone()),
            Box::new(firsts),
            Box::new(jobs.place),
            Box::new(jobs.id),
            Box::new(jobs.run_at),
            Box::new(jobs.size),
            Box::new(now.as_ms()),
            Box::new(standing),
        ];
        places.batch(sql::INSERT_AGENDA, false, batches);
        batches.push(Batch { sql: sql::INSERT_LATE, columns: late, expected: None });
    }
}
