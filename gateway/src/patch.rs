//! What an open ask to import would write, a page at a time, for whoever was shown the ask, and what a run would import or
//! has imported. It keeps no page and vouches for nothing but that the patch is the one which was asked for.
use acp::{PatchFormat, PatchPage, PatchText};
use event::Digest;
use event::id::SessionId;
use proto::agent::v1 as wire;
use tracing::error;

use crate::Desk;
use crate::approval::Ask;
use crate::authn::Person;
use crate::refusal::{Refusal, refused};

pub(crate) async fn page(
    desk: &Desk,
    person: &Person,
    ask: &Ask,
    format: PatchFormat,
    offset: u64,
) -> Result<PatchPage, Refusal> {
    let wanted = ask.patch.ok_or(Refusal::NoPatch)?;
    let request = wire::GetPatchRequest { form: form(format).into(), offset, ..Default::default() };
    let found = desk.agent.patch(person, ask.session, Some(ask.permission), request).await;
    let found = found.map_err(|fault| refused("agent-svc", fault))?;
    read(found, Some(wanted), format, offset).ok_or_else(|| {
        error!(session = %ask.session, permission = %ask.permission, "agent-svc shows another patch than was asked for");
        Refusal::Internal
    })
}

/// Of the session's run, for whoever may read the session; the newest, where no digest says which.
pub(crate) async fn page_of_run(
    desk: &Desk,
    person: &Person,
    session: SessionId,
    (digest, paths): (Option<Digest>, Vec<Vec<u8>>),
    format: PatchFormat,
    offset: u64,
) -> Result<PatchPage, Refusal> {
    let request = wire::GetPatchRequest {
        form: form(format).into(),
        offset,
        patch_digest: digest.map(|digest| digest.to_string()).unwrap_or_default(),
        paths,
        ..Default::default()
    };
    let found = desk.agent.patch(person, session, None, request).await;
    let found = found.map_err(|fault| refused("agent-svc", fault))?;
    read(found, digest, format, offset).ok_or_else(|| {
        error!(%session, "agent-svc shows another patch than was asked for");
        Refusal::Internal
    })
}

fn form(format: PatchFormat) -> wire::PatchForm {
    match format {
        PatchFormat::V1 => wire::PatchForm::Shown,
        PatchFormat::GitV1 => wire::PatchForm::Git,
    }
}

/// Nothing, unless it is this place of this patch.
fn read(
    found: wire::GetPatchResponse,
    wanted: Option<Digest>,
    format: PatchFormat,
    offset: u64,
) -> Option<PatchPage> {
    let wire::GetPatchResponse { patch_digest, offset: begins, text, next_offset } = found;
    let digest = Digest::from_bytes(&patch_digest).ok()?;
    let text = PatchText::new(text).ok()?;
    let page = PatchPage::new(digest, format, begins, text, next_offset.is_some())?;
    let is_it = wanted.is_none_or(|wanted| wanted == digest);
    (is_it && begins == offset && page.next_offset() == next_offset).then_some(page)
}
