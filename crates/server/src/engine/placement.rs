//! Who should have which shard: rendezvous hashing, so that a node that comes or goes moves only what it must, with an
//! even share for each. Every node computes the same from the same list of nodes.

use std::sync::Arc;

use tidewheel_core::place::Shard;

/// Those of `shards` that are one node's among `nodes`, which are alive. In the same order.
pub(super) fn shards_of(node: &str, nodes: &[Arc<str>], shards: &[Shard]) -> Vec<Shard> {
    let mut nodes: Vec<&Arc<str>> = nodes.iter().collect();
    nodes.sort();
    nodes.dedup();
    if nodes.is_empty() {
        return Vec::new();
    }
    let share = shards.len().div_ceil(nodes.len());
    let mut counts = vec![0_usize; nodes.len()];
    let mut mine = Vec::new();
    for shard in shards {
        let mut ranked: Vec<(u64, usize)> =
            nodes.iter().enumerate().map(|(at, node)| (rank(node, shard.0), at)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        // The favourite, unless it has its share already: then the next.
        let is_free = |at: &usize| counts.get(*at).is_some_and(|count| *count < share);
        let Some(at) = ranked.iter().map(|(_, at)| *at).find(is_free) else { continue };
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
        if nodes.get(at).is_some_and(|chosen| ***chosen == *node) {
            mine.push(*shard);
        }
    }
    mine
}

/// How much a node is a shard's favourite. Stable: nodes of different versions must agree.
fn rank(node: &str, shard: u16) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(node.as_bytes(), u64::from(shard))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn names(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|n| Arc::from(format!("node-{n}"))).collect()
    }

    fn owners(nodes: &[Arc<str>], shards: u16) -> BTreeMap<Shard, Arc<str>> {
        let every: Vec<Shard> = (0..shards).map(Shard).collect();
        let of = |node: &Arc<str>| {
            let node = Arc::clone(node);
            shards_of(&node, nodes, &every).into_iter().map(move |shard| (shard, Arc::clone(&node)))
        };
        let all: Vec<_> = nodes.iter().flat_map(of).collect();
        assert_eq!(all.len(), usize::from(shards), "each shard has one owner");
        all.into_iter().collect()
    }

    #[test]
    fn every_shard_has_one_owner_and_shares_are_even() {
        for count in 1..=9 {
            let nodes = names(count);
            let owners = owners(&nodes, 64);
            assert_eq!(owners.len(), 64);
            let share = 64_usize.div_ceil(count);
            for node in &nodes {
                assert!(owners.values().filter(|owner| *owner == node).count() <= share);
            }
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let nodes = names(5);
        let reversed: Vec<_> = nodes.iter().rev().cloned().collect();
        assert_eq!(owners(&nodes, 64), owners(&reversed, 64));
    }

    #[test]
    fn a_node_that_leaves_moves_little_besides_its_own() {
        let before = owners(&names(4), 64);
        let after = owners(&names(3), 64);
        let gone: Arc<str> = Arc::from("node-3");
        let moved = before.iter().filter(|(shard, owner)| **owner != gone && after[shard] != **owner).count();
        assert!(moved <= 16, "{moved} shards moved that need not have");
    }

    #[test]
    fn nobody_has_nothing() {
        let every: Vec<Shard> = (0..64).map(Shard).collect();
        assert!(shards_of("a", &[], &every).is_empty());
        assert!(shards_of("b", &names(3), &every).is_empty());
    }

    #[test]
    fn the_shards_of_one_database_are_shared_out_among_themselves() {
        let odd: Vec<Shard> = (0..32).map(|n| Shard(2 * n + 1)).collect();
        let nodes = names(2);
        let shares = nodes.iter().map(|node| shards_of(node, &nodes, &odd));
        let mut all: Vec<Shard> = shares.inspect(|share| assert_eq!(share.len(), 16)).flatten().collect();
        all.sort();
        assert_eq!(all, odd);
    }
}
