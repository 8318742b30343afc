//! The standing allows of a session's run, listed and taken back. A revocation is in the ledger before agent-svc hears of
//! it; whether an allow still holds is judged where it is used.
use acp::{ActionName, GrantRevokeAnswer, Moment, Person as Name, RunGrant, Seq, SubjectText};
use event::ReceiptRevoked;
use event::id::{ReceiptId, RunId, SessionId};
use proto::agent::v1 as wire;
use time::OffsetDateTime;
use tracing::{error, info};

use crate::Desk;
use crate::authn::Person;
use crate::record::record;
use crate::refusal::{Refusal, refused};

/// A longer subject is cut, for people have the plan.
const SUBJECT: usize = 512;

pub(crate) async fn list(
    desk: &Desk,
    person: &Person,
    session: SessionId,
) -> Result<Vec<RunGrant>, Refusal> {
    let found = grants(desk, person, session).await?;
    let shown: Option<Vec<RunGrant>> = found.into_iter().take(acp::MAX_GRANTS).map(shown).collect();
    shown.ok_or_else(|| {
        error!(%session, "agent-svc lists a standing allow that cannot be shown");
        Refusal::Internal
    })
}

/// Nothing is recorded of what stands no more.
pub(crate) async fn revoke(
    desk: &Desk,
    person: &Person,
    session: SessionId,
    receipt_id: ReceiptId,
) -> Result<GrantRevokeAnswer, Refusal> {
    let found = grants(desk, person, session).await?;
    let Some(grant) = found.iter().find(|grant| grant.receipt_id == receipt_id.to_string()) else {
        return Ok(GrantRevokeAnswer { revoked: false, pending: false });
    };
    let run_id = RunId::parse(&grant.run_id).map_err(|_| Refusal::Internal)?;
    let by = person.subject.clone();
    let revoked = ReceiptRevoked { receipt_id, session_id: session, run_id, by };
    record(&desk.audit, person, session, revoked).await?;
    let taken = desk.agent.revoke_grant(person, session, receipt_id).await;
    let wire::RevokeGrantResponse { revoked, pending } =
        taken.map_err(|fault| refused("agent-svc", fault))?;
    info!(%session, receipt = %receipt_id, pending, "a standing allow was taken back");
    Ok(GrantRevokeAnswer { revoked, pending })
}

async fn grants(
    desk: &Desk,
    person: &Person,
    session: SessionId,
) -> Result<Vec<wire::RunGrant>, Refusal> {
    let found = desk.agent.grants(person, session).await;
    Ok(found.map_err(|fault| refused("agent-svc", fault))?.grants)
}

/// Nothing, where it has no form that could be shown.
fn shown(grant: wire::RunGrant) -> Option<RunGrant> {
    let wire::RunGrant { receipt_id, run_id: _, action, subject, by, at_ms, expires_at_ms, uses } =
        grant;
    Some(RunGrant {
        receipt_id: ReceiptId::parse(&receipt_id).ok()?,
        action: ActionName::new(action).ok()?,
        subject: match subject.as_deref().map(cut) {
            Some("") | None => None,
            Some(subject) => Some(SubjectText::new(subject).ok()?),
        },
        by: Name::new(by).ok()?,
        at: moment(at_ms)?,
        expires_at: moment(expires_at_ms)?,
        uses: Seq::try_from(uses).ok()?,
    })
}

fn cut(text: &str) -> &str {
    let end = (0..=SUBJECT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn moment(ms: i64) -> Option<Moment> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()?;
    Moment::new(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_subject_is_cut_between_characters() {
        let long = format!("{}ü", "a".repeat(SUBJECT - 1));
        assert_eq!(cut(&long), &long[..SUBJECT - 1]);
        assert_eq!(cut("short"), "short");
    }
}
