//! Hashes of complete subtrees, from tiles and, at the right edge, from leaves: what proofs are made of.

use std::collections::{BTreeMap, HashMap};

use ledger::{Hash, Head, Node, Plan, TILE, inclusion, subtree};
use sqlx::sqlite::SqlitePool;

use crate::refusal::Refused;

/// How many tiles one reader keeps.
const KEPT: usize = 1024;

/// Reads tiles as proofs need them. What is below a head never changes, so what was read stays true.
#[derive(Debug)]
pub(crate) struct Nodes {
    pool: SqlitePool,
    tiles: HashMap<(u32, u64), Vec<Hash>>,
}

impl Nodes {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        Self { pool, tiles: HashMap::new() }
    }

    /// The proof that the leaf at `index` is in the tree of `head`.
    pub(crate) async fn prove(&mut self, index: u64, head: &Head) -> Result<Vec<Hash>, Refused> {
        let plan: Plan = inclusion(index, head.size).ok_or(Refused::NotFound)?;
        let mut nodes = BTreeMap::new();
        for node in plan.nodes() {
            nodes.insert(node, self.node(node).await?);
        }
        plan.assemble(&nodes).ok_or(Refused::Corrupt)
    }

    async fn node(&mut self, node: Node) -> Result<Hash, Refused> {
        let (level, index, range) = node.tile();
        let kept = self.tiles.get(&(level, index)).is_some_and(|hashes| range.end <= hashes.len());
        if !kept {
            let hashes = self.read(level, index).await?;
            if self.tiles.len() >= KEPT {
                self.tiles.clear();
            }
            self.tiles.insert((level, index), hashes);
        }
        let hashes = self.tiles.get(&(level, index)).and_then(|hashes| hashes.get(range));
        hashes.map(subtree).ok_or(Refused::Corrupt)
    }

    /// A tile, or as much of it as exists: then from the leaves or from the tiles below.
    async fn read(&self, level: u32, index: u64) -> Result<Vec<Hash>, Refused> {
        let stored: Option<Vec<u8>> =
            sqlx::query_scalar("SELECT hashes FROM hash_tiles WHERE level = ?1 AND idx = ?2")
                .bind(i64::from(level))
                .bind(index.cast_signed())
                .fetch_optional(&self.pool)
                .await
                .map_err(Refused::Read)?;
        if let Some(bytes) = stored {
            return hashes(&bytes);
        }
        let first = index * TILE as u64;
        match level.checked_sub(1) {
            None => self.leaves(first).await,
            Some(below) => self.roots(below, first).await,
        }
    }

    async fn leaves(&self, first: u64) -> Result<Vec<Hash>, Refused> {
        let rows: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT leaf_hash FROM events WHERE log_index >= ?1 AND log_index < ?1 + 256 ORDER BY log_index",
        )
        .bind(first.cast_signed())
        .fetch_all(&self.pool)
        .await
        .map_err(Refused::Read)?;
        rows.iter().map(|row| Hash::from_slice(row).map_err(|_| Refused::Corrupt)).collect()
    }

    async fn roots(&self, level: u32, first: u64) -> Result<Vec<Hash>, Refused> {
        let rows: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT hashes FROM hash_tiles WHERE level = ?1 AND idx >= ?2 AND idx < ?2 + 256 ORDER BY idx",
        )
        .bind(i64::from(level))
        .bind(first.cast_signed())
        .fetch_all(&self.pool)
        .await
        .map_err(Refused::Read)?;
        rows.iter().map(|row| Ok(subtree(&hashes(row)?))).collect()
    }
}

fn hashes(bytes: &[u8]) -> Result<Vec<Hash>, Refused> {
    bytes
        .chunks_exact(32)
        .map(|hash| Hash::from_slice(hash).map_err(|_| Refused::Corrupt))
        .collect()
}
