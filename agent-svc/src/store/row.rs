//! Columns to domain values and back: what does not parse is corrupt, never a default.

use std::fmt::Display;

use event::Digest;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::{Error, failed};

pub(super) struct Columns<'a>(pub(super) &'a SqliteRow);

impl Columns<'_> {
    pub(super) fn get<'r, T>(&'r self, name: &'static str) -> Result<T, Error>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        self.0.try_get(name).map_err(failed("read a column"))
    }

    pub(super) fn id<T, E>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Error> {
        let text: &str = self.get(name)?;
        parse(text).map_err(|_| Error::Corrupt { what: name })
    }

    pub(super) fn number(&self, name: &'static str) -> Result<u64, Error> {
        unsigned(self.get(name)?, name)
    }

    pub(super) fn maybe_number(&self, name: &'static str) -> Result<Option<u64>, Error> {
        let number: Option<i64> = self.get(name)?;
        number.map(|number| unsigned(number, name)).transpose()
    }

    pub(super) fn digest(&self, name: &'static str) -> Result<Digest, Error> {
        let bytes: &[u8] = self.get(name)?;
        Digest::from_bytes(bytes).map_err(|_| Error::Corrupt { what: name })
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, Error> {
        let flag: i64 = self.get(name)?;
        Ok(flag != 0)
    }
}

pub(super) fn unsigned(number: i64, what: &'static str) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::Corrupt { what })
}

pub(super) fn signed(number: u64, what: &'static str) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::Corrupt { what })
}

pub(super) fn text(id: impl Display) -> String {
    id.to_string()
}
