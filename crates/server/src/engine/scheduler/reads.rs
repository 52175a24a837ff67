//! Which reads of the store to start: for lots with room again, and for cursors that have come near.

use std::sync::Arc;

use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::Due;

use super::{Message, Scheduler};
use crate::engine::ready::Refill;
use crate::engine::scan::{Part, Read, TenantShard};

/// Bytes of one page of due jobs.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Something to read.
enum ToRead {
    Lot(Refill),
    Stretch(Read),
}

impl Scheduler {
    pub(super) fn start_reads(&mut self, now: Timestamp, monotonic_ms: i64) {
        while self.reads < self.config.reads_max {
            match self.next_to_read(now, monotonic_ms) {
                Some(ToRead::Lot(refill)) => self.read_for_lot(refill, now),
                Some(ToRead::Stretch(read)) => self.read_stretch(read, monotonic_ms),
                None => break,
            }
        }
    }

    /// What to read next. Lots and cursors take turns: lots that drain fast would otherwise keep what has just fallen due
    /// from being read.
    fn next_to_read(&mut self, now: Timestamp, monotonic_ms: i64) -> Option<ToRead> {
        let horizon = self.horizon(now);
        let governor = &mut self.governor;
        let mut may_make_up = |tenant: &Tenant| governor.allowance(tenant, monotonic_ms) > 0;
        self.lots_first = !self.lots_first;
        if self.lots_first
            && let Some(refill) = self.ready.next_refill(&mut may_make_up)
        {
            return Some(ToRead::Lot(refill));
        }
        if let Some(read) = self.scan.next_read(now, horizon, &mut may_make_up) {
            return Some(ToRead::Stretch(read));
        }
        self.ready.next_refill(&mut may_make_up).map(ToRead::Lot)
    }

    fn read_stretch(&mut self, read: Read, monotonic_ms: i64) {
        let TenantShard { tenant, shard } = &read.stretch.of;
        let quantum = self.ready.worth_reading(tenant, read.had_no_room, read.crowded);
        let count_max = match read.stretch.part {
            Part::Missed if read.until < self.missed_before => {
                quantum.min(self.governor.allowance(tenant, monotonic_ms).max(1))
            }
            // Among live jobs, what is made up for may be far between.
            Part::Missed | Part::Live => quantum,
        };
        let due = due_of(tenant, *shard, read.stretch.bucket, count_max);
        let due = Due { after: read.after, until: read.until, ..due };
        self.reads += 1;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let page = shared.store.due(due).await;
            shared.tell(Message::Read { read, page });
        });
    }

    fn read_for_lot(&mut self, refill: Refill, now: Timestamp) {
        let key = &refill.lot.key;
        let count_max = self.ready.worth_reading(&key.tenant, false, None);
        let due = due_of(&key.tenant, key.shard, refill.bucket, count_max);
        let due = Due { after: Some(refill.after), until: now, ..due };
        self.reads += 1;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let page = shared.store.due(due).await;
            shared.tell(Message::Refilled { refill, page });
        });
    }
}

/// All of a tenant's jobs of a shard in a bucket.
fn due_of(tenant: &Tenant, shard: Shard, bucket: Bucket, count_max: usize) -> Due {
    Due {
        shard,
        bucket,
        tenant: tenant.clone(),
        after: None,
        until: Timestamp::MAX,
        count_max,
        bytes_max: PAGE_BYTES_MAX,
    }
}
