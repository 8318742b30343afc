//! sandbox-svc: environments, plans and executions of workspace tools.

use event::Digest;
use event::id::{CallId, ReceiptId, RunId};
use proto::common::v1::Tool;
use proto::sandbox::v1 as sandbox;
use proto::sandbox::v1::sandbox_service_client::SandboxServiceClient;
use receipt::Signed;
use tonic::Streaming;
use transport::{Fault, PeerChannel, deadline};

use super::{LONG, MAX_MESSAGE, SHORT, STREAM, Target, call, owner, signed};
use crate::store::Owner;

#[derive(Debug, Clone)]
pub(crate) struct Sandbox(SandboxServiceClient<PeerChannel>);

impl Sandbox {
    pub(super) fn new(channel: PeerChannel) -> Self {
        Self(SandboxServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE))
    }

    pub(super) async fn fence(
        &self,
        by: Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Vec<Tool>, Fault> {
        let request = sandbox::FenceRequest {
            owner: Some(owner(by)),
            grant: Some(signed(grant)),
            manifest: manifest.to_vec(),
        };
        Ok(self.0.clone().fence(deadline::request(request, SHORT)).await?.into_inner().tools)
    }

    /// Returns what is not in the run's copy.
    pub(crate) async fn open(
        &self,
        by: Owner,
        run: RunId,
    ) -> Result<Vec<sandbox::Withheld>, Fault> {
        let request =
            sandbox::OpenEnvironmentRequest { owner: Some(owner(by)), run_id: run.to_string() };
        let opened = self.0.clone().open_environment(deadline::request(request, LONG)).await?;
        Ok(opened.into_inner().withheld)
    }

    pub(crate) async fn close(&self, by: Owner, run: RunId) -> Result<(), Fault> {
        let request =
            sandbox::CloseEnvironmentRequest { owner: Some(owner(by)), run_id: run.to_string() };
        self.0.clone().close_environment(deadline::request(request, LONG)).await?;
        Ok(())
    }

    pub(crate) async fn plan(
        &self,
        by: Owner,
        target: Target,
        tool: &str,
        arguments: &[u8],
    ) -> Result<sandbox::PlanResponse, Fault> {
        let request = sandbox::PlanRequest {
            owner: Some(owner(by)),
            call: Some(call(target)),
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
        };
        Ok(self.0.clone().plan(deadline::request(request, LONG)).await?.into_inner())
    }

    pub(crate) async fn execute(
        &self,
        by: Owner,
        target: Target,
        (tool, arguments): (&str, &[u8]),
        plan: Digest,
        receipts: &[Vec<u8>],
        after_output_offset: u64,
    ) -> Result<Streaming<sandbox::ExecuteResponse>, Fault> {
        let request = sandbox::ExecuteRequest {
            owner: Some(owner(by)),
            call: Some(call(target)),
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
            plan_digest: plan.as_bytes().to_vec(),
            after_output_offset,
            receipts: receipts.to_vec(),
        };
        Ok(self.0.clone().execute(deadline::request(request, STREAM)).await?.into_inner())
    }

    pub(crate) async fn execution(
        &self,
        by: Owner,
        id: CallId,
    ) -> Result<sandbox::GetExecutionResponse, Fault> {
        let request =
            sandbox::GetExecutionRequest { owner: Some(owner(by)), call_id: id.to_string() };
        Ok(self.0.clone().get_execution(deadline::request(request, SHORT)).await?.into_inner())
    }

    /// A patch of a run: the one with this digest, or the present one or the newest that was imported; of it all, or
    /// these paths.
    pub(crate) async fn patch(
        &self,
        by: Owner,
        run: RunId,
        patch: Option<Digest>,
        paths: Vec<Vec<u8>>,
        form: sandbox::PatchForm,
    ) -> Result<Streaming<sandbox::GetPatchResponse>, Fault> {
        let request = sandbox::GetPatchRequest {
            owner: Some(owner(by)),
            run_id: run.to_string(),
            patch_digest: patch.map(|digest| digest.to_string()).unwrap_or_default(),
            paths,
            form: form.into(),
        };
        Ok(self.0.clone().get_patch(deadline::request(request, LONG)).await?.into_inner())
    }

    /// Returns once it is kept there for good.
    pub(crate) async fn revoke(
        &self,
        by: Owner,
        run: RunId,
        receipt: ReceiptId,
    ) -> Result<(), Fault> {
        let request = sandbox::RevokeReceiptRequest {
            owner: Some(owner(by)),
            run_id: run.to_string(),
            receipt_id: receipt.to_string(),
        };
        self.0.clone().revoke_receipt(deadline::request(request, SHORT)).await?;
        Ok(())
    }

    pub(crate) async fn cancel(&self, by: Owner, id: CallId) -> Result<(), Fault> {
        let request = sandbox::CancelRequest { owner: Some(owner(by)), call_id: id.to_string() };
        self.0.clone().cancel(deadline::request(request, SHORT)).await?;
        Ok(())
    }
}
