//! Inclusion and consistency proofs of RFC 6962, made from complete subtrees and verified without the tree.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::hash::{Hash, node_hash};

/// A complete subtree: the one over the leaves `index << level .. (index + 1) << level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub level: u32,
    pub index: u64,
}

/// The complete subtrees from which a proof is made; each element of the proof folds one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan(Vec<Vec<Node>>);

impl Plan {
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.0.iter().flatten().copied()
    }

    /// The proof, when every node is given.
    pub fn assemble(&self, nodes: &BTreeMap<Node, Hash>) -> Option<Vec<Hash>> {
        self.0.iter().map(|group| fold(group, nodes)).collect()
    }
}

fn fold(group: &[Node], nodes: &BTreeMap<Node, Hash>) -> Option<Hash> {
    let mut group = group.iter().rev();
    let last = *nodes.get(group.next()?)?;
    group.try_fold(last, |right, left| Some(node_hash(nodes.get(left)?, &right)))
}

/// What proves that the leaf at `index` is in the tree of `size`; None when it is not.
pub fn inclusion(index: u64, size: u64) -> Option<Plan> {
    if index >= size {
        return None;
    }
    let mut path = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            path.push(complete(middle..end));
            end = middle;
        } else {
            path.push(complete(start..middle));
            start = middle;
        }
    }
    path.reverse();
    Some(Plan(path))
}

/// What proves that the tree of size `old` is the beginning of that of size `new`; None unless 0 < old <= new.
pub fn consistency(old: u64, new: u64) -> Option<Plan> {
    if old == 0 || old > new {
        return None;
    }
    let mut path = Vec::new();
    let (mut start, mut end) = (0, new);
    while end != old {
        let middle = start + split(end - start);
        if old <= middle {
            path.push(complete(middle..end));
            end = middle;
        } else {
            path.push(complete(start..middle));
            start = middle;
        }
    }
    // The old tree's own root is known to whoever asks; a part of it is not.
    if start != 0 {
        path.push(complete(start..end));
    }
    path.reverse();
    Some(Plan(path))
}

/// The largest power of two below a size of at least two.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// A range that RFC 6962 splits off, as complete subtrees, the largest first.
fn complete(range: Range<u64>) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let level = (range.end - start).ilog2();
        nodes.push(Node { level, index: start >> level });
        start += 1 << level;
    }
    nodes
}

/// Whether the leaf at `index` is in the tree of `size` with this root.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, path: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut index, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for sibling in path {
        if last == 0 {
            return false;
        }
        if index & 1 == 1 || index == last {
            hash = node_hash(sibling, &hash);
            let shift = if index & 1 == 1 { 0 } else { index.trailing_zeros() };
            index >>= shift;
            last >>= shift;
        } else {
            hash = node_hash(&hash, sibling);
        }
        index >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// Whether the tree of size `old` with `old_root` is the beginning of that of size `new` with `new_root`.
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    path: &[Hash],
) -> bool {
    if old == 0 || old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    let (mut index, mut last) = (old - 1, new - 1);
    let shift = index.trailing_ones();
    index >>= shift;
    last >>= shift;
    let mut rest = path.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { rest.next() };
    let Some(first) = first else { return false };
    let (mut from_old, mut from_new) = (*first, *first);
    for sibling in rest {
        if last == 0 {
            return false;
        }
        if index & 1 == 1 || index == last {
            from_old = node_hash(sibling, &from_old);
            from_new = node_hash(sibling, &from_new);
            let shift = if index & 1 == 1 { 0 } else { index.trailing_zeros() };
            index >>= shift;
            last >>= shift;
        } else {
            from_new = node_hash(&from_new, sibling);
        }
        index >>= 1;
        last >>= 1;
    }
    last == 0 && from_old == *old_root && from_new == *new_root
}
