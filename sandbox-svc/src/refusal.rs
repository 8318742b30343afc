//! Why a call is not carried out: facts about the call, told to the caller as an answer and to the ledger as
//! an event. Facts about the caller are in `error`.

use std::fmt;

use event::Differs;

/// A reason and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) detail: String,
    /// For the record: expected and found.
    pub(crate) differs: Option<Box<Differs>>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl fmt::Display) -> Self {
        Self { reason, detail: detail.to_string(), differs: None }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { detail: reason.sentence().to_owned(), reason, differs: None }
    }
}

/// The first names of `total`, for a sentence that must stay short.
pub(crate) fn named(shown: &[String], total: usize) -> String {
    let more = total.saturating_sub(shown.len());
    let names = shown.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// Stable names; clients act on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    GrantExpired,
    EnvironmentUnknown,
    EnvironmentLost,
    RunBusy,
    ToolUnknown,
    /// A child asks for what its profile lacks.
    ToolNotInProfile,
    ChildOpen,
    ArgumentsInvalid,
    PathInvalid,
    PathNotFound,
    PathNotReadable,
    CommandNotAllowed,
    CheckUnknown,
    CheckChanged,
    McpServerUnknown,
    McpNotListed,
    McpToolUnknown,
    McpToolChanged,
    /// It is ended, and may have done something before.
    McpServerFailed,
    McpRefused,
    PatchEmpty,
    PatchUnknown,
    PatchPathUnknown,
    UndoUnknown,
    HostChanged,
    ImageUnknown,
    ImageRefused,
    ImageUnreadable,
    ProgramNotFound,
    CeilingUnusable,
    WorkspaceTooLarge,
    ResultTooLarge,
    PlanHoldsSecret,
    PlanTooLarge,
    CallConflict,
    PlanUnknown,
    PlanArgumentsChanged,
    PlanStale,
    /// What `receipt` says of a plan that people did not allow.
    NotAdmitted(&'static str),
    ReceiptConsumed,
    StartDeadlinePassed,
    AuditUnavailable,
    ImportFailed,
    ImportIncomplete,
    DependencyUnknown,
    DependencyUnsafe,
    MountNotFound,
    MountUnsafe,
    MountWithheld,
    MountChanged,
    MountEdited,
    CursorStale,
    PatternInvalid,
    PathNotWritable,
    PathExists,
    EditEmpty,
    EditStale,
    EditNotText,
    EditNotPossible,
    EditTooLarge,
    EditFailed,
    EditIncomplete,
    ProposalChanged,
    QuarantineUnknown,
    QuarantineFull,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        self.texts().0
    }

    fn sentence(self) -> &'static str {
        self.texts().1
    }

    /// The stable name, and what it means.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::GrantExpired => ("GRANT_EXPIRED", "the session's grant has expired"),
            Self::EnvironmentUnknown => ("ENVIRONMENT_UNKNOWN", "the run has no open environment"),
            Self::EnvironmentLost => ("ENVIRONMENT_LOST", "the run's private copy is gone"),
            Self::RunBusy => ("RUN_BUSY", "another call of this run has not ended"),
            Self::ToolUnknown => ("TOOL_UNKNOWN", "the session has no such tool"),
            Self::ToolNotInProfile => {
                ("TOOL_NOT_IN_PROFILE", "a child of this profile does not have the tool")
            }
            Self::ChildOpen => ("CHILD_OPEN", "the run has a child that has not ended"),
            Self::ArgumentsInvalid => ("ARGUMENTS_INVALID", "the arguments do not fit the tool"),
            Self::PathInvalid => {
                ("PATH_INVALID", "the path does not name a place in the workspace")
            }
            Self::PathNotFound => {
                ("PATH_NOT_FOUND", "there is nothing of that name in the private copy")
            }
            Self::PathNotReadable => {
                ("PATH_NOT_READABLE", "what is there cannot be read as a file")
            }
            Self::CommandNotAllowed => {
                ("COMMAND_NOT_ALLOWED", "the manifest does not allow this program")
            }
            Self::CheckUnknown => ("CHECK_UNKNOWN", "the manifest has no check of that name"),
            Self::CheckChanged => {
                ("CHECK_CHANGED", "the check runs something else than was expected")
            }
            Self::McpServerUnknown => {
                ("MCP_SERVER_UNKNOWN", "the manifest names no tool server like that")
            }
            Self::McpNotListed => (
                "MCP_NOT_LISTED",
                "the server does not run, so nothing was called: it ends after ten idle minutes, a failure or a stop; call mcp_tools, then call again",
            ),
            Self::McpToolUnknown => {
                ("MCP_TOOL_UNKNOWN", "the manifest or the server does not offer the tool")
            }
            Self::McpToolChanged => {
                ("MCP_TOOL_CHANGED", "the tool is not what it was when the call was planned")
            }
            Self::McpServerFailed => {
                ("MCP_SERVER_FAILED", "the tool server did not answer as it must")
            }
            Self::McpRefused => ("MCP_REFUSED", "the tool server refused the request"),
            Self::PatchEmpty => ("PATCH_EMPTY", "nothing has changed"),
            Self::PatchUnknown => ("PATCH_UNKNOWN", "the present patch has another digest"),
            Self::PatchPathUnknown => ("PATCH_PATH_UNKNOWN", "the patch has nothing of that name"),
            Self::UndoUnknown => (
                "UNDO_UNKNOWN",
                "no import of that run into this workspace is kept; what it replaced is gone",
            ),
            Self::HostChanged => ("HOST_CHANGED", "the workspace changed since the copy was taken"),
            Self::ImageUnknown => ("IMAGE_UNKNOWN", "the engine has no such image"),
            Self::ImageRefused => ("IMAGE_REFUSED", "the image would do more than run the command"),
            Self::ImageUnreadable => {
                ("IMAGE_UNREADABLE", "it cannot be told what programs the image has")
            }
            Self::ProgramNotFound => ("PROGRAM_NOT_FOUND", "the command's program is not there"),
            Self::CeilingUnusable => {
                ("CEILING_UNUSABLE", "the tenant's ceiling cannot be used, so nothing is decided")
            }
            Self::WorkspaceTooLarge => {
                ("WORKSPACE_TOO_LARGE", "the private copy is larger than its limits")
            }
            Self::ResultTooLarge => {
                ("RESULT_TOO_LARGE", "the result is larger than a result may be")
            }
            Self::PlanHoldsSecret => ("PLAN_HOLDS_SECRET", "the plan holds what may not be shown"),
            Self::PlanTooLarge => ("PLAN_TOO_LARGE", "the plan is too large to be shown"),
            Self::CallConflict => ("CALL_CONFLICT", "the call is known with another request"),
            Self::PlanUnknown => ("PLAN_UNKNOWN", "this call has no such plan"),
            Self::PlanArgumentsChanged => {
                ("PLAN_ARGUMENTS_CHANGED", "the arguments are not those that were planned")
            }
            Self::PlanStale => ("PLAN_STALE", "what was planned is not what would happen now"),
            Self::NotAdmitted(reason) => (reason, "the plan is not admitted"),
            Self::ReceiptConsumed => {
                ("RECEIPT_CONSUMED", "the permission was used for another call")
            }
            Self::StartDeadlinePassed => {
                ("START_DEADLINE_PASSED", "the call was not to begin any more")
            }
            Self::AuditUnavailable => {
                ("AUDIT_UNAVAILABLE", "the ledger did not acknowledge the call in time")
            }
            Self::ImportFailed => {
                ("IMPORT_FAILED", "the patch could not be written; nothing has changed")
            }
            Self::ImportIncomplete => (
                "IMPORT_INCOMPLETE",
                "the patch could not be written, and not everything could be taken back",
            ),
            Self::DependencyUnknown => {
                ("DEPENDENCY_UNKNOWN", "this host has no dependency of that name")
            }
            Self::DependencyUnsafe => ("DEPENDENCY_UNSAFE", "a dependency cannot be mounted"),
            Self::MountNotFound => ("MOUNT_NOT_FOUND", "an allowed path does not exist"),
            Self::MountUnsafe => ("MOUNT_UNSAFE", "an allowed path cannot be mounted"),
            Self::MountWithheld => {
                ("MOUNT_WITHHELD", "an allowed path is or holds what no command may see")
            }
            Self::MountChanged => {
                ("MOUNT_CHANGED", "what is mounted is no longer what was planned; nothing ran")
            }
            Self::MountEdited => {
                ("MOUNT_EDITED", "the private copy holds changes where commands write directly")
            }
            Self::CursorStale => {
                ("CURSOR_STALE", "the cursor belongs to another request or to what is gone")
            }
            Self::PatternInvalid => {
                ("PATTERN_INVALID", "the query is no regular expression of lines")
            }
            Self::PathNotWritable => ("PATH_NOT_WRITABLE", "no file can be written there"),
            Self::PathExists => ("PATH_EXISTS", "something of that name is there"),
            Self::EditEmpty => ("EDIT_EMPTY", "nothing would change"),
            Self::EditStale => ("EDIT_STALE", "the file is not what the edit expects"),
            Self::EditNotText => ("EDIT_NOT_TEXT", "the file is not UTF-8 text"),
            Self::EditNotPossible => {
                ("EDIT_NOT_POSSIBLE", "what the edit is about is not in the file as it says")
            }
            Self::EditTooLarge => ("EDIT_TOO_LARGE", "the file is larger than an edit may make it"),
            Self::EditFailed => {
                ("EDIT_FAILED", "the edit could not be written; nothing has changed")
            }
            Self::EditIncomplete => (
                "EDIT_INCOMPLETE",
                "the edit could not be written, and not everything could be taken back",
            ),
            Self::ProposalChanged => {
                ("PROPOSAL_CHANGED", "the changes do not come to what was proposed")
            }
            Self::QuarantineUnknown => {
                ("QUARANTINE_UNKNOWN", "no file is kept under that quarantineId")
            }
            Self::QuarantineFull => {
                ("QUARANTINE_FULL", "the run keeps as many quarantined files as it may")
            }
        }
    }
}
