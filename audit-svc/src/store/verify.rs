//! The check before the ledger opens: every entry, every chain, every tile and the head, from the first row to the last.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use ledger::{Envelope, Fault, Finding, Hash, TILE, Verifier, subtree};
use sqlx::sqlite::SqliteConnection;

use super::{head_of, stored_head};
use crate::Error;
use crate::batch::Tree;
use crate::config::Origin;
use crate::error::{Unsound, failed};

#[derive(sqlx::FromRow)]
struct Row {
    log_index: i64,
    event_id: String,
    tenant: String,
    writer: String,
    session: String,
    seq: i64,
    r#type: String,
    actor_kind: Option<String>,
    actor_id: Option<String>,
    tool: Option<String>,
    decision: Option<String>,
    occurred_us: i64,
    recorded_us: i64,
    leaf_hash: Vec<u8>,
    envelope: Vec<u8>,
    /// Absent where the payload's row is gone.
    payload: Option<Vec<u8>>,
    salt: Option<Vec<u8>>,
}

const ROWS: &str = "
    SELECT log_index, event_id, tenant, writer, session, seq, type, actor_kind, actor_id, tool, decision,
           occurred_us, recorded_us, leaf_hash, envelope, payload, salt
    FROM events LEFT JOIN payloads USING (log_index) ORDER BY log_index";

/// The tree of what is stored, if it is what the head says.
pub(super) async fn verify(
    connection: &mut SqliteConnection,
    origin: &Origin,
) -> Result<Tree, Error> {
    let head = stored_head(connection).await?;
    if head.origin != origin.as_str() {
        return Err(Error::OtherOrigin { found: head.origin });
    }
    let mut verifier = Verifier::new(origin.as_str());
    let mut tree = Tree::default();
    let mut tiles = BTreeMap::new();
    {
        let mut rows = sqlx::query_as::<_, Row>(ROWS).fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(failed("read its entries"))? {
            let leaf = verified(&mut verifier, &row)?;
            tree.recorded_us = row.recorded_us;
            for tile in tree.tiles.push(leaf) {
                tiles.insert(
                    (i64::from(tile.level), tile.index.cast_signed()),
                    subtree(&tile.hashes),
                );
            }
        }
    }
    verifier.finish(&head_of(&head.frontier)).map_err(unsound)?;
    if head.frontier != *verifier.frontier() {
        return Err(Error::Integrity(Unsound::Head));
    }
    if head.recorded_us != tree.recorded_us {
        return Err(Error::Integrity(Unsound::Clock));
    }
    if tiles != stored_tiles(connection).await? {
        return Err(Error::Integrity(Unsound::Tiles));
    }
    tree.frontier = head.frontier;
    Ok(tree)
}

fn verified(verifier: &mut Verifier, row: &Row) -> Result<Hash, Error> {
    let entry = ledger::Entry {
        log_index: row.log_index.cast_unsigned(),
        tenant: &row.tenant,
        writer: &row.writer,
        session: &row.session,
        seq: row.seq.cast_unsigned(),
        event: row.payload.as_deref().unwrap_or_default(),
        envelope: &row.envelope,
        salt: row.salt.as_deref().unwrap_or_default(),
        leaf_hash: &row.leaf_hash,
    };
    let (envelope, leaf) = verifier.push(&entry).map_err(unsound)?;
    match disagreement(row, &envelope) {
        None => Ok(leaf),
        Some(column) => {
            Err(unsound(Finding { index: Some(entry.log_index), fault: Fault::Column(column) }))
        }
    }
}

/// The first column that a query would answer otherwise than the envelope; the verifier has compared the rest.
fn disagreement(row: &Row, envelope: &Envelope) -> Option<&'static str> {
    let actor = envelope.actor.as_ref();
    let columns = [
        ("event_id", row.event_id == envelope.event_id),
        ("type", row.r#type == envelope.kind),
        ("actor_kind", row.actor_kind.as_ref() == actor.map(|actor| &actor.kind)),
        ("actor_id", row.actor_id.as_ref() == actor.and_then(|actor| actor.id.as_ref())),
        ("tool", row.tool == envelope.tool),
        ("decision", row.decision == envelope.decision),
        ("occurred_us", row.occurred_us == envelope.occurred_us),
        ("recorded_us", row.recorded_us == envelope.recorded_us),
    ];
    columns.into_iter().find(|(_, agrees)| !agrees).map(|(column, _)| column)
}

async fn stored_tiles(
    connection: &mut SqliteConnection,
) -> Result<BTreeMap<(i64, i64), Hash>, Error> {
    let mut tiles = BTreeMap::new();
    let mut rows =
        sqlx::query_as::<_, (i64, i64, Vec<u8>)>("SELECT level, idx, hashes FROM hash_tiles")
            .fetch(connection);
    while let Some((level, index, bytes)) =
        rows.try_next().await.map_err(failed("read its tiles"))?
    {
        let hashes = bytes.chunks_exact(32).map(Hash::from_slice).collect::<Result<Vec<_>, _>>();
        let hashes = hashes
            .ok()
            .filter(|hashes| hashes.len() == TILE)
            .ok_or(Error::Integrity(Unsound::Tiles))?;
        tiles.insert((level, index), subtree(&hashes));
    }
    Ok(tiles)
}

fn unsound(finding: Finding) -> Error {
    Error::Integrity(finding.into())
}
