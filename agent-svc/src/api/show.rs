//! Domain values to messages.

use event::Source;
use event::id::PermissionId;
use proto::agent::v1 as wire;
use proto::common::v1 as common;
use receipt::{OnDisconnect, Signed};

use crate::answer::{Answered, Settled};
use crate::grant::Taken;
use crate::outcome::{Ending, Outcome, Usage};
use crate::peers;
use crate::permission::Standing;
use crate::refusal::Refusal;
use crate::store::{Counted, Error, RunGrant, Session, State};

pub(crate) fn outcome(outcome: &Outcome) -> wire::Outcome {
    let Outcome { run, ending, usage, steps, tool_calls } = outcome.clone();
    let Usage { prompt_tokens, completion_tokens } = usage;
    let state = match ending {
        Ending::Completed { final_text } => {
            wire::outcome::State::Completed(wire::Completed { final_text })
        }
        Ending::Failed { reason, note } => {
            wire::outcome::State::Failed(wire::Failed { reason, note })
        }
        Ending::Canceled { note } => wire::outcome::State::Canceled(wire::Canceled { note }),
        Ending::BudgetExceeded { metric } => {
            wire::outcome::State::BudgetExceeded(wire::BudgetExceeded { metric })
        }
    };
    wire::Outcome {
        run_id: run.map(|run| run.to_string()).unwrap_or_default(),
        state: Some(state),
        usage: Some(common::Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        }),
        steps,
        tool_calls,
    }
}

pub(super) fn session(
    session: Session,
    open: impl Iterator<Item = PermissionId>,
) -> Result<wire::Session, Refusal> {
    let grant = Signed::parse(&session.grant).map_err(|_| Error::Corrupt { what: "grant" })?;
    let state = match (session.state, &session.outcome) {
        (_, Some(ended)) => wire::session::State::Done(outcome(ended)),
        (State::Created | State::Opening, None) => wire::session::State::Created(common::Empty {}),
        (State::AwaitingPerson, None) => wire::session::State::AwaitingPerson(common::Empty {}),
        (State::NeedsOperator, None) => wire::session::State::NeedsOperator(common::Empty {}),
        (State::Running | State::Closing | State::Done, None) => {
            wire::session::State::Running(common::Empty {})
        }
    };
    let on_disconnect = match session.on_disconnect {
        OnDisconnect::Deny => wire::OnDisconnect::Deny,
        OnDisconnect::Hold => wire::OnDisconnect::Hold,
    };
    Ok(wire::Session {
        session_id: session.owner.session.to_string(),
        tenant: session.tenant,
        subject: session.subject,
        grant: Some(peers::signed(&grant)),
        manifest_id: session.manifest_id,
        workspace: session.workspace,
        model: session.model,
        on_disconnect: on_disconnect.into(),
        through_seq: session.through_seq,
        open_permissions: open.map(|permission| permission.to_string()).collect(),
        run_id: session.run.map(|run| run.to_string()),
        state: Some(state),
    })
}

pub(super) fn claimed(answered: Answered) -> wire::ClaimPermissionResponse {
    use wire::claim_permission_response::Result;
    let result = match answered {
        Answered::Won { until } => Result::Won(wire::Won { lease_until_ms: until.0 }),
        Answered::Lost(standing) => Result::Lost(lost(standing)),
        Answered::AlreadyCounted(so_far) => Result::AlreadyCounted(counted(so_far)),
    };
    wire::ClaimPermissionResponse { result: Some(result) }
}

pub(super) fn settled(settled: Settled) -> wire::ResolvePermissionResponse {
    use wire::resolve_permission_response::Result;
    let result = match settled {
        Settled::Folded(through_seq) => Result::ThroughSeq(through_seq),
        Settled::Lost(standing) => Result::Lost(lost(standing)),
        Settled::Counted(so_far) => Result::Counted(counted(so_far)),
    };
    wire::ResolvePermissionResponse { result: Some(result) }
}

fn counted(Counted { have, need }: Counted) -> wire::Counted {
    wire::Counted { have, need }
}

pub(super) fn grants(grants: Vec<RunGrant>) -> wire::ListGrantsResponse {
    let shown = |grant| {
        let RunGrant { receipt, run, action, subject, by, at, expires_at, uses } = grant;
        wire::RunGrant {
            receipt_id: receipt.to_string(),
            run_id: run.to_string(),
            action,
            subject,
            by,
            at_ms: at.0,
            expires_at_ms: expires_at.0,
            uses,
        }
    };
    wire::ListGrantsResponse { grants: grants.into_iter().map(shown).collect() }
}

pub(super) fn taken(taken: Taken) -> wire::RevokeGrantResponse {
    match taken {
        Taken::Nothing => wire::RevokeGrantResponse { revoked: false, pending: false },
        Taken::Back => wire::RevokeGrantResponse { revoked: true, pending: false },
        Taken::Here => wire::RevokeGrantResponse { revoked: true, pending: true },
    }
}

/// Who was first, and what they said.
fn lost(standing: Standing) -> wire::Lost {
    let settled = standing.is_settled();
    let (decision, by, source) = match standing {
        // Whoever had claimed it has given up in this moment.
        Standing::Open => (wire::Decision::Unspecified, String::new(), None),
        Standing::Leased { by, .. } | Standing::Allowed { by, .. } => {
            (wire::Decision::Allow, by, None)
        }
        Standing::Denied { source, by, .. } => {
            (wire::Decision::Deny, by.unwrap_or_default(), Some(source))
        }
    };
    let source = source.map_or(wire::DenySource::Unspecified, deny_source);
    wire::Lost { decision: decision.into(), by, source: source.into(), settled }
}

fn deny_source(source: Source) -> wire::DenySource {
    match source {
        Source::Operator => wire::DenySource::Operator,
        Source::Timeout => wire::DenySource::Timeout,
        Source::Cancel => wire::DenySource::Cancel,
        Source::Disconnect => wire::DenySource::Disconnect,
        Source::MissingResolver => wire::DenySource::MissingResolver,
        Source::MalformedAnswer => wire::DenySource::MalformedAnswer,
        Source::SessionEnd => wire::DenySource::SessionEnd,
        Source::Policy => wire::DenySource::Policy,
        Source::System => wire::DenySource::System,
    }
}
