//! Reading what is stored, page by page, below a head that stays the same however long a reader takes.

use std::collections::VecDeque;

use event::Writer;
use event::id::{EventId, SessionId};
use futures::Stream;
use futures::stream::try_unfold;
use sqlx::sqlite::SqlitePool;
use sqlx::{QueryBuilder, Sqlite};
use tokio::sync::watch;

use crate::nodes::Nodes;
use crate::refusal::Refused;

/// How many rows are read at once.
const CHUNK: u64 = 64;

/// One entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Stored {
    pub(crate) log_index: i64,
    pub(crate) tenant: String,
    pub(crate) writer: String,
    pub(crate) session: String,
    pub(crate) seq: i64,
    #[sqlx(rename = "payload")]
    pub(crate) event: Vec<u8>,
    pub(crate) envelope: Vec<u8>,
    pub(crate) salt: Vec<u8>,
    pub(crate) leaf_hash: Vec<u8>,
}

const COLUMNS: &str = "SELECT log_index, tenant, writer, session, seq, payload, envelope, salt, leaf_hash FROM events JOIN payloads USING (log_index)";

/// Which entries; absent members do not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) tenant: Option<String>,
    pub(crate) session: Option<SessionId>,
    pub(crate) writer: Option<Writer>,
    pub(crate) kind: Option<String>,
    /// Of one stream: only what follows this.
    pub(crate) after_seq: Option<u64>,
    /// Only what follows this in the log.
    pub(crate) after: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pool: SqlitePool,
    head: watch::Receiver<ledger::Head>,
}

impl Reader {
    pub(crate) fn new(pool: SqlitePool, head: watch::Receiver<ledger::Head>) -> Self {
        Self { pool, head }
    }

    /// The tree as it is acknowledged now.
    pub(crate) fn head(&self) -> ledger::Head {
        *self.head.borrow()
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes::new(self.pool.clone())
    }

    /// Entries in the order of the log, at most `limit`, below `head`.
    pub(crate) fn entries(
        &self,
        filter: Filter,
        head: ledger::Head,
        limit: u64,
    ) -> impl Stream<Item = Result<Stored, Refused>> + Send + use<> {
        let pages = Pages {
            pool: self.pool.clone(),
            filter,
            size: head.size,
            left: limit,
            read: VecDeque::new(),
        };
        try_unfold(pages, Pages::next)
    }

    pub(crate) async fn by_index(
        &self,
        index: u64,
        head: ledger::Head,
    ) -> Result<Option<Stored>, Refused> {
        let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
        query.push(" WHERE log_index = ").push_bind(index.cast_signed());
        self.one(query, head).await
    }

    pub(crate) async fn by_event(
        &self,
        id: EventId,
        head: ledger::Head,
    ) -> Result<Option<Stored>, Refused> {
        let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
        query.push(" WHERE event_id = ").push_bind(id.to_string());
        self.one(query, head).await
    }

    async fn one(
        &self,
        mut query: QueryBuilder<Sqlite>,
        head: ledger::Head,
    ) -> Result<Option<Stored>, Refused> {
        query.push(" AND log_index < ").push_bind(head.size.cast_signed());
        query.build_query_as().fetch_optional(&self.pool).await.map_err(Refused::Read)
    }
}

struct Pages {
    pool: SqlitePool,
    filter: Filter,
    size: u64,
    left: u64,
    read: VecDeque<Stored>,
}

impl Pages {
    async fn next(mut self) -> Result<Option<(Stored, Self)>, Refused> {
        if self.read.is_empty() && self.left > 0 {
            self.read = self.page(self.left.min(CHUNK)).await?.into();
        }
        let Some(next) = self.read.pop_front() else { return Ok(None) };
        self.filter.after = Some(next.log_index.cast_unsigned());
        self.left -= 1;
        Ok(Some((next, self)))
    }

    async fn page(&self, count: u64) -> Result<Vec<Stored>, Refused> {
        let Filter { tenant, session, writer, kind, after_seq, after } = &self.filter;
        let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
        query.push(" WHERE log_index < ").push_bind(self.size.cast_signed());
        if let Some(after) = after {
            query.push(" AND log_index > ").push_bind(after.cast_signed());
        }
        if let Some(seq) = after_seq {
            query.push(" AND seq > ").push_bind(seq.cast_signed());
        }
        if let Some(session) = session {
            query.push(" AND session = ").push_bind(session.to_string());
        }
        if let Some(tenant) = tenant {
            query.push(" AND tenant = ").push_bind(tenant);
        }
        if let Some(writer) = writer {
            query.push(" AND writer = ").push_bind(writer.as_str());
        }
        if let Some(kind) = kind {
            query.push(" AND type = ").push_bind(kind);
        }
        query.push(" ORDER BY log_index LIMIT ").push_bind(count.cast_signed());
        query.build_query_as().fetch_all(&self.pool).await.map_err(Refused::Read)
    }
}
