//! Runs a planned call at its executor. What an executor may know already is asked about before it is asked for.

mod remote;
mod sandbox;

use event::id::CallId;
use event::{Digest, ToolError};
use kernel::{Approved, Basis, Ran, Reason, Report, Seen};
use receipt::{Executor, Signed};
use tracing::warn;
use transport::{CancellationToken, Chain};

use super::{Errand, Pause};
use crate::ids;
use crate::session::content::Content;
use crate::work::Call;

pub(in crate::session) use sandbox::{nudge, wind_up};

/// An executor that fails like this for a call, again and again, has lost it.
const INTERNAL_FAILURES: u32 = 5;

/// What is to be executed, and on what it rests.
pub(in crate::session) struct Order {
    call: CallId,
    attempt: u32,
    plan: Digest,
    basis: Basis,
    entry: Call,
    /// Its end is the beginning of a child.
    delegates: bool,
    /// It must not be begun any more.
    stop: CancellationToken,
}

impl Order {
    pub(in crate::session) fn new(
        call: &Approved<kernel::Call>,
        entry: Call,
        delegates: bool,
        stop: CancellationToken,
    ) -> Self {
        Self {
            call: ids::call(call.id),
            attempt: call.attempt,
            plan: call.plan.digest.0.into(),
            basis: call.basis(),
            entry,
            delegates,
            stop,
        }
    }
}

/// `known`: the executor may have been asked before, by this process or an earlier one.
pub(in crate::session) async fn execute(errand: Errand, order: Order, known: bool) {
    let receipts = match receipts(&errand, &order).await {
        Ok(receipts) => receipts,
        Err(NoReceipt) => {
            let report = Report::Unadmitted { reason: Reason::of("RECEIPT_REQUIRED") };
            let detail = Content::Detail("the receipt of its approval cannot be read".to_owned());
            return done(errand, &order, report, detail).await;
        }
    };
    let finished = match order.entry.executor {
        Some(Executor::SandboxSvc) => sandbox::attend(&errand, &order, &receipts, known).await,
        Some(Executor::ModelSvc) => {
            // model-svc takes one receipt only.
            let receipt = receipts.first().and_then(|bytes| Signed::parse(bytes).ok());
            remote::attend(&errand, &order, receipt.as_ref()).await
        }
        None => Some((
            Report::Refused { reason: Reason::of("TOOL_UNKNOWN") },
            Content::Detail("there is no such tool".to_owned()),
        )),
    };
    if let Some((report, content)) = finished {
        done(errand, &order, report, content).await;
    }
}

async fn done(errand: Errand, order: &Order, report: Report, content: Content) {
    let (call, attempt) = (ids::of_call(order.call), order.attempt);
    let (seen, content) = seen((call, attempt), report, content, order.delegates);
    errand.done(seen, content).await;
}

/// A call that delegates has not ended when its executor is done with it: a child begins.
fn seen(
    (call, attempt): (kernel::CallId, u32),
    report: Report,
    content: Content,
    delegates: bool,
) -> (Seen, Content) {
    match report {
        Report::Succeeded if delegates => (Seen::Delegated { call, attempt }, Content::Bare),
        report => (Seen::Executed { call, attempt, report }, content),
    }
}

struct NoReceipt;

/// The receipts that the approval rests on, as they go out; a call that rests on a rule needs none.
async fn receipts(errand: &Errand, order: &Order) -> Result<Vec<Vec<u8>>, NoReceipt> {
    let Some(permission) = order.basis.permission().map(ids::permission) else {
        return Ok(Vec::new());
    };
    let mut pause = Pause::new();
    loop {
        match errand.runtime.store.receipts(permission).await {
            Ok(found) if found.is_empty() => return Err(NoReceipt),
            Ok(found) => {
                let readable = found.iter().all(|receipt| Signed::parse(receipt).is_ok());
                return if readable { Ok(found) } else { Err(NoReceipt) };
            }
            Err(cause) => {
                warn!(run = %errand.run, error = %Chain(&cause), "receipts cannot be read yet");
                pause.wait().await;
            }
        }
    }
}

/// What an executor's refusal means. Where it is about what people allowed, they can be asked anew; where it is about a world
/// that has changed since, only if nobody was asked about this call. A permission that was used belongs to another call.
fn refused(reason: &str, basis: Basis) -> Report {
    let about_people = (reason.starts_with("RECEIPT_") || reason.starts_with("APPROVAL_"))
        && reason != "RECEIPT_CONSUMED";
    let about_old_answers = reason == "PLAN_STALE" && matches!(basis, Basis::Grant(_));
    match about_people || about_old_answers {
        true => Report::Unadmitted { reason: super::parsed(reason) },
        false => Report::Refused { reason: super::parsed(reason) },
    }
}

fn lost(may_have_run: bool, reason: Reason) -> (Report, Content) {
    let (ran, message) = match may_have_run {
        true => (
            Ran::Maybe,
            "the call was lost and may have run; see what it did before calling it again",
        ),
        false => (Ran::No, "the call was lost before it ran"),
    };
    let error = ToolError { code: reason.as_str().to_owned(), message: message.to_owned() };
    let outcome =
        crate::session::content::Outcome { may_have_run, error: Some(error), ..Default::default() };
    (Report::Lost { ran, reason }, Content::Result(Box::new(outcome)))
}
