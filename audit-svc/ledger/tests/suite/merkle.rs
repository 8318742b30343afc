//! Roots and proofs beside the recursive definitions of RFC 6962, and beside its published vectors.

use std::collections::BTreeMap;

use ledger::{
    Frontier, Hash, Node, Plan, TILE, Tiles, consistency, inclusion, leaf_hash, node_hash, subtree,
    verify_consistency, verify_inclusion,
};
use proptest::prelude::*;

/// MTH of RFC 6962 section 2.1, word for word.
fn root_of(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Frontier::default().root(),
        [one] => *one,
        many => {
            let split = many.len().next_power_of_two() / 2;
            node_hash(&root_of(&many[..split]), &root_of(&many[split..]))
        }
    }
}

fn leaves(count: usize) -> Vec<Hash> {
    (0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect()
}

fn frontier(leaves: &[Hash]) -> Frontier {
    let mut frontier = Frontier::default();
    leaves.iter().for_each(|leaf| frontier.append(*leaf));
    frontier
}

/// Every complete subtree, as a store would hold it.
fn nodes(leaves: &[Hash]) -> BTreeMap<Node, Hash> {
    let mut nodes = BTreeMap::new();
    let mut hashes = leaves.to_vec();
    for level in 0.. {
        if hashes.is_empty() {
            break;
        }
        nodes.extend((0..).zip(&hashes).map(|(index, hash)| (Node { level, index }, *hash)));
        hashes = hashes.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
    }
    nodes
}

fn made(plan: Option<Plan>, nodes: &BTreeMap<Node, Hash>) -> Vec<Hash> {
    plan.unwrap().assemble(nodes).unwrap()
}

#[test]
fn roots_are_those_of_the_published_vectors() {
    let inputs = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let mut frontier = Frontier::default();
    assert_eq!(hex::encode(frontier.root().as_bytes()), roots[0]);
    for (input, root) in inputs.iter().zip(&roots[1..]) {
        frontier.append(leaf_hash(&hex::decode(input).unwrap()));
        assert_eq!(hex::encode(frontier.root().as_bytes()), *root);
    }
}

#[test]
fn every_root_and_every_proof_up_to_130_leaves_is_that_of_the_definition() {
    let all = leaves(130);
    let nodes = nodes(&all);
    let roots: Vec<Hash> = (0..=all.len()).map(|size| root_of(&all[..size])).collect();
    for size in 0..=all.len() {
        let (count, root) = (size as u64, roots[size]);
        assert_eq!(frontier(&all[..size]).root(), root);
        for index in 0..count {
            let path = made(inclusion(index, count), &nodes);
            assert!(
                verify_inclusion(&all[index as usize], index, count, &path, &root),
                "{index} of {count}"
            );
        }
        for old in 1..=count {
            let path = made(consistency(old, count), &nodes);
            let old_root = &roots[old as usize];
            assert!(verify_consistency(old, old_root, count, &root, &path), "{old} of {count}");
        }
        assert_eq!(
            (inclusion(count, count), consistency(0, count), consistency(count + 1, count)),
            (None, None, None)
        );
    }
}

#[test]
fn a_frontier_reads_back_and_a_cut_one_does_not() {
    let before = frontier(&leaves(11));
    let bytes = before.to_bytes();
    assert_eq!(Frontier::from_bytes(11, &bytes), Ok(before));
    assert!(Frontier::from_bytes(11, &bytes[1..]).is_err());
    assert!(Frontier::from_bytes(12, &bytes).is_err());
}

#[test]
fn tiles_hold_the_hashes_that_nodes_are_made_of() {
    let all = leaves(TILE * TILE + 2 * TILE + 5);
    let mut tiles = Tiles::default();
    let done: BTreeMap<(u32, u64), Vec<Hash>> = all
        .iter()
        .flat_map(|leaf| tiles.push(*leaf))
        .map(|tile| ((tile.level, tile.index), tile.hashes))
        .collect();
    assert_eq!(done.len(), TILE + 2 + 1);
    for (node, hash) in nodes(&all) {
        let (level, index, range) = node.tile();
        if let Some(hashes) = done.get(&(level, index)) {
            assert_eq!(subtree(&hashes[range]), hash, "{node:?}");
        }
    }
    assert_eq!(Node { level: 8, index: 3 }.tile(), (0, 3, 0..256));
    assert_eq!(Node { level: 9, index: 3 }.tile(), (1, 0, 6..8));
    assert_eq!(Node { level: 0, index: 259 }.tile(), (0, 1, 3..4));
}

proptest! {
    #[test]
    fn no_other_proof_is_accepted(size in 1_u64..200, at in any::<prop::sample::Index>(), bit in 0_usize..256, element in any::<prop::sample::Index>()) {
        let all = leaves(200);
        let nodes = nodes(&all);
        let size_index = size as usize;
        let root = root_of(&all[..size_index]);
        let index = at.index(size_index) as u64;
        let leaf = all[index as usize];
        let path = made(inclusion(index, size), &nodes);

        let flipped = |hash: &Hash| {
            let mut bytes = *hash.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            Hash::new(bytes)
        };
        prop_assert!(!verify_inclusion(&flipped(&leaf), index, size, &path, &root));
        prop_assert!(!verify_inclusion(&leaf, index, size, &path, &flipped(&root)));
        prop_assert!(!verify_inclusion(&leaf, index + size, size, &path, &root));
        prop_assert!(!verify_inclusion(&leaf, index, size, &[path.clone(), vec![root]].concat(), &root));
        if !path.is_empty() {
            let mut other = path.clone();
            let element = element.index(other.len());
            other[element] = flipped(&other[element]);
            prop_assert!(!verify_inclusion(&leaf, index, size, &other, &root));
            prop_assert!(!verify_inclusion(&leaf, index, size, &path[1..], &root));
            let other_index = if index == 0 { 1 } else { index - 1 };
            prop_assert!(!verify_inclusion(&leaf, other_index, size, &path, &root));
        }
    }

    #[test]
    fn no_rewritten_tree_is_consistent(old in 1_u64..100, more in 1_u64..100, changed in any::<prop::sample::Index>()) {
        let new = old + more;
        let before = leaves(200);
        let mut after = before.clone();
        let changed = changed.index(old as usize);
        after[changed] = leaf_hash(b"another");
        let path = made(consistency(old, new), &nodes(&after));
        let (old_root, new_root) = (root_of(&before[..old as usize]), root_of(&after[..new as usize]));
        prop_assert!(!verify_consistency(old, &old_root, new, &new_root, &path));
    }
}
