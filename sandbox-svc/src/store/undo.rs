//! Rows of imports that can be taken back. Each is written before its import begins and counts once that is over.

use event::Digest;
use event::id::{CallId, RunId, SessionId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::{Result, Store, StoreError, digest, id, to_i64, to_u64};
use crate::import::{Owner, Owners};
use crate::patch::{Patch, decode, encode};
use crate::tree::RelPath;
use crate::tree::inventory::{put, take, take_array};

/// One import, with what it replaced and wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndoRow {
    pub(crate) call: CallId,
    pub(crate) tenant: String,
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) workspace: String,
    pub(crate) patch: Patch,
    pub(crate) owners: Owners,
    /// Of the kept files.
    pub(crate) bytes: u64,
    pub(crate) made_ms: i64,
}

/// What a record takes, without the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UndoSize {
    pub(crate) call: CallId,
    pub(crate) bytes: u64,
    pub(crate) made_ms: i64,
    /// Its import is over.
    pub(crate) kept: bool,
}

impl Store {
    pub(crate) async fn note_undo(&self, row: &UndoRow) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO undo (call, tenant, session, run, workspace, digest, entries, owners, bytes, made_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (call) DO UPDATE SET \
             owners = excluded.owners, bytes = excluded.bytes, made_ms = excluded.made_ms",
        )
        .bind(row.call.to_string())
        .bind(&row.tenant)
        .bind(row.session.to_string())
        .bind(row.run.to_string())
        .bind(&row.workspace)
        .bind(row.patch.digest().as_bytes().as_slice())
        .bind(encode(&row.patch.entries))
        .bind(owners_to_bytes(&row.owners))
        .bind(to_i64(row.bytes)?)
        .bind(row.made_ms)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn undo_row(&self, call: CallId) -> Result<Option<UndoRow>> {
        let row = sqlx::query("SELECT * FROM undo WHERE call = ?1")
            .bind(call.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(undo).transpose()
    }

    /// The run's imports that are over, the newest first.
    pub(crate) async fn undo_rows(
        &self,
        run: RunId,
        digest: Option<Digest>,
    ) -> Result<Vec<UndoRow>> {
        let rows = sqlx::query(
            "SELECT * FROM undo WHERE run = ?1 AND kept = 1 AND (?2 IS NULL OR digest = ?2) \
             ORDER BY made_ms DESC, call DESC",
        )
        .bind(run.to_string())
        .bind(digest.map(|digest| digest.as_bytes().to_vec()))
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(undo).collect()
    }

    /// The oldest first.
    pub(crate) async fn undo_sizes(&self) -> Result<Vec<UndoSize>> {
        let rows =
            sqlx::query("SELECT call, bytes, made_ms, kept FROM undo ORDER BY made_ms, call")
                .fetch_all(&self.readers)
                .await?;
        let size = |row: &SqliteRow| {
            Ok(UndoSize {
                call: id(&row.try_get::<String, _>(0)?)?,
                bytes: to_u64(row.try_get(1)?)?,
                made_ms: row.try_get(2)?,
                kept: row.try_get::<i64, _>(3)? == 1,
            })
        };
        rows.iter().map(size).collect()
    }

    pub(crate) async fn forget_undo(&self, call: CallId) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("DELETE FROM undo WHERE call = ?1")
            .bind(call.to_string())
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }
}

fn undo(row: &SqliteRow) -> Result<UndoRow> {
    let malformed = StoreError::Malformed("undo record");
    let entries = decode(&row.try_get::<Vec<u8>, _>("entries")?);
    let patch = Patch { entries: entries.map_err(|_| malformed)?, ..Patch::default() };
    if patch.digest() != digest(&row.try_get::<Vec<u8>, _>("digest")?)? {
        return Err(StoreError::Malformed("undo record"));
    }
    Ok(UndoRow {
        call: id(&row.try_get::<String, _>("call")?)?,
        tenant: row.try_get("tenant")?,
        session: id(&row.try_get::<String, _>("session")?)?,
        run: id(&row.try_get::<String, _>("run")?)?,
        workspace: row.try_get("workspace")?,
        patch,
        owners: owners_from_bytes(&row.try_get::<Vec<u8>, _>("owners")?)?,
        bytes: to_u64(row.try_get("bytes")?)?,
        made_ms: row.try_get("made_ms")?,
    })
}

fn owners_to_bytes(owners: &Owners) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, Owner { uid, gid }) in owners {
        put(&mut bytes, path.as_bytes());
        bytes.extend_from_slice(&uid.to_be_bytes());
        bytes.extend_from_slice(&gid.to_be_bytes());
    }
    bytes
}

fn owners_from_bytes(mut bytes: &[u8]) -> Result<Owners> {
    let malformed = |_| StoreError::Malformed("list of owners");
    let mut owners = Owners::new();
    while !bytes.is_empty() {
        let path = take(&mut bytes).map_err(malformed)?;
        let path = RelPath::parse(path).map_err(|_| StoreError::Malformed("list of owners"))?;
        let uid = u32::from_be_bytes(take_array(&mut bytes).map_err(malformed)?);
        let gid = u32::from_be_bytes(take_array(&mut bytes).map_err(malformed)?);
        owners.insert(path, Owner { uid, gid });
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::{owners_from_bytes, owners_to_bytes};
    use crate::import::{Owner, Owners};
    use crate::tree::RelPath;

    #[test]
    fn owners_survive_their_encoding() {
        let path = |bytes: &[u8]| RelPath::parse(bytes).unwrap();
        let owners = Owners::from([
            (path(b"a/\xff"), Owner { uid: 0, gid: 4_294_967_294 }),
            (path(b"b"), Owner { uid: 1000, gid: 7 }),
        ]);
        let bytes = owners_to_bytes(&owners);
        assert_eq!(owners_from_bytes(&bytes).unwrap(), owners);
        assert!(owners_from_bytes(&bytes[..bytes.len() - 1]).is_err());
    }
}
