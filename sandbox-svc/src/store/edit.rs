//! Edits of private copies: which were applied, and which files are kept outside of their copy. Both go when the
//! run's environment goes.

use event::Digest;
use event::id::{CallId, RunId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};

use super::{Result, Store, StoreError, digest, id, to_i64, to_u64};
use crate::edit::Quarantined;
use crate::tree::{Node, RelPath};

/// One file that an edit changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutation {
    pub(crate) call: CallId,
    pub(crate) at_ms: i64,
    pub(crate) operation: &'static str,
    pub(crate) path: RelPath,
    pub(crate) destination: Option<RelPath>,
    pub(crate) before: Option<Digest>,
    pub(crate) after: Option<Digest>,
}

/// With its place in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) mutation: Mutation,
}

/// What the end of an edit adds to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) run: RunId,
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) quarantine: Option<Fate>,
}

/// What becomes of a kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    In(Quarantined),
    Out(CallId),
}

/// How much a run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

pub(crate) const OPERATIONS: [&str; 6] =
    ["create", "update", "make_directory", "move", "quarantine", "restore"];

impl Store {
    /// The journal from after a number on, oldest first.
    pub(crate) async fn mutations(
        &self,
        run: RunId,
        after: u64,
        limit: u64,
    ) -> Result<Vec<Numbered>> {
        let rows = sqlx::query(
            "SELECT * FROM mutation WHERE run = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
        )
        .bind(run.to_string())
        .bind(to_i64(after).unwrap_or(i64::MAX))
        .bind(to_i64(limit)?)
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(mutation).collect()
    }

    /// A file that is still kept.
    pub(crate) async fn quarantined(
        &self,
        run: RunId,
        call: CallId,
    ) -> Result<Option<Quarantined>> {
        let row = sqlx::query(
            "SELECT call, path, mode, size, digest FROM quarantine \
             WHERE run = ?1 AND call = ?2 AND state = 'quarantined'",
        )
        .bind(run.to_string())
        .bind(call.to_string())
        .fetch_optional(&self.readers)
        .await?;
        row.as_ref().map(quarantined).transpose()
    }

    /// Of the bytes that are still kept for somebody, apart from what one call took out.
    pub(crate) async fn kept_digests(
        &self,
        run: RunId,
        apart: Option<CallId>,
    ) -> Result<Vec<Digest>> {
        let rows = sqlx::query(
            "SELECT digest FROM quarantine WHERE run = ?1 AND state = 'quarantined' AND call <> ?2",
        )
        .bind(run.to_string())
        .bind(apart.map(|call| call.to_string()).unwrap_or_default())
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(|row| digest(&row.try_get::<Vec<u8>, _>(0)?)).collect()
    }

    pub(crate) async fn kept(&self, run: RunId) -> Result<Kept> {
        let row = sqlx::query(
            "SELECT count(*), coalesce(sum(size), 0) FROM quarantine \
             WHERE run = ?1 AND state = 'quarantined'",
        )
        .bind(run.to_string())
        .fetch_one(&self.readers)
        .await?;
        Ok(Kept { files: to_u64(row.try_get(0)?)?, bytes: to_u64(row.try_get(1)?)? })
    }
}

/// With the end of the call, in its transaction.
pub(super) async fn note_edited(
    tx: &mut Transaction<'static, Sqlite>,
    edited: &Edited,
) -> Result<()> {
    let Edited { run, mutations, quarantine } = edited;
    for one in mutations {
        let Mutation { call, at_ms, operation, path, destination, before, after } = one;
        sqlx::query(
            "INSERT INTO mutation (run, call, at_ms, operation, path, destination, before, after) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .bind(run.to_string())
        .bind(call.to_string())
        .bind(at_ms)
        .bind(*operation)
        .bind(path.as_bytes())
        .bind(destination.as_ref().map(RelPath::as_bytes))
        .bind(before.as_ref().map(|digest| digest.as_bytes().as_slice()))
        .bind(after.as_ref().map(|digest| digest.as_bytes().as_slice()))
        .execute(&mut **tx)
        .await?;
    }
    match quarantine {
        Some(Fate::In(Quarantined { id, path, node })) => {
            sqlx::query(
                "INSERT INTO quarantine (run, call, path, mode, size, digest, state) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'quarantined') ON CONFLICT DO NOTHING",
            )
            .bind(run.to_string())
            .bind(id.to_string())
            .bind(path.as_bytes())
            .bind(node.mode())
            .bind(to_i64(node.size())?)
            .bind(node.digest().as_bytes().as_slice())
            .execute(&mut **tx)
            .await?;
        }
        Some(Fate::Out(call)) => {
            sqlx::query("UPDATE quarantine SET state = 'restored' WHERE run = ?1 AND call = ?2")
                .bind(run.to_string())
                .bind(call.to_string())
                .execute(&mut **tx)
                .await?;
        }
        None => (),
    }
    Ok(())
}

/// The copy is gone, and with it what the edits were about.
pub(super) async fn forget_edits(tx: &mut Transaction<'static, Sqlite>, run: RunId) -> Result<()> {
    for statement in
        ["DELETE FROM mutation WHERE run = ?1", "DELETE FROM quarantine WHERE run = ?1"]
    {
        sqlx::query(statement).bind(run.to_string()).execute(&mut **tx).await?;
    }
    Ok(())
}

fn mutation(row: &SqliteRow) -> Result<Numbered> {
    let operation: String = row.try_get("operation")?;
    let operation = OPERATIONS.into_iter().find(|known| *known == operation);
    let state = |name: &str| -> Result<Option<Digest>> {
        row.try_get::<Option<Vec<u8>>, _>(name)?.as_deref().map(digest).transpose()
    };
    let mutation = Mutation {
        call: id(&row.try_get::<String, _>("call")?)?,
        at_ms: row.try_get("at_ms")?,
        operation: operation.ok_or(StoreError::Malformed("operation"))?,
        path: path(&row.try_get::<Vec<u8>, _>("path")?)?,
        destination: row
            .try_get::<Option<Vec<u8>>, _>("destination")?
            .as_deref()
            .map(path)
            .transpose()?,
        before: state("before")?,
        after: state("after")?,
    };
    Ok(Numbered { number: to_u64(row.try_get("number")?)?, mutation })
}

fn quarantined(row: &SqliteRow) -> Result<Quarantined> {
    let node = Node::File {
        mode: row.try_get("mode")?,
        size: to_u64(row.try_get("size")?)?,
        digest: digest(&row.try_get::<Vec<u8>, _>("digest")?)?,
    };
    Ok(Quarantined {
        id: id(&row.try_get::<String, _>("call")?)?,
        path: path(&row.try_get::<Vec<u8>, _>("path")?)?,
        node,
    })
}

fn path(bytes: &[u8]) -> Result<RelPath> {
    RelPath::parse(bytes).map_err(|_| StoreError::Malformed("path"))
}
