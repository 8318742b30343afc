//! Calls that have been admitted before: found, attached to, read again, asked to end.

use std::sync::Arc;
use std::time::Duration;

use event::Stage;
use event::id::{CallId, ReceiptId, RunId};
use futures::StreamExt as _;
use futures::stream;
use prost::Message as _;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::execute_response::Message;
use tracing::info;

use super::{Order, Responses};
use crate::engine;
use crate::error::Error;
use crate::live::{self, Live};
use crate::planner::Stop;
use crate::refusal::Reason;
use crate::sandbox::Sandbox;
use crate::session::{Owner, Session, now_ms};
use crate::spool::Chunk;
use crate::store::{EnvironmentState, ExecutionRow, ExecutionState, StoreError};

const FIND_AGAIN: Duration = Duration::from_millis(10);
const FIND_TIMES: u32 = 20;

/// Where a request finds its call.
pub(super) enum Found {
    Live(Arc<Live>),
    Finished(Box<ExecutionRow>),
    /// Refused: there is nothing behind it.
    Over(wire::Finished),
}

impl Sandbox {
    /// A call that was admitted, and its task while that runs. Between the two there is a moment on either
    /// side, which is waited for.
    pub(super) async fn find(
        &self,
        call: CallId,
    ) -> Result<Option<(ExecutionRow, Option<Arc<Live>>)>, Error> {
        for _ in 1..FIND_TIMES {
            let live = self.live(call);
            let Some(row) = self.store.execution(call).await? else { return Ok(None) };
            if live.is_some() || row.state == ExecutionState::Finished {
                return Ok(Some((row, live)));
            }
            tokio::time::sleep(FIND_AGAIN).await;
        }
        Ok(self.store.execution(call).await?.map(|row| (row, None)))
    }

    /// A call that has been admitted before: the same request finds its own result, another is refused.
    pub(super) async fn known(
        &self,
        session: &Session,
        order: &Order,
    ) -> Result<Option<Found>, Stop> {
        let Some((row, live)) = self.find(order.target.call).await? else { return Ok(None) };
        let same = row.plan.session == session.id
            && row.plan.run == order.target.run
            && row.plan.tool == order.tool
            && row.plan.arguments == order.arguments
            && row.plan.digest == order.plan_digest;
        if !same {
            return Err(Reason::CallConflict.into());
        }
        if row.state != ExecutionState::Finished {
            return match live {
                Some(live) => Ok(Some(Found::Live(live))),
                None => Err(Error::CleanupUncertain.into()),
            };
        }
        // Only an attempt that is lost makes room for the next.
        if order.target.attempt > row.attempt && is_lost(&row)? {
            return Ok(None);
        }
        Ok(Some(Found::Finished(Box::new(row))))
    }

    /// What a finished call said, as far as it is kept.
    pub(super) async fn replay(&self, row: &ExecutionRow, after: u64) -> Result<Responses, Error> {
        let mut messages = Vec::new();
        if let Some(data) = &row.started_data {
            messages.push(live::message(Message::Started(wire::Started { data: data.clone() })));
        }
        for (offset, stream, bytes) in self.store.output(row.plan.call).await? {
            let skip = usize::try_from(after.saturating_sub(offset)).unwrap_or(usize::MAX);
            if skip < bytes.len() {
                let stream = match stream.as_str() {
                    "stderr" => engine::Stream::Stderr,
                    _ => engine::Stream::Stdout,
                };
                let bytes = bytes::Bytes::from(bytes).slice(skip..);
                messages.push(live::output(&Chunk { offset: offset + skip as u64, stream, bytes }));
            }
        }
        messages.push(live::message(Message::Finished(finished(row)?)));
        Ok(stream::iter(messages.into_iter().map(Ok)).boxed())
    }

    /// Where a call stands: nothing, running, or its end.
    pub(crate) async fn look_up(
        &self,
        owner: &Owner,
        call: CallId,
    ) -> Result<Option<Option<wire::Finished>>, Error> {
        let session = self.held_for(owner, Stage::Fence).await?;
        let row = self.store.execution(call).await?;
        match row.filter(|row| row.plan.session == session.id) {
            None => Ok(None),
            Some(row) if row.state == ExecutionState::Finished => Ok(Some(Some(finished(&row)?))),
            Some(_) => Ok(Some(None)),
        }
    }

    /// Asks a call to end; says whether it was running.
    pub(crate) async fn cancel(&self, owner: &Owner, call: CallId) -> Result<bool, Error> {
        let session = self.held_for(owner, Stage::Fence).await?;
        match self.find(call).await?.filter(|(row, _)| row.plan.session == session.id) {
            Some((row, live)) if row.state != ExecutionState::Finished => {
                if let Some(live) = live {
                    live.cancel.cancel();
                }
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The receipt admits nothing from now on. That only narrows, so whoever holds the session may say it.
    pub(crate) async fn revoke(
        &self,
        session: &Session,
        run: RunId,
        receipt: ReceiptId,
    ) -> Result<(), Error> {
        match self.store.child(run).await? {
            Some(child) if child.session != session.id => return Err(Error::RunUnknown),
            Some(child) if !child.open => return Ok(()),
            Some(_) | None => (),
        }
        match self.store.environment(run).await? {
            Some(row) if row.session != session.id => Err(Error::RunUnknown),
            // Nothing is admitted there any more.
            Some(row) if matches!(row.state, EnvironmentState::Closed | EnvironmentState::Lost) => {
                Ok(())
            }
            Some(_) | None => {
                self.store.revoke(run, receipt, now_ms()).await?;
                info!(%run, %receipt, "a receipt was revoked");
                Ok(())
            }
        }
    }
}

fn finished(row: &ExecutionRow) -> Result<wire::Finished, Error> {
    let malformed = || Error::Store(StoreError::Malformed("end of a call"));
    let bytes = row.finished.as_deref().ok_or_else(malformed)?;
    wire::Finished::decode(bytes).map_err(|_| malformed())
}

fn is_lost(row: &ExecutionRow) -> Result<bool, Error> {
    let outcome = finished(row)?.outcome;
    Ok(matches!(outcome, Some(wire::finished::Outcome::Lost(_))))
}

/// Whether it is lost, and nobody can say that it did not run.
pub(super) fn may_have_run(row: &ExecutionRow) -> Result<bool, Error> {
    if row.state != ExecutionState::Finished {
        return Ok(false);
    }
    let outcome = finished(row)?.outcome;
    Ok(matches!(outcome, Some(wire::finished::Outcome::Lost(lost)) if lost.may_have_run))
}
