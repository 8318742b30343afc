//! Messages to domain values. What is not understood is refused with the field's name; nothing is guessed.

use event::id::{PermissionId, ReceiptId, RunId, SessionId};
use event::{Digest, Source};
use kernel::Limits;
use proto::agent::v1 as wire;
use receipt::{OnDisconnect, Scope, Signed};

use crate::answer::{Choice, Claim};
use crate::create::Wanted;
use crate::patch::{Form, Which};
use crate::peers;
use crate::refusal::Refusal;
use crate::wish::{Undo, Wish};

const MAX_CONTENT: usize = 512 * 1024;
const MAX_NOTE: usize = 4096;
const MAX_MODEL: usize = 256;
const MAX_PAGE: u32 = 200;
const PAGE: u32 = 50;

fn invalid(field: &'static str, expected: &'static str) -> Refusal {
    Refusal::Invalid { field, expected }
}

pub(super) fn session(text: &str) -> Result<SessionId, Refusal> {
    SessionId::parse(text).map_err(|_| invalid("session_id", "not a UUID"))
}

pub(super) fn permission(text: &str) -> Result<PermissionId, Refusal> {
    PermissionId::parse(text).map_err(|_| invalid("permission_id", "not a UUID"))
}

pub(super) fn form(form: wire::PatchForm) -> Result<Form, Refusal> {
    match form {
        wire::PatchForm::Shown => Ok(Form::Shown),
        wire::PatchForm::Git => Ok(Form::Git),
        wire::PatchForm::Unspecified => Err(invalid("form", "must be shown or git")),
    }
}

/// An ask's patch is named by its plan, and is read whole.
pub(super) fn which(request: &wire::GetPatchRequest) -> Result<Which, Refusal> {
    let wire::GetPatchRequest { permission_id, patch_digest, paths, .. } = request;
    match permission_id.as_str() {
        "" => Ok(Which::OfRun {
            digest: patch_digest_of("patch_digest", patch_digest)?,
            paths: paths.clone(),
        }),
        _ if !patch_digest.is_empty() || !paths.is_empty() => {
            Err(invalid("patch_digest, paths", "only without a permission"))
        }
        id => Ok(Which::Asked(permission(id)?)),
    }
}

pub(super) fn receipt_id(text: &str) -> Result<ReceiptId, Refusal> {
    ReceiptId::parse(text).map_err(|_| invalid("receipt_id", "not a UUID"))
}

pub(super) fn create(
    request: wire::CreateSessionRequest,
    session: SessionId,
) -> Result<Wanted, Refusal> {
    let on_disconnect = match request.on_disconnect() {
        wire::OnDisconnect::Deny => OnDisconnect::Deny,
        wire::OnDisconnect::Hold => OnDisconnect::Hold,
        wire::OnDisconnect::Unspecified => {
            return Err(invalid("on_disconnect", "must be deny or hold"));
        }
    };
    let wire::CreateSessionRequest { session_id: _, grant, manifest, model, on_disconnect: _ } =
        request;
    if model.len() > MAX_MODEL {
        return Err(invalid("model", "longer than 256 bytes"));
    }
    let grant = grant.ok_or_else(|| invalid("grant", "missing"))?;
    Ok(Wanted { session, grant: peers::from_signed(grant), manifest, model, on_disconnect })
}

/// `by` is who asks for it.
pub(super) fn prompt(request: wire::PromptRequest, by: &str) -> Result<(Wish, Limits), Refusal> {
    let wire::PromptRequest { session_id: _, content, max_model_tokens, max_tool_calls, undo } =
        request;
    let wish = match undo {
        Some(_) if !content.is_empty() => {
            return Err(invalid("content, undo", "a run is for one of them"));
        }
        Some(wanted) => Wish::Undo(undo_of(&wanted, by)?),
        None if content.is_empty() || content.len() > MAX_CONTENT => {
            return Err(invalid("content", "must have 1 to 524288 bytes"));
        }
        None => Wish::Prompt(content),
    };
    if max_model_tokens == Some(0) || max_tool_calls == Some(0) {
        return Err(invalid("max_model_tokens, max_tool_calls", "must be positive"));
    }
    let limits =
        Limits { tokens: max_model_tokens, tool_calls: max_tool_calls, ..Limits::default() };
    Ok((wish, limits))
}

fn undo_of(wanted: &wire::Undo, by: &str) -> Result<Undo, Refusal> {
    let wire::Undo { run_id, patch_digest } = wanted;
    Ok(Undo {
        by: by.to_owned(),
        run: RunId::parse(run_id).map_err(|_| invalid("undo.run_id", "not a UUID"))?,
        digest: patch_digest_of("undo.patch_digest", patch_digest)?,
    })
}

/// Nothing where the text is empty.
fn patch_digest_of(field: &'static str, text: &str) -> Result<Option<Digest>, Refusal> {
    let read = |text: &str| text.parse().map_err(|_| invalid(field, "not sha256:<hex>"));
    (!text.is_empty()).then(|| read(text)).transpose()
}

pub(super) fn claim(
    request: wire::ClaimPermissionRequest,
    permission: PermissionId,
) -> Result<Claim, Refusal> {
    let (decision, scope, source) = (request.decision(), request.scope(), request.source());
    let wire::ClaimPermissionRequest {
        session_id: _,
        permission_id: _,
        decision: _,
        scope: _,
        plan_digest,
        note,
        source: _,
    } = request;
    if note.len() > MAX_NOTE {
        return Err(invalid("note", "longer than 4096 bytes"));
    }
    let plan_digest = Digest::from_bytes(&plan_digest)
        .map_err(|_| invalid("plan_digest", "must have 32 bytes"))?;
    let choice = match (decision, scope, source) {
        (wire::Decision::Allow, wire::Scope::Once, wire::DenySource::Unspecified) => {
            Choice::Allow(Scope::Once)
        }
        (wire::Decision::Allow, wire::Scope::Run, wire::DenySource::Unspecified) => {
            Choice::Allow(Scope::Run)
        }
        (wire::Decision::Allow, wire::Scope::Unspecified, _) => {
            return Err(invalid("scope", "an allow needs once or run"));
        }
        (wire::Decision::Allow, _, _) => {
            return Err(invalid("source", "an allow has none"));
        }
        (wire::Decision::Deny, wire::Scope::Unspecified, wire::DenySource::Operator) => {
            Choice::Deny(Source::Operator)
        }
        (wire::Decision::Deny, wire::Scope::Unspecified, wire::DenySource::MalformedAnswer) => {
            Choice::Deny(Source::MalformedAnswer)
        }
        (wire::Decision::Deny, wire::Scope::Unspecified, _) => {
            return Err(invalid("source", "a denial needs operator or malformed_answer"));
        }
        (wire::Decision::Deny, _, _) => return Err(invalid("scope", "a denial has none")),
        (wire::Decision::Unspecified, _, _) => {
            return Err(invalid("decision", "must be allow or deny"));
        }
    };
    let note = (!note.is_empty()).then_some(note);
    Ok(Claim { permission, plan_digest, choice, note })
}

pub(super) fn receipt(request: wire::ResolvePermissionRequest) -> Result<Signed, Refusal> {
    let wire::ResolvePermissionRequest { session_id: _, permission_id: _, receipt } = request;
    receipt.map(peers::from_signed).ok_or_else(|| invalid("receipt", "missing"))
}

/// What a session is asked for by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key {
    Session(SessionId),
    Run(RunId),
}

pub(super) fn key(request: &wire::GetSessionRequest) -> Result<Key, Refusal> {
    match &request.key {
        Some(wire::get_session_request::Key::SessionId(id)) => session(id).map(Key::Session),
        Some(wire::get_session_request::Key::RunId(id)) => {
            RunId::parse(id).map(Key::Run).map_err(|_| invalid("run_id", "not a UUID"))
        }
        None => Err(invalid("key", "a session id or a run id is needed")),
    }
}

pub(super) fn page(
    request: &wire::ListSessionsRequest,
) -> Result<(u32, Option<SessionId>), Refusal> {
    let wire::ListSessionsRequest { page_size, page_token } = request;
    let size = match *page_size {
        0 => PAGE,
        size => size.min(MAX_PAGE),
    };
    let before = match page_token.as_str() {
        "" => None,
        token => Some(
            SessionId::parse(token)
                .map_err(|_| invalid("page_token", "not one of this service"))?,
        ),
    };
    Ok((size, before))
}
