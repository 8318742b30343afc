//! The methods about what a session holds: the patch that an ask would import, and the standing allows of its run.
use acp::{
    Failure, GrantListAnswer, GrantListParams, GrantRevokeAnswer, GrantRevokeParams, PatchFormat,
    PatchReadParams, RequestId, Seq,
};
use event::id::ReceiptId;

use super::job::Done;
use super::{Connection, reply};
use crate::refusal::Refusal;
use crate::{patch, standing};

impl Connection {
    pub(super) fn read_patch(
        &mut self,
        id: RequestId,
        params: &PatchReadParams,
    ) -> Result<(), Failure> {
        if !self.person.may_watch() {
            return Err(reply::refused(&Refusal::Forbidden));
        }
        let PatchReadParams { session_id, permission_id, digest, paths, format, offset } = params;
        let (session, known) = self.known(session_id.as_str())?;
        let (format, offset) = (format.unwrap_or(PatchFormat::V1), offset.map_or(0, Seq::get));
        let Some(permission_id) = permission_id else {
            let paths = paths.iter().map(|path| path.as_str().as_bytes().to_vec()).collect();
            let which = (*digest, paths);
            self.start(async move |desk, person| {
                let page = patch::page_of_run(&desk, &person, session, which, format, offset);
                Done::Reply(match page.await {
                    Ok(page) => reply::success(&id, &page),
                    Err(refusal) => reply::failure(Some(&id), &reply::refused(&refusal)),
                })
            });
            return Ok(());
        };
        // Only what was shown here: its plan says which patch it must be.
        let ask = known
            .ask(permission_id.as_str())
            .ok_or_else(|| reply::refused(&Refusal::PermissionNotFound))?
            .clone();
        self.start(async move |desk, person| {
            Done::Reply(match patch::page(&desk, &person, &ask, format, offset).await {
                Ok(page) => reply::success(&id, &page),
                Err(refusal) => reply::failure(Some(&id), &reply::refused(&refusal)),
            })
        });
        Ok(())
    }

    pub(super) fn list_grants(
        &mut self,
        id: RequestId,
        params: &GrantListParams,
    ) -> Result<(), Failure> {
        if !self.person.may_watch() {
            return Err(reply::refused(&Refusal::Forbidden));
        }
        let (session, _) = self.known(params.session_id.as_str())?;
        self.start(async move |desk, person| {
            Done::Reply(match standing::list(&desk, &person, session).await {
                Ok(grants) => reply::success(&id, &GrantListAnswer { grants }),
                Err(refusal) => reply::failure(Some(&id), &reply::refused(&refusal)),
            })
        });
        Ok(())
    }

    pub(super) fn revoke_grant(
        &mut self,
        id: RequestId,
        params: &GrantRevokeParams,
    ) -> Result<(), Failure> {
        self.acts()?;
        let (session, _) = self.known(params.session_id.as_str())?;
        let receipt = ReceiptId::parse(params.receipt_id.as_str()).ok();
        self.start(async move |desk, person| {
            let revoked = match receipt {
                Some(receipt) => standing::revoke(&desk, &person, session, receipt).await,
                // What is no id at all is answered like an id of nothing.
                None => Ok(GrantRevokeAnswer { revoked: false, pending: false }),
            };
            Done::Reply(match revoked {
                Ok(answer) => reply::success(&id, &answer),
                Err(refusal) => reply::failure(Some(&id), &reply::refused(&refusal)),
            })
        });
        Ok(())
    }
}
