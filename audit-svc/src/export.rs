//! One session as evidence: its entries, each with a proof against one head, as JSON lines that verify without this service.

use futures::stream::{StreamExt as _, try_unfold};
use futures::{Stream, TryStreamExt as _};
use ledger::{bundle_end, bundle_entry, bundle_head};

use crate::nodes::Nodes;
use crate::refusal::Refused;
use crate::store::{Filter, Reader, Stored};

/// The lines, each with its line end. All proofs are against the head of the moment this is called.
pub(crate) fn lines(
    reader: &Reader,
    log: &str,
    filter: Filter,
) -> impl Stream<Item = Result<String, Refused>> + Send + use<> {
    let head = reader.head();
    let session = filter.session.map(|session| session.to_string()).unwrap_or_default();
    let first = bundle_head(log, filter.tenant.as_deref().unwrap_or_default(), &session, &head);
    let entries = reader.entries(filter, head, u64::MAX).boxed();
    let state = State { head, nodes: reader.nodes(), entries, next: Next::Head(first), written: 0 };
    try_unfold(state, State::line)
}

struct State<S> {
    head: ledger::Head,
    nodes: Nodes,
    entries: S,
    next: Next,
    written: u64,
}

enum Next {
    Head(String),
    Entry,
    Nothing,
}

impl<S: Stream<Item = Result<Stored, Refused>> + Unpin> State<S> {
    async fn line(mut self) -> Result<Option<(String, Self)>, Refused> {
        let line = match std::mem::replace(&mut self.next, Next::Entry) {
            Next::Head(line) => line,
            Next::Entry => match self.entries.try_next().await? {
                Some(stored) => self.entry(&stored).await?,
                None => {
                    self.next = Next::Nothing;
                    bundle_end(self.written)
                }
            },
            Next::Nothing => return Ok(None),
        };
        Ok(Some((line + "\n", self)))
    }

    async fn entry(&mut self, stored: &Stored) -> Result<String, Refused> {
        let Stored { log_index, event, envelope, salt, .. } = stored;
        let index = log_index.cast_unsigned();
        let path = self.nodes.prove(index, &self.head).await?;
        let text = |bytes| str::from_utf8(bytes).map_err(|_| Refused::Corrupt);
        self.written += 1;
        Ok(bundle_entry(index, text(envelope)?, text(event)?, salt, &path))
    }
}
