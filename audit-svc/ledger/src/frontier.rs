//! The right edge of the tree: enough to append and to name the root, whatever the size.

use alloc::vec::Vec;

use crate::hash::{Hash, NotAHash, node_hash};

/// A tree by its size and its complete subtrees, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub fn append(&mut self, leaf: Hash) {
        let mut peak = leaf;
        // Each one at the end of the size in binary is a subtree that the new leaf completes.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                peak = node_hash(&left, &peak);
            }
        }
        self.peaks.push(peak);
        self.size += 1;
    }

    /// The Merkle tree head of RFC 6962; for the empty tree the hash of nothing.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return Hash::of(&[]) };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }

    /// The peaks, one after another; with the size this is the whole state.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(|peak| *peak.as_bytes()).collect()
    }

    pub fn from_bytes(size: u64, bytes: &[u8]) -> Result<Self, NotAHash> {
        let chunks = bytes.chunks_exact(32);
        if !chunks.remainder().is_empty() || chunks.len() != size.count_ones() as usize {
            return Err(NotAHash);
        }
        let peaks = chunks.map(Hash::from_slice).collect::<Result<_, _>>()?;
        Ok(Self { size, peaks })
    }
}
