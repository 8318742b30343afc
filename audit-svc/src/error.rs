//! Why audit-svc does not start or stops. What callers are told is in `refusal`.

/// Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    StateDir(#[from] transport::state_dir::Unusable),
    #[error("the ledger's database failed to {doing}; check the disk and the file's owner")]
    Database {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("the ledger's database cannot be brought up to date; it may belong to a newer version")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error(
        "the ledger's database does not promise that a commit survives a power loss; use a local disk"
    )]
    NotDurable,
    #[error(
        "the ledger belongs to the log {found}; set origin to it or use another state directory"
    )]
    OtherOrigin { found: String },
    #[error(
        "the ledger is not what its head says; keep its files as evidence and restore a copy that verifies"
    )]
    Integrity(#[source] Unsound),
    #[error("the table of callers does not fit the service")]
    Callers(#[from] transport::authz::Mismatch),
    #[error("the listeners cannot be served")]
    Serve(#[from] transport::server::Error),
}

/// What is wrong with a stored ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    #[error(transparent)]
    Entry(#[from] ledger::Finding),
    #[error("the head cannot be read")]
    Head,
    #[error("the head's clock is not that of the last entry")]
    Clock,
    #[error("the hash tiles are not those of the entries")]
    Tiles,
}

/// The same, as a step that failed.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| Error::Database { doing, source }
}
