//! What a broker says, line by line: each decision becomes one entry of the ledger and is counted for the result. A line
//! that is not one ends the hearing, and with it the broker.

use std::collections::BTreeMap;

use egress::{LINE_BYTES, Line};
use event::id::{CallId, RunId, SessionId};
use event::{EgressDecision, EgressVerdict};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use tracing::{error, warn};
use transport::{CancellationToken, Chain};

use crate::error::Error;
use crate::ledger;
use crate::store::Store;

/// How many denials a result names.
const NAMED: usize = 8;

/// What a command connected to, for its result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// The first of them.
    pub(crate) denials: Vec<Denial>,
    /// The broker ended before the command did: since then nothing could be connected to.
    pub(crate) broker_lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Denial {
    pub(crate) host: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) port: Option<u16>,
    pub(crate) reason: String,
}

impl Connections {
    pub(crate) fn lost() -> Self {
        Self { broker_lost: true, ..Self::default() }
    }

    fn count(&mut self, decision: &EgressDecision) {
        match decision.decision {
            EgressVerdict::Allow => self.allowed += 1,
            EgressVerdict::Deny => {
                self.denied += 1;
                if self.denials.len() < NAMED {
                    let EgressDecision { host, port, reason, .. } = decision.clone();
                    self.denials.push(Denial { host, port, reason });
                }
            }
        }
    }
}

/// Whose decisions they are, and where they are written.
pub(crate) struct Teller {
    pub(crate) store: Store,
    pub(crate) session: SessionId,
    pub(crate) tenant: String,
    pub(crate) policy_rev: String,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
}

impl Teller {
    async fn tell(&self, decision: EgressDecision) -> Result<(), Error> {
        let record = ledger::record(self.session, &self.tenant, &self.policy_rev, decision)?;
        self.store.record(&record).await?;
        Ok(())
    }

    fn decision(&self, host: String, port: Option<u16>, rule: Option<String>) -> EgressDecision {
        EgressDecision {
            run_id: self.run,
            call_id: self.call,
            attempt: self.attempt,
            host,
            port,
            decision: EgressVerdict::Deny,
            rule,
            reason: String::new(),
            bytes_up: None,
            bytes_down: None,
        }
    }
}

pub(super) struct Ears<R> {
    lines: R,
    teller: Teller,
    /// Connections whose end has not been heard.
    open: BTreeMap<u64, EgressDecision>,
    seen: Connections,
}

impl<R: AsyncBufRead + Unpin> Ears<R> {
    pub(super) fn new(lines: R, teller: Teller) -> Self {
        Self { lines, teller, open: BTreeMap::new(), seen: Connections::default() }
    }

    pub(super) async fn ready(&mut self) -> bool {
        matches!(self.next().await, Some(Line::Ready {}))
    }

    /// Until the broker says no more. Dropping `self` is what ends a broker that is not to go on.
    pub(super) async fn listen(mut self, ending: CancellationToken) -> Connections {
        while let Some(line) = self.next().await {
            if let Err(error) = self.take(line).await {
                error!(error = %Chain(&error), "a decision of an egress broker cannot be written down");
                break;
            }
        }
        self.seen.broker_lost = !ending.is_cancelled();
        if self.seen.broker_lost {
            warn!(call = %self.teller.call, "the egress broker of a command is gone");
        }
        // Nobody could count what went through these.
        for (_, open) in std::mem::take(&mut self.open) {
            let decision = EgressDecision { reason: "broker_lost".to_owned(), ..open };
            if let Err(error) = self.decided(decision).await {
                error!(error = %Chain(&error), "a decision of an egress broker cannot be written down");
            }
        }
        self.seen
    }

    async fn next(&mut self) -> Option<Line> {
        let mut bytes = Vec::new();
        let most = u64::try_from(LINE_BYTES).unwrap_or(u64::MAX);
        let read = (&mut self.lines).take(most).read_until(b'\n', &mut bytes).await;
        match read {
            Ok(0) | Err(_) => return None,
            Ok(_) => (),
        }
        let line = bytes.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        if line.is_none() {
            error!("an egress broker says what is no line");
        }
        line
    }

    async fn take(&mut self, line: Line) -> Result<(), Error> {
        match line {
            Line::Ready {} => Ok(()),
            Line::Refused { host, port, rule, reason } => {
                let decision = EgressDecision {
                    reason: reason.as_str().to_owned(),
                    ..self.teller.decision(host, port, rule)
                };
                self.decided(decision).await
            }
            Line::Opened { id, host, port, rule } => {
                let decision = EgressDecision {
                    decision: EgressVerdict::Allow,
                    ..self.teller.decision(host, Some(port), Some(rule))
                };
                self.open.insert(id, decision);
                Ok(())
            }
            Line::Closed { id, up, down, end } => {
                let Some(open) = self.open.remove(&id) else { return Ok(()) };
                let decision = EgressDecision {
                    decision: if end.is_denial() { EgressVerdict::Deny } else { open.decision },
                    reason: end.as_str().to_owned(),
                    bytes_up: Some(up),
                    bytes_down: Some(down),
                    ..open
                };
                self.decided(decision).await
            }
            Line::Untold { requests } => {
                let reason = format!("too_many_requests: {requests} more");
                let decision =
                    EgressDecision { reason, ..self.teller.decision(String::new(), None, None) };
                self.seen.denied = self.seen.denied.saturating_add(requests.saturating_sub(1));
                self.decided(decision).await
            }
        }
    }

    async fn decided(&mut self, decision: EgressDecision) -> Result<(), Error> {
        self.seen.count(&decision);
        self.teller.tell(decision).await
    }
}
