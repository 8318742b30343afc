//! What an open ask to import would write, a page at a time, for whoever was shown the ask. It keeps no page and vouches
//! for nothing but that the patch is the one which the plan names.
use acp::{PatchFormat, PatchPage, PatchText};
use event::Digest;
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
    let found = desk.agent.patch(person, ask.session, ask.permission, form(format), offset).await;
    let found = found.map_err(|fault| refused("agent-svc", fault))?;
    read(found, wanted, format, offset).ok_or_else(|| {
        error!(session = %ask.session, permission = %ask.permission, "agent-svc shows another patch than was asked for");
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
    wanted: Digest,
    format: PatchFormat,
    offset: u64,
) -> Option<PatchPage> {
    let wire::GetPatchResponse { patch_digest, offset: begins, text, next_offset } = found;
    let digest = Digest::from_bytes(&patch_digest).ok()?;
    let text = PatchText::new(text).ok()?;
    let page = PatchPage::new(digest, format, begins, text, next_offset.is_some())?;
    (digest == wanted && begins == offset && page.next_offset() == next_offset).then_some(page)
}
