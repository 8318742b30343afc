//! Tiles: each 256 hashes of one level, kept once complete, so that proofs need no recomputation of the tree.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use crate::hash::{Hash, node_hash};
use crate::proof::Node;

/// How many hashes a tile holds.
pub const TILE: usize = 256;
/// How many levels of the tree one tile spans.
const SPAN: u32 = 8;

/// A complete tile: 256 hashes of subtrees of `256^level` leaves, from the subtree `index * 256` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    pub level: u32,
    pub index: u64,
    pub hashes: Vec<Hash>,
}

impl Tile {
    pub fn to_bytes(&self) -> Vec<u8> {
        self.hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
    }
}

/// The incomplete tile of each level.
#[derive(Debug, Clone, Default)]
pub struct Tiles {
    levels: Vec<Level>,
}

#[derive(Debug, Clone, Default)]
struct Level {
    complete: u64,
    hashes: Vec<Hash>,
}

impl Tiles {
    /// Takes the next leaf and gives the tiles that it completes, the lowest first.
    pub fn push(&mut self, leaf: Hash) -> Vec<Tile> {
        let mut done = Vec::new();
        let mut hash = leaf;
        for (level, open) in (0..).zip(&mut self.levels) {
            open.hashes.push(hash);
            if open.hashes.len() < TILE {
                return done;
            }
            let hashes = mem::take(&mut open.hashes);
            hash = subtree(&hashes);
            done.push(Tile { level, index: open.complete, hashes });
            open.complete += 1;
        }
        self.levels.push(Level { complete: 0, hashes: vec![hash] });
        done
    }
}

impl Node {
    /// Where the subtree's hash comes from: the tile's level and index, and which of its hashes are folded.
    pub fn tile(&self) -> (u32, u64, Range<usize>) {
        let level = self.level.saturating_sub(1) / SPAN;
        let within = self.level - level * SPAN;
        let first = self.index << within;
        // The place within 256 hashes is the lowest byte.
        let start = usize::from(first.to_le_bytes()[0]);
        (level, first >> SPAN, start..start + (1 << within))
    }
}

/// The root over hashes whose number is a power of two.
pub fn subtree(hashes: &[Hash]) -> Hash {
    match hashes {
        [] => Hash::ZERO,
        [one] => *one,
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            node_hash(&subtree(left), &subtree(right))
        }
    }
}
