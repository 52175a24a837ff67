//! How the nodes of a cluster share out what a tenant may submit. Each says, through the store, how much is asked of it; by
//! that all of them compute the same shares, so that together they keep to the limit and none is kept for a node that
//! nobody asks. What a node itself goes by is what it has said, not what it has seen since: the others know no more.
//!
//! What is said may be lost or late: for that moment the shares are those of the moment before.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidewheel_core::names::Tenant;
use tidewheel_store::News;

use super::{Engine, Shared};

/// How often a node says what is asked of it.
const SAY_MS: i64 = 500;
/// Silence after which nothing is asked of a node any more.
const SILENCE_MS: i64 = 6 * SAY_MS;
/// Tenants a node speaks of, those most asked for first. The others' limits are shared out evenly.
const TENANTS_COUNT_MAX: usize = 1_000;
/// What is remembered of all nodes.
const HEARD_COUNT_MAX: usize = 65_536;
/// The part of an even share that a node has before it has said anything, so that its first callers are not told to wait
/// for ever. Whoever is asked for more has said so by the next time.
const SHARE_MIN: f64 = 0.1;
/// Less than this is nothing.
const PER_S_MIN: f64 = 0.05;
/// Demand rises as it comes, and falls to no less than this part each time.
const FALL: f64 = 0.25;

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Demands {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    own: BTreeMap<Tenant, Own>,
    /// By tenant and node.
    others: BTreeMap<(Tenant, Arc<str>), Heard>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Own {
    /// Since it was last said.
    asked: u32,
    /// What was said, per second.
    said: f64,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    per_s: f64,
    at_ms: i64,
}

impl Demands {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that so many jobs are asked for.
    fn ask(&self, tenant: &Tenant, jobs: usize) {
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        let mut table = self.lock();
        if let Some(own) = table.own.get_mut(tenant) {
            own.asked = own.asked.saturating_add(jobs);
        } else if table.own.len() < HEARD_COUNT_MAX {
            table.own.insert(tenant.clone(), Own { asked: jobs, said: 0.0 });
        }
    }

    /// The part of a rate that is this node's, one of so many.
    fn share(&self, tenant: &Tenant, rate: f64, nodes: usize, now_ms: i64) -> f64 {
        let table = self.lock();
        let own = table.own.get(tenant).map_or(0.0, |own| own.said);
        let from = (tenant.clone(), Arc::from(""));
        let of_tenant = table.others.range(from..).take_while(|((of, _), _)| of == tenant);
        let others = of_tenant.filter(|(_, heard)| heard.at_ms + SILENCE_MS > now_ms);
        let share = share_of(own, others.map(|(_, heard)| heard.per_s), rate, nodes);
        share.max(SHARE_MIN / f64::from(u32::try_from(nodes.max(1)).unwrap_or(u32::MAX)))
    }

    /// What there is to say: what is asked of this node by now, and what no longer is.
    fn say(&self, elapsed_ms: i64) -> Vec<(Tenant, f64)> {
        let elapsed_s = f64::from(u32::try_from(elapsed_ms.max(1)).unwrap_or(u32::MAX)) / 1_000.0;
        let mut table = self.lock();
        let mut news = Vec::new();
        table.own.retain(|tenant, own| {
            let seen = f64::from(std::mem::take(&mut own.asked)) / elapsed_s;
            let (before, now) = (own.said, seen.max(own.said * FALL));
            own.said = if now < PER_S_MIN { 0.0 } else { now };
            if before > 0.0 || own.said > 0.0 {
                news.push((tenant.clone(), own.said));
            }
            own.said > 0.0
        });
        news.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        for (tenant, _) in news.drain(TENANTS_COUNT_MAX.min(news.len())..) {
            // Not said, so nobody may go by it.
            if let Some(own) = table.own.get_mut(&tenant) {
                own.said = 0.0;
            }
        }
        news
    }

    fn hear(&self, node: &Arc<str>, demands: Vec<(Tenant, f64)>, now_ms: i64) {
        let mut table = self.lock();
        if table.others.len() + demands.len() > HEARD_COUNT_MAX {
            table.others.retain(|_, heard| heard.at_ms + SILENCE_MS > now_ms);
        }
        for (tenant, per_s) in demands {
            let key = (tenant, Arc::clone(node));
            if per_s <= 0.0 {
                table.others.remove(&key);
            } else if table.others.len() < HEARD_COUNT_MAX || table.others.contains_key(&key) {
                table.others.insert(key, Heard { per_s, at_ms: now_ms });
            }
        }
    }

    /// Forgets nodes that have fallen silent.
    fn forget(&self, now_ms: i64) {
        self.lock().others.retain(|_, heard| heard.at_ms + SILENCE_MS > now_ms);
    }
}

/// The part of `rate` of a node of which `own` is asked, beside others. Nobody gets more than is asked of it while somebody
/// else would, and what nobody asks for is split evenly among all `nodes`.
fn share_of(own: f64, others: impl Iterator<Item = f64>, rate: f64, nodes: usize) -> f64 {
    let mut asked: Vec<f64> = others.collect();
    asked.push(own);
    let nodes = f64::from(u32::try_from(nodes.max(asked.len())).unwrap_or(u32::MAX));
    asked.sort_by(f64::total_cmp);
    let mut left = rate;
    let mut takers = f64::from(u32::try_from(asked.len()).unwrap_or(u32::MAX));
    let mut mine = 0.0;
    let mut is_mine_found = false;
    for demand in asked {
        let given = demand.min(left / takers);
        if !is_mine_found && demand.total_cmp(&own).is_eq() {
            mine = given;
            is_mine_found = true;
        }
        left -= given;
        takers -= 1.0;
    }
    ((mine + left.max(0.0) / nodes) / rate).clamp(0.0, 1.0)
}

impl Engine {
    /// How many servers there are, this one among them.
    pub(crate) fn nodes_count(&self) -> u64 {
        if self.shared.node.is_none() {
            return 1;
        }
        u64::try_from(self.shared.peers_count.load(Ordering::SeqCst)).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Which part of what a tenant may submit per second this node may let through. Takes note that so many jobs are asked
    /// of it. All of it, where there is no other node.
    #[must_use]
    pub fn submit_share(&self, tenant: &Tenant, per_s: u32, jobs: usize) -> f64 {
        let shared = &self.shared;
        if shared.node.is_none() {
            return 1.0;
        }
        shared.demands.ask(tenant, jobs);
        let others = shared.peers_count.load(Ordering::SeqCst);
        if others == 0 {
            return 1.0;
        }
        let now_ms = shared.clock.monotonic_ms();
        shared.demands.share(tenant, f64::from(per_s.max(1)), others + 1, now_ms)
    }
}

impl Shared {
    /// Another node says what is asked of it.
    pub(super) fn hear_demands(&self, node: &Arc<str>, demands: Vec<(Tenant, f64)>) {
        if self.node.as_ref().is_some_and(|card| card.id != *node) {
            self.demands.hear(node, demands, self.clock.monotonic_ms());
        }
    }
}

/// Says what is asked of this node, again and again, until the engine is gone.
pub(super) async fn run(shared: Weak<Shared>) {
    let mut said_ms = i64::MIN;
    loop {
        let Some(open) = shared.upgrade() else { return };
        let mut stopping = open.stopping.subscribe();
        let pause = open.clock.sleep(Duration::from_millis(SAY_MS.unsigned_abs()));
        drop(open);
        tokio::select! {
            () = pause => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let Some(open) = shared.upgrade() else { return };
        let now_ms = open.clock.monotonic_ms();
        let elapsed_ms = if said_ms == i64::MIN { SAY_MS } else { now_ms.saturating_sub(said_ms) };
        said_ms = now_ms;
        open.demands.forget(now_ms);
        let demands = open.demands.say(elapsed_ms);
        if let Some(card) = open.node.as_ref().filter(|_| !demands.is_empty()) {
            open.pass_on(News::Demands { node: Arc::clone(&card.id), demands });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn shares_follow_what_is_asked_and_add_up_to_all() {
        let shares = |asked: &[f64], nodes| -> Vec<f64> {
            let of = |at: usize| {
                let others = asked.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, asked)| *asked);
                share_of(asked[at], others, 100.0, nodes)
            };
            (0..asked.len()).map(of).collect()
        };
        for (asked, wanted) in [
            ([0.0, 0.0], [0.5, 0.5]),
            ([500.0, 0.0], [1.0, 0.0]),
            ([500.0, 300.0], [0.5, 0.5]),
            ([500.0, 10.0], [0.9, 0.1]),
            ([10.0, 30.0], [0.4, 0.6]),
        ] {
            let got = shares(&asked, 2);
            assert!(got.iter().zip(wanted).all(|(got, wanted)| is_near(*got, wanted)), "{asked:?}: {got:?}");
        }
        for asked in [vec![7.0, 7.0, 90.0], vec![0.0, 50.0, 51.0], vec![1.0; 3]] {
            let sum: f64 = shares(&asked, 3).iter().sum();
            assert!(is_near(sum, 1.0), "{asked:?}: {sum}");
        }
        assert!(is_near(share_of(0.0, std::iter::empty(), 10.0, 4), 0.25), "nothing known yet");
    }

    #[test]
    fn a_node_goes_by_what_it_said_and_forgets_who_is_silent() {
        let (demands, acme) = (Demands::default(), Tenant::new("acme").unwrap());
        let share = |now_ms| demands.share(&acme, 100.0, 2, now_ms);
        demands.ask(&acme, 1_000);
        assert!(is_near(share(0), 0.5), "not said yet");
        assert_eq!(demands.say(500), [(acme.clone(), 2_000.0)]);
        assert!(is_near(share(0), 1.0));
        let idle = Tenant::new("idle").unwrap();
        demands.hear(&Arc::from("other"), vec![(idle.clone(), 900.0)], 0);
        assert!(is_near(demands.share(&idle, 100.0, 2, 0), 0.05), "never nothing");
        demands.hear(&Arc::from("other"), vec![(idle, 0.0)], 0);
        demands.hear(&Arc::from("other"), vec![(acme.clone(), 2_000.0)], 0);
        assert!(is_near(share(1), 0.5));
        assert!(is_near(share(SILENCE_MS), 1.0), "silent for too long");
        demands.hear(&Arc::from("other"), vec![(acme.clone(), 0.0)], SILENCE_MS);
        assert!(demands.lock().others.is_empty());
        assert_eq!(demands.say(500), [(acme.clone(), 2_000.0 * FALL)], "falls by and by");
        (0..30).for_each(|_| drop(demands.say(500)));
        assert!(demands.lock().own.is_empty(), "and is forgotten");
    }

    #[test]
    fn what_is_said_and_remembered_is_bounded() {
        let demands = Demands::default();
        let tenant = |n: usize| Tenant::new(&format!("t{n}")).unwrap();
        for n in 0..2 * TENANTS_COUNT_MAX {
            demands.ask(&tenant(n), n + 1);
        }
        assert_eq!(demands.say(500).len(), TENANTS_COUNT_MAX);
        assert!(is_near(demands.share(&tenant(0), 100.0, 2, 0), 0.5), "not said, not gone by");
        for n in 0..HEARD_COUNT_MAX / 1_000 + 10 {
            let some = (0..1_000).map(|m| (tenant(n * 1_000 + m), 1.0)).collect();
            demands.hear(&Arc::from("other"), some, 0);
        }
        assert!(demands.lock().others.len() <= HEARD_COUNT_MAX);
    }
}
