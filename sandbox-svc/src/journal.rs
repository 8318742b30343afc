//! The journal that an import into a workspace and an edit of a copy share: how far it has come, in the store, and what
//! an end means while it is there. It decides nothing of what is written.

use std::io;

use event::id::CallId;
use tokio::runtime::Handle;

use crate::error::Error;
use crate::exec::Unsettled;
use crate::import::{ImportError, Phase, Resumed};
use crate::patch::{self, Entry};
use crate::store::{ImportRow, Store, StoreError};

/// What the journal of an earlier process was about.
pub(crate) fn entries(journal: &ImportRow) -> Result<Vec<Entry>, Error> {
    patch::decode(&journal.entries)
        .map_err(|_| Error::Store(StoreError::Malformed("list of entries")))
}

/// Makes each phase durable before it begins. Blocks.
pub(crate) fn writer(
    store: &Store,
    runtime: &Handle,
    call: CallId,
    entries: &[Entry],
) -> impl FnMut(Phase) -> io::Result<()> {
    let bytes = patch::encode(entries);
    move |phase| {
        runtime
            .block_on(store.enter_import(call, phase, &bytes))
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

/// An error of what has begun is no end: the journal says how to go on, and somebody tries again.
pub(crate) async fn settled(
    store: &Store,
    call: CallId,
    ended: Result<Resumed, ImportError>,
) -> Result<Result<Resumed, ImportError>, Unsettled> {
    let begun = store.import(call).await?.is_some();
    match ended {
        Err(ImportError::Stopped(stopped)) => Err(stopped.into()),
        Err(error) if begun => Err(Unsettled::Import(error)),
        ended => Ok(ended),
    }
}
