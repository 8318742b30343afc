//! Between columns and types. A value that does not fit is a corrupt database, never a default.

use std::fmt::Display;

use event::Digest;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Decode, Row as _, Sqlite, Type};

use super::Error;

pub(super) fn signed(number: u64, what: &'static str) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::Corrupt { what })
}

pub(super) fn text(id: impl Display) -> String {
    id.to_string()
}

/// A row whose columns are read by name.
pub(super) struct Columns<'r>(pub(super) &'r SqliteRow);

impl<'r> Columns<'r> {
    pub(super) fn get<T>(&self, column: &'static str) -> Result<T, Error>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite>,
        &'static str: ColumnIndex<SqliteRow>,
    {
        self.0.try_get(column).map_err(|_| Error::Corrupt { what: column })
    }

    pub(super) fn number(&self, column: &'static str) -> Result<u64, Error> {
        u64::try_from(self.get::<i64>(column)?).map_err(|_| Error::Corrupt { what: column })
    }

    pub(super) fn digest(&self, column: &'static str) -> Result<Digest, Error> {
        Digest::from_bytes(self.get::<&[u8]>(column)?).map_err(|_| Error::Corrupt { what: column })
    }

    pub(super) fn id<T: std::str::FromStr>(&self, column: &'static str) -> Result<T, Error> {
        self.get::<&str>(column)?.parse().map_err(|_| Error::Corrupt { what: column })
    }
}
