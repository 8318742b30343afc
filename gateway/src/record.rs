//! The gateway's own stream in the ledger: what it signed, before anybody acts on it.
use event::id::{EventId, SessionId};
use event::{Actor, ActorKind, Data, Event, SealError, Sealed, redact};
use proto::audit::v1::{NewEntry, Redaction};
use time::OffsetDateTime;
use tracing::error;
use transport::{Chain, Fault};

use crate::authn::Person;
use crate::peers::Audit;
use crate::refusal::{Refusal, refused};

/// Why something that was signed is not in the ledger; then it must not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unrecorded {
    #[error("the event cannot be made")]
    Seal(#[source] SealError),
    #[error("redaction would change what was signed")]
    Rewritten,
    #[error("audit-svc did not acknowledge")]
    Refused(#[source] Fault),
    #[error("audit-svc acknowledged something else")]
    Confused,
}

impl From<Unrecorded> for Refusal {
    fn from(unrecorded: Unrecorded) -> Self {
        error!(error = %Chain(&unrecorded), "what was signed is not recorded and not used");
        match unrecorded {
            Unrecorded::Refused(fault) => match refused("audit-svc", fault) {
                told @ (Refusal::Unavailable(_) | Refusal::LedgerUnwritable) => told,
                // audit-svc judges the gateway's own entry, which is nothing a person could mend.
                _ => Self::Internal,
            },
            // What is signed holds names that people chose, and nothing else that redaction looks at.
            Unrecorded::Rewritten => Self::HoldsSecret,
            Unrecorded::Seal(_) | Unrecorded::Confused => Self::Internal,
        }
    }
}

/// Appends the event and returns once audit-svc has it.
pub(crate) async fn record(
    audit: &Audit,
    person: &Person,
    session: SessionId,
    data: impl Into<Data>,
) -> Result<(), Unrecorded> {
    let actor = Actor { kind: ActorKind::Operator, id: Some(person.subject.clone()) };
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::now_utc(),
        actor: Some(actor),
        data: data.into(),
    };
    let Sealed { bytes, kind: _, findings } = event::seal(&event).map_err(Unrecorded::Seal)?;
    // A signature over members that the record shows differently would prove nothing.
    if !findings.is_empty() {
        return Err(Unrecorded::Rewritten);
    }
    let entry = NewEntry {
        tenant: person.tenant.clone(),
        session_id: session.to_string(),
        seq: None,
        event: bytes,
        on_behalf_of: person.subject.clone(),
        policy_rev: String::new(),
        redactor: redact::REVISION.to_owned(),
        redactions: Vec::<Redaction>::new(),
    };
    let acks = audit.append(entry).await.map_err(Unrecorded::Refused)?.acks;
    match acks.as_slice() {
        [ack] if ack.session_id == session.to_string() => Ok(()),
        _ => Err(Unrecorded::Confused),
    }
}
