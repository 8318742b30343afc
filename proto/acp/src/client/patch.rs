//! What an ask to import would write, page after page, up to as much as the caller wants to hold. It never shows it.
use event::Digest;
use event::id::{PermissionId, SessionId};
use serde::de::Error as _;

use super::{CallError, Client};
use crate::method::PatchRead;
use crate::number::Seq;
use crate::params::PatchReadParams;
use crate::patch::{PatchFormat, PatchPage};
use crate::text::WorkspaceName;

/// A patch's text from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchText {
    /// To be compared with the digest in the plan that is asked about.
    pub digest: Digest,
    pub text: String,
    /// False where there is more than the caller wanted.
    pub complete: bool,
}

impl Client {
    /// One page of the patch that this open ask would import, `offset` being 0 or where an earlier page ended. Only
    /// where `sessions` was offered.
    pub async fn patch_read(
        &self,
        session: SessionId,
        permission: PermissionId,
        format: PatchFormat,
        offset: u64,
    ) -> Result<PatchPage, CallError> {
        let offset = Seq::try_from(offset).map_err(|_| wrong("the offset is no place"))?;
        let params = PatchReadParams {
            session_id: session.into(),
            permission_id: Some(permission.into()),
            digest: None,
            paths: Vec::new(),
            // What it has always meant needs no word.
            format: (format != PatchFormat::V1).then_some(format),
            offset: Some(offset),
        };
        self.page(params, format, offset).await
    }

    /// One page of a patch of a session's run, the paths being all of it where there are none.
    pub async fn run_patch_read(
        &self,
        session: SessionId,
        digest: Option<Digest>,
        paths: Vec<WorkspaceName>,
        format: PatchFormat,
        offset: u64,
    ) -> Result<PatchPage, CallError> {
        let offset = Seq::try_from(offset).map_err(|_| wrong("the offset is no place"))?;
        let params = PatchReadParams {
            session_id: session.into(),
            permission_id: None,
            digest,
            paths,
            format: Some(format),
            offset: Some(offset),
        };
        let page = self.page(params, format, offset).await?;
        if digest.is_some_and(|digest| digest != page.patch_digest) {
            return Err(wrong("the page is of another patch"));
        }
        Ok(page)
    }

    async fn page(
        &self,
        params: PatchReadParams,
        format: PatchFormat,
        offset: Seq,
    ) -> Result<PatchPage, CallError> {
        let page = self.call::<PatchRead>(params).await?;
        if page.format != format {
            return Err(wrong("the page is written otherwise"));
        }
        if page.offset() != offset.get() {
            return Err(wrong("the page begins elsewhere"));
        }
        Ok(page)
    }

    /// Reads pages until the end or until `most` bytes are there; a page is never cut.
    pub async fn patch_text(
        &self,
        session: SessionId,
        permission: PermissionId,
        most: usize,
    ) -> Result<PatchText, CallError> {
        let first = self.patch_read(session, permission, PatchFormat::V1, 0).await?;
        let digest = first.patch_digest;
        let (mut text, mut next) = (first.text().to_owned(), first.next_offset());
        while let Some(offset) = next.filter(|_| text.len() < most) {
            let page = self.patch_read(session, permission, PatchFormat::V1, offset).await?;
            if page.patch_digest != digest {
                return Err(wrong("the pages are of two patches"));
            }
            text.push_str(page.text());
            next = page.next_offset();
        }
        Ok(PatchText { digest, text, complete: next.is_none() })
    }
}

fn wrong(what: &str) -> CallError {
    CallError::InvalidAnswer(serde_json::Error::custom(what))
}
