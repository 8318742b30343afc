//! Children: one row per run that works in another run's copy, from its admission on.

use event::id::{RunId, SessionId};
use manifest::Profile;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};

use super::environment::forget_run;
use super::{Result, Store, StoreError, id};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildRow {
    pub(crate) run: RunId,
    pub(crate) parent: RunId,
    pub(crate) session: SessionId,
    pub(crate) profile: Profile,
    pub(crate) open: bool,
}

impl Store {
    /// A child that is there already stays as it is.
    pub(crate) async fn put_child(&self, child: &ChildRow) -> Result<ChildRow> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO child (run, parent, session, profile, open) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )
        .bind(child.run.to_string())
        .bind(child.parent.to_string())
        .bind(child.session.to_string())
        .bind(child.profile.as_str())
        .bind(child.open)
        .execute(&mut *tx)
        .await?;
        let row = sqlx::query("SELECT * FROM child WHERE run = ?1")
            .bind(child.run.to_string())
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        parse(&row)
    }

    pub(crate) async fn child(&self, run: RunId) -> Result<Option<ChildRow>> {
        let row = sqlx::query("SELECT * FROM child WHERE run = ?1")
            .bind(run.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(parse).transpose()
    }

    pub(crate) async fn open_children(&self) -> Result<Vec<ChildRow>> {
        let rows =
            sqlx::query("SELECT * FROM child WHERE open = 1").fetch_all(&self.readers).await?;
        rows.iter().map(parse).collect()
    }

    pub(crate) async fn close_child(&self, run: RunId) -> Result<()> {
        let mut tx = self.begin().await?;
        close(&mut tx, run).await?;
        Ok(tx.commit().await?)
    }
}

/// No child outlives the copy that it works in.
pub(super) async fn close_all(tx: &mut Transaction<'_, Sqlite>, parent: RunId) -> Result<()> {
    let rows = sqlx::query("SELECT run FROM child WHERE parent = ?1 AND open = 1")
        .bind(parent.to_string())
        .fetch_all(&mut **tx)
        .await?;
    for row in rows {
        close(tx, id(&row.try_get::<String, _>("run")?)?).await?;
    }
    Ok(())
}

async fn close(tx: &mut Transaction<'_, Sqlite>, run: RunId) -> Result<()> {
    sqlx::query("UPDATE child SET open = 0 WHERE run = ?1")
        .bind(run.to_string())
        .execute(&mut **tx)
        .await?;
    forget_run(tx, run).await
}

fn parse(row: &SqliteRow) -> Result<ChildRow> {
    let profile: String = row.try_get("profile")?;
    Ok(ChildRow {
        run: id(&row.try_get::<String, _>("run")?)?,
        parent: id(&row.try_get::<String, _>("parent")?)?,
        session: id(&row.try_get::<String, _>("session")?)?,
        profile: Profile::named(&profile).ok_or(StoreError::Malformed("profile"))?,
        open: row.try_get("open")?,
    })
}
