//! What a person says to an ask, and what became of it. It sends what it is given and decides nothing.
use acp::{
    Code, GrantList, GrantRevoke, GrantRevokeAnswer, GrantRevokeParams, Method as _, Respond,
    RespondAnswer, RespondParams, RunGrant, client::CallError,
};
use event::{Decision, Scope, id::ReceiptId};

use super::{Ask, Error, Session};

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    Accepted,
    /// One of several that are needed; the ask stays open for other people.
    Counted(acp::Counted),
    /// This person's yes counts for nothing here; the gateway's words. The ask stays open.
    NotTheirs(String),
    /// Somebody else was first, or the ask has expired; the gateway's words.
    Settled(String),
}

/// What a person says to an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// `approval` is the person's own signature under the same scope.
    Allow {
        scope: Option<Scope>,
        approval: Option<acp::Approval>,
    },
    Deny,
}

impl Verdict {
    #[must_use]
    pub fn decision(&self) -> Decision {
        match self {
            Self::Allow { .. } => Decision::Allow,
            Self::Deny => Decision::Deny,
        }
    }
}

impl Session {
    /// Answers an ask under the digest of the plan that was shown.
    pub async fn answer(
        &mut self,
        ask: &Ask,
        verdict: Verdict,
        note: Option<acp::Note>,
    ) -> Result<Answered, Error> {
        let decision = verdict.decision();
        let (scope, approval) = match verdict {
            Verdict::Allow { scope, approval } => (scope, approval),
            Verdict::Deny => (None, None),
        };
        let params = RespondParams {
            session_id: self.id().into(),
            permission_id: ask.permission_id.into(),
            decision: match decision {
                Decision::Allow => acp::Decision::Allow,
                Decision::Deny => acp::Decision::Deny,
            },
            note,
            plan_digest: Some(ask.plan_digest),
            scope: scope.map(|scope| match scope {
                Scope::Once => acp::Scope::Once,
                Scope::Run => acp::Scope::Run,
            }),
            approval,
        };
        match self.client.call::<Respond>(params).await {
            // Others may still say no, so nothing is held against the gateway yet.
            Ok(RespondAnswer { counted: Some(counted), .. }) => Ok(Answered::Counted(counted)),
            Ok(_) => {
                self.transcript.answered(ask.permission_id, decision);
                Ok(Answered::Accepted)
            }
            Err(CallError::Refused(failure)) if failure.code == Code::PermissionResolved => {
                Ok(Answered::Settled(failure.message().to_owned()))
            }
            Err(CallError::Refused(failure)) if is_not_theirs(&failure) => {
                Ok(Answered::NotTheirs(failure.message().to_owned()))
            }
            Err(source) => Err(Error::call(Respond::NAME, source)),
        }
    }

    /// The standing allows of this session's run.
    pub async fn grants(&self) -> Result<Vec<RunGrant>, Error> {
        let listed = self.client.grant_list(self.id()).await;
        listed.map_err(|source| Error::call(GrantList::NAME, source))
    }

    /// Takes one of them back: whether it stood until now, and whether its executor has yet to learn of it.
    pub async fn revoke(&self, receipt: ReceiptId) -> Result<GrantRevokeAnswer, Error> {
        let params = GrantRevokeParams { session_id: self.id().into(), receipt_id: receipt.into() };
        let revoked = self.client.call::<GrantRevoke>(params).await;
        revoked.map_err(|source| Error::call(GrantRevoke::NAME, source))
    }
}

/// Whoever answers may not, or is not one of those whom the plan names; agent-svc's reason comes as its word.
fn is_not_theirs(failure: &acp::Failure) -> bool {
    failure.code == Code::Forbidden || failure.message().contains("NOT_AN_APPROVER")
}
