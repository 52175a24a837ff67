//! Several nodes on one store: who has which shard, and what that allows. Only for stores that have
//! [`tidewheel_store::Leases`]; a lease of no time at all is one that is over.

use std::sync::Arc;

use tidewheel_core::job::{Command, Job};
use tidewheel_core::place::Shard;

use super::Home;
use super::trial::{LEASE_MS, Trial, order, succeeding, tenant};
use tidewheel_store::{Applied, Held, Leases, News, NodeCard, Refusal};

/// Longer than any case takes.
const TTL_MS: i64 = 600_000;

/// News that a store may refuse before it is taken to refuse all.
const TELLS_COUNT_MAX: usize = 100;

fn leases<'t>(trial: &'t Trial<'_>) -> &'t dyn Leases {
    trial.store.leases().expect("the store has leases")
}

async fn hold(trial: &Trial<'_>, node: &str, shards: &[Shard], ttl_ms: i64) -> Vec<Held> {
    leases(trial).hold(trial.now, node, shards.to_vec(), ttl_ms).await.expect("answered")
}

fn shards_of(held: &[Held]) -> Vec<Shard> {
    held.iter().map(|held| held.shard).collect()
}

fn claiming(epoch: u64) -> Command {
    Command::Claim { epoch, worker: Arc::from("w"), lease_ms: LEASE_MS, detached: false }
}

/// A claim outside the ownership of all shards.
async fn claim_under(trial: &Trial<'_>, job: &Job, epoch: u64) -> Result<Applied, Refusal> {
    trial.store.apply(trial.now, None, vec![order(job, claiming(epoch))]).await.expect("answered").remove(0)
}

/// Others get what is left, and who has a shard keeps its epoch.
pub async fn a_shard_is_held_by_one_node(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let [first, second, third] = [0, 1, 2].map(Shard);
    let held = hold(&trial, "a", &[first, second], TTL_MS).await;
    assert_eq!(shards_of(&held), [first, second]);
    assert!(held.iter().all(|held| held.epoch > trial.epoch), "{held:?}");
    assert_eq!(shards_of(&hold(&trial, "b", &[first, second, third], TTL_MS).await), [third]);
    assert_eq!(hold(&trial, "a", &[first, second, third], TTL_MS).await, held, "extended, not taken anew");
    let renewed = leases(&trial).renew(trial.now, "a", held.clone(), TTL_MS).await.expect("answered");
    assert_eq!(renewed, held);
    let renewed = leases(&trial).renew(trial.now, "b", held.clone(), TTL_MS).await.expect("answered");
    assert_eq!(renewed, [], "what another has is not extended");
    let all = leases(&trial).shard_leases(trial.now).await.expect("listed");
    let owners: Vec<_> = all.iter().map(|lease| (lease.held.shard, lease.node.as_deref())).collect();
    assert_eq!(owners, [(first, Some("a")), (second, Some("a")), (third, Some("b"))]);
    assert!(all.iter().all(|lease| !lease.is_over));
}

/// Whoever was too slow has lost it, and the next one has a higher epoch.
pub async fn a_lease_that_is_over_is_free(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let shard = Shard(3);
    let old = hold(&trial, "a", &[shard], 0).await;
    assert!(leases(&trial).shard_leases(trial.now).await.expect("listed")[0].is_over);
    let late = leases(&trial).renew(trial.now, "a", old.clone(), TTL_MS).await.expect("answered");
    assert_eq!(late, [], "what is over cannot be extended");
    let again = hold(&trial, "a", &[shard], 0).await;
    assert!(again[0].epoch > old[0].epoch, "taken anew, by whomever");
    let new = hold(&trial, "b", &[shard], TTL_MS).await;
    assert!(new[0].epoch > again[0].epoch);
    assert_eq!(hold(&trial, "a", &[shard], TTL_MS).await, []);
}

/// Only the epoch of the lease can claim; a shard that was handed back is nobody's until it is taken.
pub async fn claims_go_by_the_lease(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let shard = trial.shard(&acme);
    let (first, second) = (trial.add(&acme, 0).await, trial.add(&acme, 0).await);
    let old = hold(&trial, "a", &[shard], TTL_MS).await;
    assert_eq!(claim_under(&trial, &first, old[0].epoch - 1).await.err(), Some(Refusal::Fenced));
    let running = claim_under(&trial, &first, old[0].epoch).await.expect("granted");
    leases(&trial).release(trial.now, "b", old.clone()).await.expect("answered");
    assert_eq!(hold(&trial, "b", &[shard], TTL_MS).await, [], "only the holder hands it back");
    leases(&trial).release(trial.now, "a", old.clone()).await.expect("answered");
    assert_eq!(claim_under(&trial, &second, old[0].epoch).await.err(), Some(Refusal::Fenced));
    let new = hold(&trial, "b", &[shard], TTL_MS).await;
    assert!(new[0].epoch > old[0].epoch);
    assert_eq!(claim_under(&trial, &second, old[0].epoch).await.err(), Some(Refusal::Fenced));
    trial.holds(&second).await;
    claim_under(&trial, &second, new[0].epoch).await.expect("granted");
    let done = order(&running.job, succeeding(&running.job));
    let done = trial.store.apply(trial.now, None, vec![done]).await.expect("answered").remove(0);
    assert!(done.is_ok_and(|done| done.changed), "an outcome goes by its token");
}

/// A holder whose time is over cannot claim, even while nobody else has the shard.
pub async fn a_lease_that_is_over_claims_nothing(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let [job, other] = [trial.add(&acme, 0).await, trial.add(&globex, 0).await];
    let held = hold(&trial, "a", &[trial.shard(&acme)], 0).await;
    let batch = [&job, &other].map(|job| order(job, claiming(held[0].epoch))).to_vec();
    let answers = trial.store.apply(trial.now, None, batch).await.expect("answered");
    assert_eq!(answers[0].as_ref().err(), Some(&Refusal::Fenced));
    assert_ne!(trial.shard(&acme), trial.shard(&globex), "the case needs two shards");
    assert!(answers[1].is_ok(), "the others of the batch are judged by themselves");
}

/// Of a tenant that is spread, each job is claimed by whoever has the lease of the shard that job is in.
pub async fn claims_go_by_the_lease_of_the_jobs_own_shard(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = trial.spread_jobs(&acme, 4, 4, 0);
    trial.take_in(&jobs).await;
    let shards: Vec<_> = jobs.iter().map(|job| trial.shard_of(job)).collect();
    let home_shard = hold(&trial, "a", &shards[..1], TTL_MS).await;
    let others = hold(&trial, "b", &shards[1..], TTL_MS).await;
    let epoch_of = |job: &Job| {
        let held = others.iter().chain(&home_shard).find(|held| held.shard == trial.shard_of(job));
        held.expect("all are held").epoch
    };
    for job in &jobs[1..] {
        let refused = claim_under(&trial, job, home_shard[0].epoch).await;
        assert_eq!(refused.err(), Some(Refusal::Fenced), "whoever has the tenant's home has not this");
    }
    for job in &jobs {
        claim_under(&trial, job, epoch_of(job)).await.expect("granted");
    }
}

/// One process that takes everything for itself, and nodes that share it out again.
pub async fn opening_an_epoch_takes_all_shards(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let shard = trial.shard(&acme);
    let jobs = [trial.add(&acme, 0).await, trial.add(&acme, 0).await, trial.add(&acme, 0).await];
    let held = hold(&trial, "a", &[shard], TTL_MS).await;
    let epoch = trial.store.open_epoch().await.expect("opened");
    assert!(epoch > held[0].epoch);
    assert_eq!(claim_under(&trial, &jobs[0], held[0].epoch).await.err(), Some(Refusal::Fenced));
    let lost = leases(&trial).renew(trial.now, "a", held, TTL_MS).await.expect("answered");
    assert_eq!(lost, []);
    claim_under(&trial, &jobs[0], epoch).await.expect("granted");
    let held = hold(&trial, "b", &[shard], TTL_MS).await;
    assert!(held[0].epoch > epoch);
    assert_eq!(claim_under(&trial, &jobs[1], epoch).await.err(), Some(Refusal::Fenced));
    claim_under(&trial, &jobs[1], held[0].epoch).await.expect("granted");
}

/// Who is there, who is silent, and what a node leaves behind: nothing.
pub async fn nodes_come_and_go(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let card = |id: &str, address: &str| NodeCard {
        id: Arc::from(id),
        address: Arc::from(address),
        version: Arc::from("1"),
    };
    let announce = async |card: &NodeCard, ttl_ms| {
        leases(&trial).announce(trial.now, card, ttl_ms).await.expect("answered");
    };
    announce(&card("a", "10.0.0.1:1"), TTL_MS).await;
    announce(&card("b", "10.0.0.2:1"), 0).await;
    let nodes = leases(&trial).nodes(trial.now).await.expect("listed");
    let seen: Vec<_> = nodes.iter().map(|node| (&*node.card.id, node.is_alive)).collect();
    assert_eq!(seen, [("a", true), ("b", false)]);
    announce(&card("b", "10.0.0.3:1"), TTL_MS).await;
    let again = leases(&trial).nodes(trial.now).await.expect("listed");
    assert_eq!((&*again[1].card.address, again[1].is_alive), ("10.0.0.3:1", true));
    assert_eq!(again[1].started_at, nodes[1].started_at);
    hold(&trial, "a", &[Shard(0)], TTL_MS).await;
    leases(&trial).leave(trial.now, "a").await.expect("answered");
    assert_eq!(leases(&trial).nodes(trial.now).await.expect("listed").len(), 1);
    assert_eq!(shards_of(&hold(&trial, "b", &[Shard(0)], TTL_MS).await), [Shard(0)]);
}

/// Work that one node does for all.
pub async fn a_named_lease_is_held_by_one_node(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let named = async |node: &str, ttl_ms| {
        leases(&trial).hold_named(trial.now, node, "upkeep", ttl_ms).await.expect("answered")
    };
    let first = named("a", TTL_MS).await.expect("free");
    assert_eq!(named("b", TTL_MS).await, None);
    assert_eq!(named("a", 0).await, Some(first), "extended, to no time at all");
    let second = named("b", TTL_MS).await.expect("over");
    assert!(second > first);
    leases(&trial).leave(trial.now, "b").await.expect("answered");
    assert!(named("a", TTL_MS).await.is_some_and(|third| third > second));
}

/// What one node tells, all hear, itself included; and whoever begins to listen is told that it may have missed something.
/// A store of several databases tells some news through each of them, so they are heard again, and in any order.
pub async fn news_are_heard(home: &dyn Home) {
    let trial = Trial::start(home).await;
    assert_eq!(leases(&trial).hear().await, [], "what was said before");
    let news = vec![
        News::Due { tenant: tenant("acme"), shard: Shard(0), at: trial.now },
        News::Demands { node: Arc::from("a"), demands: vec![(tenant("globex"), 1.5)] },
    ];
    let (mut heard, mut untold_count) = (Vec::new(), 0);
    while !news.iter().all(|told| heard.contains(told)) {
        // Again: of several databases one may have been too slow, or not been listened to yet. Something is heard each time:
        // the news, or that some were missed.
        match leases(&trial).tell(news.clone()).await {
            Ok(()) => heard.extend(leases(&trial).hear().await),
            Err(error) => {
                untold_count += 1;
                assert!(untold_count < TELLS_COUNT_MAX, "{error}");
            }
        }
    }
    assert!(heard.iter().all(|heard| news.contains(heard)), "{heard:?}");
}
