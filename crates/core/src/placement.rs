//! Which node has which shard, worked out alike by every node from the same list of nodes: the one whose name and the
//! shard's number hash highest together. When a node comes or goes, only its own shards move.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::place::Shard;

/// The node among `nodes` that a shard belongs to; none if there is none. Their order does not matter.
#[must_use]
pub fn owner_of<'n>(shard: Shard, nodes: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let weight = |node: &str| xxh3_64_with_seed(node.as_bytes(), u64::from(shard.0));
    nodes.into_iter().max_by_key(|node| (weight(node), *node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owners<'n>(nodes: &[&'n str]) -> Vec<Option<&'n str>> {
        (0..64).map(|shard| owner_of(Shard(shard), nodes.iter().copied())).collect()
    }

    #[test]
    fn nobody_owns_anything_where_nobody_is() {
        assert_eq!(owner_of(Shard(3), []), None);
    }

    proptest! {
        #[test]
        fn only_the_shards_of_who_comes_or_goes_move(names in prop::collection::btree_set("[a-z0-9]{8}", 2..7)) {
            let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
            let (gone, rest) = nodes.split_first().unwrap();
            for (before, after) in owners(&nodes).into_iter().zip(owners(rest)) {
                prop_assert!(before == after || before == Some(*gone));
            }
            let reversed: Vec<&str> = nodes.iter().rev().copied().collect();
            prop_assert_eq!(owners(&nodes), owners(&reversed));
        }

        #[test]
        fn every_node_gets_a_fair_part(names in prop::collection::btree_set("[a-z0-9]{8}", 3)) {
            let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
            let all: Vec<_> = (0..3_000).map(|shard| owner_of(Shard(shard), nodes.iter().copied())).collect();
            for node in &nodes {
                let count = all.iter().filter(|owner| **owner == Some(*node)).count();
                prop_assert!((800..1_200).contains(&count), "{count} of 3000");
            }
        }
    }
}
