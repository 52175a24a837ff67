//! Pages of several databases as one. Each database has answered for itself, in the order asked for; what is merged ends where
//! the first of them stopped looking, so that the next page goes on from one place in all of them.

use std::collections::BTreeMap;

use tidewheel_core::audit::Record;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{AuditOrder, Counts, Node, Page, PageCursor, SchedulePage};

/// Jobs, latest first.
pub(super) fn jobs(pages: Vec<Page>, count_max: usize) -> Page {
    let looked = pages.iter().map(|page| page.looked).sum();
    // Below it, somebody has not looked yet.
    let end = pages.iter().filter_map(|page| page.next).map(|PageCursor(id)| id).max();
    let mut jobs: Vec<Job> = pages.into_iter().flat_map(|page| page.jobs).collect();
    jobs.retain(|job| end.is_none_or(|end| job.id >= end));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    let is_cut = jobs.len() > count_max;
    jobs.truncate(count_max);
    let next = if is_cut { jobs.last().map(|job| job.id) } else { end };
    Page { jobs, next: next.map(PageCursor), looked }
}

/// Schedules, by id.
pub(super) fn schedules(pages: Vec<SchedulePage>, count_max: usize) -> SchedulePage {
    let end: Option<ScheduleId> = pages.iter().filter_map(|page| page.next).min();
    let mut schedules: Vec<_> = pages.into_iter().flat_map(|page| page.schedules).collect();
    schedules.retain(|schedule| end.is_none_or(|end| schedule.id <= end));
    schedules.sort_by_key(|schedule| schedule.id);
    let is_cut = schedules.len() > count_max;
    schedules.truncate(count_max);
    let next = if is_cut { schedules.last().map(|schedule| schedule.id) } else { end };
    SchedulePage { schedules, next }
}

/// Names in order, each once, so many at most.
pub(super) fn names(lists: Vec<Vec<Tenant>>, count_max: usize) -> Vec<Tenant> {
    let mut names: Vec<Tenant> = lists.into_iter().flatten().collect();
    names.sort();
    names.dedup();
    names.truncate(count_max);
    names
}

/// Counts together.
pub(super) fn counts(all: impl IntoIterator<Item = Counts>) -> Counts {
    all.into_iter().fold(Counts::default(), |mut sum, counts| {
        for (sum, count) in sum.0.iter_mut().zip(counts.0) {
            *sum = sum.saturating_add(count);
        }
        sum
    })
}

/// The tenants with the most jobs waiting.
pub(super) fn busiest(lists: Vec<Vec<(Tenant, Counts)>>, count_max: usize) -> Vec<(Tenant, Counts)> {
    let mut tenants: BTreeMap<Tenant, Counts> = BTreeMap::new();
    for (tenant, some) in lists.into_iter().flatten() {
        let sum = tenants.entry(tenant).or_default();
        *sum = counts([*sum, some]);
    }
    Counts::busiest(tenants.into_iter(), count_max)
}

/// Records of the audit trail, by their places.
pub(super) fn records(lists: Vec<Vec<Record>>, order: AuditOrder, count_max: usize) -> Vec<Record> {
    let mut records: Vec<Record> = lists.into_iter().flatten().collect();
    records.sort_by_key(Record::place);
    if order == AuditOrder::NewestFirst {
        records.reverse();
    }
    records.truncate(count_max);
    records
}

/// Nodes by id, each once: alive if some database heard of it lately, there since it first said so to one of them.
pub(super) fn nodes(lists: Vec<Vec<Node>>) -> Vec<Node> {
    let mut nodes: BTreeMap<_, Node> = BTreeMap::new();
    for node in lists.into_iter().flatten() {
        match nodes.get_mut(&node.card.id) {
            Some(known) => {
                let started_at: Timestamp = known.started_at.min(node.started_at);
                if node.is_alive && !known.is_alive {
                    *known = node;
                }
                known.started_at = started_at;
            }
            None => drop(nodes.insert(node.card.id.clone(), node)),
        }
    }
    nodes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tidewheel_core::job::{Destination, Priority, Spec, State};
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_store::NodeCard;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn job(at_ms: i64) -> Job {
        let spec = Spec {
            kind: "t".into(),
            payload: Bytes::new(),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: Timestamp::MIN,
        };
        Job::new(tenant("a"), spec, Timestamp::from_ms(at_ms), 7)
    }

    /// The page one database gives of its jobs, latest first, that looks at no more than so many.
    fn page(times: &[i64], after: Option<PageCursor>, count_max: usize) -> Page {
        let mut below: Vec<Job> = times.iter().map(|at| job(*at)).collect();
        below.sort_by_key(|job| std::cmp::Reverse(job.id));
        below.retain(|job| after.is_none_or(|PageCursor(id)| job.id < id));
        let is_more = below.len() > count_max;
        below.truncate(count_max);
        let next = below.last().filter(|_| is_more).map(|job| PageCursor(job.id));
        Page { looked: below.len(), jobs: below, next }
    }

    #[test]
    fn a_walk_over_several_databases_meets_every_job_once_and_in_order() {
        let databases: [Vec<i64>; 3] = [
            (0..40).collect(),
            (0..90).filter(|n| n % 7 == 0).map(|n| n + 1_000).collect(),
            vec![5_000, 20_000],
        ];
        for (count_max, looked_max) in [(1, 3), (3, 3), (5, 2), (50, 8), (1_000, 1_000)] {
            let (mut met, mut after) = (Vec::new(), None);
            loop {
                let pages = databases.iter().map(|times| page(times, after, count_max.min(looked_max)));
                let merged = jobs(pages.collect(), count_max);
                assert!(merged.jobs.len() <= count_max);
                met.extend(merged.jobs.iter().map(|job| job.id.run_at().as_ms()));
                after = merged.next;
                if after.is_none() {
                    break;
                }
            }
            let mut all: Vec<i64> = databases.iter().flatten().copied().collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(met, all, "{count_max} {looked_max}");
        }
    }

    #[test]
    fn tenants_in_several_databases_are_named_once_and_counted_together() {
        let lists = vec![vec![tenant("a"), tenant("c")], vec![tenant("b"), tenant("c")]];
        assert_eq!(names(lists, 3), ["a", "b", "c"].map(tenant));
        let some = |waiting: u64| {
            let mut counts = Counts::default();
            counts.0[State::Scheduled.index()] = waiting;
            counts
        };
        let lists = vec![vec![(tenant("a"), some(5)), (tenant("c"), some(3))], vec![(tenant("c"), some(4))]];
        assert_eq!(busiest(lists, 1), [(tenant("c"), some(7))]);
        assert_eq!(counts([some(1), some(2)]), some(3));
    }

    #[test]
    fn a_node_that_one_database_has_heard_of_is_alive() {
        let node = |id: &str, is_alive, at| Node {
            card: NodeCard { id: id.into(), address: Arc::from("x"), version: Arc::from("1") },
            started_at: Timestamp::from_ms(at),
            is_alive,
        };
        let merged = nodes(vec![vec![node("a", false, 5), node("b", true, 9)], vec![node("a", true, 7)]]);
        let seen: Vec<_> =
            merged.iter().map(|node| (&*node.card.id, node.is_alive, node.started_at.as_ms())).collect();
        assert_eq!(seen, [("a", true, 5), ("b", true, 9)]);
    }
}
