//! The standing allows of a run, listed and taken back. It never decides which.
use event::id::{ReceiptId, SessionId};

use super::{CallError, Client};
use crate::grants::{GrantListParams, GrantRevokeParams, RunGrant};
use crate::method::{GrantList, GrantRevoke};

impl Client {
    /// What still stands, in the order it was given. Only where `sessions` was offered.
    pub async fn grant_list(&self, session: SessionId) -> Result<Vec<RunGrant>, CallError> {
        let params = GrantListParams { session_id: session.into() };
        Ok(self.call::<GrantList>(params).await?.grants)
    }

    /// Whether it stood until now. Only where `sessions` was offered.
    pub async fn grant_revoke(
        &self,
        session: SessionId,
        receipt: ReceiptId,
    ) -> Result<bool, CallError> {
        let params = GrantRevokeParams { session_id: session.into(), receipt_id: receipt.into() };
        Ok(self.call::<GrantRevoke>(params).await?.revoked)
    }
}
