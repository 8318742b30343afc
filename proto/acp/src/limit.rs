//! The dialect's names and sizes, in bytes. It never enforces them; the types and the sockets do.

/// The only protocol version spoken; it must match exactly.
pub const PROTOCOL_VERSION: &str = "harness/acp/1";
/// What `initialize` answers as `agentName`.
pub const AGENT_NAME: &str = "harness";
/// Where the gateway serves this dialect.
pub const PATH: &str = "/harness";

/// One frame and one message from a client.
pub const MAX_MESSAGE: usize = 1024 * 1024;
/// A message to a client: the largest event there can be, with its envelope.
pub const MAX_DELIVERY: usize = MAX_MESSAGE + 4096;
/// `session/prompt` content.
pub const MAX_CONTENT: usize = 512 * 1024;
/// `finalText` of a prompt's answer.
pub const MAX_FINAL_TEXT: usize = 512 * 1024;
/// One page of a patch's text; at worst each of its bytes is six in a message.
pub const MAX_PATCH_TEXT: usize = 128 * 1024;
/// Paths that `patch/read` may name.
pub const MAX_PATCH_PATHS: usize = 500;
/// Standing allows that `grant/list` may list.
pub const MAX_GRANTS: usize = 128;
/// Models that `initialize` may list.
pub const MAX_MODELS: usize = 128;
/// Requests of one client that wait for an answer.
pub const MAX_PENDING: usize = 128;
/// Messages that wait to be handled.
pub const MAX_QUEUED: usize = 128;
/// Sessions of one connection, in total.
pub const MAX_SESSIONS: usize = 32;

pub(crate) const MAX_ID: usize = 256;
pub(crate) const MAX_ERROR_MESSAGE: usize = 4096;
/// The largest integer that every JSON reader holds exactly, 2^53 - 1.
pub(crate) const MAX_SAFE: u64 = (1 << 53) - 1;
