//! What a handler asks of a session's run. The session's driver answers.

use event::id::RunId;
use kernel::Limits;
use tokio::sync::oneshot;

use crate::live::Command;
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::Session;
use crate::wish::Wish;

pub(crate) async fn prompt(
    runtime: &Runtime,
    session: &Session,
    wish: Wish,
    requested: Limits,
) -> Result<RunId, Refusal> {
    if session.outcome.is_some() || session.run.is_some() {
        return Err(Refusal::SessionAlreadyRun);
    }
    ask(runtime, session, |reply| Command::Prompt { wish, requested, reply }).await?
}

/// Whether there was anything to cancel.
pub(crate) async fn cancel(
    runtime: &Runtime,
    session: &Session,
    by: String,
) -> Result<bool, Refusal> {
    if session.outcome.is_some() {
        return Ok(false);
    }
    ask(runtime, session, |reply| Command::Cancel { by, reply }).await
}

async fn ask<T>(
    runtime: &Runtime,
    session: &Session,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Refusal> {
    let live = runtime.sessions.get(session.owner.session).ok_or(Refusal::Recovering)?;
    let (reply, told) = oneshot::channel();
    let asked = async {
        live.tell(command(reply)).await?;
        told.await.map_err(|_| live.unheard())
    };
    tokio::time::timeout(runtime.spans.answer, asked).await.map_err(|_| Refusal::Recovering)?
}
