//! What is asked of a server: who it is, which tools it has, one call. Every request has an end, and one that is
//! given up is taken back in the protocol's words; whether the server heeds that, only its end tells.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ListToolsRequest,
    PaginatedRequestParams, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError,
};
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use transport::{CancellationToken, TaskTracker};

use super::definition::{BadTool, Definition};
use super::wire::{Broken, Shared, Wire};

const INITIALIZE: Duration = Duration::from_secs(30);
const LIST: Duration = Duration::from_secs(10);
/// What a server may list, and in how many pages.
const TOOLS: usize = 500;
const PAGES: usize = 20;
/// Taking a request back is a courtesy, and this is all it may take.
const COURTESY: Duration = Duration::from_millis(500);
const MESSAGE_CHARACTERS: usize = 300;

/// Of one call of this service, whatever is asked in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) until: Instant,
    /// What the server may write meanwhile.
    pub(crate) output: u64,
}

/// Why there is no answer, or none of use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the server did not answer {0} in time")]
    TimedOut(&'static str),
    #[error("the call was stopped")]
    Canceled,
    #[error(transparent)]
    Broken(Broken),
    /// The server's own words, cut.
    #[error("the server refused {step}: {message}")]
    Refused { step: &'static str, message: String },
    #[error("the server answered {0} with something else")]
    Unexpected(&'static str),
    #[error("the server lists more than {TOOLS} tools or {PAGES} pages")]
    TooMany,
    #[error("the server's list of tools cannot be used: {0}")]
    Tool(BadTool),
}

/// A conversation that has begun.
pub(crate) struct Client {
    service: RunningService<RoleClient, ()>,
    shared: Shared,
}

impl Client {
    /// Greets the server behind these streams.
    pub(crate) async fn open(
        reader: impl AsyncRead + Unpin + Send + 'static,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        limits: Limits,
        cancel: &CancellationToken,
        tracker: &TaskTracker,
    ) -> Result<Self, Failure> {
        let shared = Shared::default();
        shared.allowance.renew(limits.output);
        let wire = Wire::open(reader, writer, &shared, tracker);
        let until = limits.until.min(Instant::now() + INITIALIZE);
        let greeted = tokio::select! {
            greeted = timeout_at(until, ().serve(wire)) => greeted,
            () = cancel.cancelled() => return Err(Failure::Canceled),
        };
        match greeted {
            Ok(Ok(service)) => Ok(Self { service, shared }),
            Ok(Err(error)) => Err(not_greeted(error, &shared)),
            Err(_) => Err(Failure::TimedOut("initialize")),
        }
    }

    /// Every tool the server lists now, in the order of their names.
    pub(crate) async fn tools(
        &self,
        limits: Limits,
        cancel: &CancellationToken,
    ) -> Result<Vec<Definition>, Failure> {
        self.shared.allowance.renew(limits.output);
        let mut definitions: Vec<Definition> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ListToolsRequest::with_param(page);
            let until = limits.until.min(Instant::now() + LIST);
            let answer =
                self.ask(ClientRequest::from(request), "tools/list", until, cancel).await?;
            let ServerResult::ListToolsResult(page) = answer else {
                return Err(Failure::Unexpected("tools/list"));
            };
            for tool in &page.tools {
                definitions.push(Definition::of(tool).map_err(Failure::Tool)?);
            }
            if definitions.len() > TOOLS {
                return Err(Failure::TooMany);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                definitions.sort_by(|one, other| one.name.cmp(&other.name));
                let twice = definitions.windows(2).any(|pair| pair[0].name == pair[1].name);
                return if twice { Err(Failure::Tool(BadTool::Twice)) } else { Ok(definitions) };
            }
        }
        Err(Failure::TooMany)
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        limits: Limits,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, Failure> {
        self.shared.allowance.renew(limits.output);
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::from(CallToolRequest::new(params));
        match self.ask(request, "tools/call", limits.until, cancel).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(Failure::Unexpected("tools/call")),
        }
    }

    /// Ends the conversation; the server's own end is somebody else's to bring about.
    pub(crate) async fn close(mut self) {
        // Whatever came of the task: the streams are given up with it.
        if let Ok(Err(error)) = timeout(COURTESY, self.service.close()).await {
            tracing::warn!(%error, "a conversation with a tool server ended badly");
        }
    }

    async fn ask(
        &self,
        request: ClientRequest,
        step: &'static str,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<ServerResult, Failure> {
        let peer: &Peer<RoleClient> = self.service.peer();
        let options = PeerRequestOptions::no_options();
        let asked = timeout_at(until, peer.send_request_with_option(request, options)).await;
        let mut handle = match asked {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(self.failed(error, step)),
            Err(_) => return Err(Failure::TimedOut(step)),
        };
        let failure = tokio::select! {
            answer = &mut handle.rx => return match answer {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(error)) => Err(self.failed(error, step)),
                Err(_) => Err(self.failed(ServiceError::TransportClosed, step)),
            },
            () = tokio::time::sleep_until(until) => Failure::TimedOut(step),
            () = cancel.cancelled() => Failure::Canceled,
        };
        take_back(handle, &failure).await;
        Err(failure)
    }

    fn failed(&self, error: ServiceError, step: &'static str) -> Failure {
        match error {
            ServiceError::McpError(error) => refused(step, &error.message),
            _ => Failure::Broken(self.shared.broken.get().copied().unwrap_or(Broken::Closed)),
        }
    }
}

async fn take_back(handle: RequestHandle<RoleClient>, failure: &Failure) {
    let reason = failure.to_string();
    // A server that takes nothing in any more is ended all the same.
    match timeout(COURTESY, handle.cancel(Some(reason))).await {
        Ok(Ok(())) => (),
        Ok(Err(_)) | Err(_) => tracing::info!("a tool server was not told that it may stop"),
    }
}

fn not_greeted(error: ClientInitializeError, shared: &Shared) -> Failure {
    match error {
        ClientInitializeError::JsonRpcError(error) => refused("initialize", &error.message),
        error => match shared.broken.get() {
            Some(broken) => Failure::Broken(*broken),
            None if matches!(error, ClientInitializeError::ConnectionClosed(_)) => {
                Failure::Broken(Broken::Closed)
            }
            None => Failure::Unexpected("initialize"),
        },
    }
}

fn refused(step: &'static str, message: &str) -> Failure {
    Failure::Refused { step, message: message.chars().take(MESSAGE_CHARACTERS).collect() }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("shared", &self.shared).finish_non_exhaustive()
    }
}
