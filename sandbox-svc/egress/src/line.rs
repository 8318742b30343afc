//! What a broker says of each decision: one bounded JSON line. It names hosts and counts bytes, and never carries
//! what went through.

use serde::{Deserialize, Serialize};

use crate::hosts::BadTarget;

/// No line is longer, its end included.
pub const LINE_BYTES: usize = 2048;
/// A host is told in at most so many characters.
const HOST_CHARACTERS: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// Connections are taken from now on.
    Ready {},
    Refused {
        /// As far as it could be read.
        host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        reason: Reason,
    },
    /// Said before anything is dialled.
    Opened {
        id: u64,
        host: String,
        port: u16,
        rule: String,
    },
    Closed {
        id: u64,
        up: u64,
        down: u64,
        end: End,
    },
    /// Refused after the last that is told one by one.
    Untold {
        requests: u64,
    },
}

/// Why a request is refused; the value of `x-proxy-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    MethodNotAllowed,
    MalformedRequest,
    RequestTimeout,
    AddressLiteral,
    BadHost,
    NotAllowed,
    Unresolvable,
    AddressNotPublic,
    TooManyConnections,
    TooManyRequests,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MethodNotAllowed => "method_not_allowed",
            Self::MalformedRequest => "malformed_request",
            Self::RequestTimeout => "request_timeout",
            Self::AddressLiteral => "address_literal",
            Self::BadHost => "bad_host",
            Self::NotAllowed => "not_allowed",
            Self::Unresolvable => "unresolvable",
            Self::AddressNotPublic => "address_not_public",
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyRequests => "too_many_requests",
        }
    }

    /// One plain sentence for whoever asked, who may be a model.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::MethodNotAllowed => {
                "denied by policy, do not retry: this proxy takes CONNECT only; use https"
            }
            Self::MalformedRequest => "the request is not one CONNECT host:port",
            Self::RequestTimeout => "the request did not arrive in time",
            Self::AddressLiteral => {
                "denied by policy, do not retry: an address is not connected to; use a name that is allowed"
            }
            Self::BadHost => "denied by policy, do not retry: this is not a host name and a port",
            Self::NotAllowed => {
                "denied by policy, do not retry: this host and port are not among those that this task may reach"
            }
            Self::Unresolvable => "the host has no address",
            Self::AddressNotPublic => {
                "denied by policy, do not retry: the host is not on the public internet"
            }
            Self::TooManyConnections => "too many connections are open; close some first",
            Self::TooManyRequests => {
                "denied by policy, do not retry: this command has used up its connections"
            }
        }
    }

    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::MalformedRequest => "400 Bad Request",
            Self::RequestTimeout => "408 Request Timeout",
            Self::Unresolvable => "502 Bad Gateway",
            Self::AddressLiteral
            | Self::BadHost
            | Self::NotAllowed
            | Self::AddressNotPublic
            | Self::TooManyConnections
            | Self::TooManyRequests => "403 Forbidden",
        }
    }
}

impl From<BadTarget> for Reason {
    fn from(bad: BadTarget) -> Self {
        match bad {
            BadTarget::Address => Self::AddressLiteral,
            BadTarget::Form | BadTarget::Port | BadTarget::Name => Self::BadHost,
        }
    }
}

/// How a connection that was allowed ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Done,
    Broken,
    Idle,
    Stopped,
    ConnectFailed,
    UploadLimit,
    DownloadLimit,
    NotTls,
    ServerNameMissing,
    ServerNameOther,
}

impl End {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Broken => "broken",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::ConnectFailed => "connect_failed",
            Self::UploadLimit => "upload_limit",
            Self::DownloadLimit => "download_limit",
            Self::NotTls => "not_tls",
            Self::ServerNameMissing => "server_name_missing",
            Self::ServerNameOther => "server_name_other",
        }
    }

    /// What the caller sent first was not what it was allowed for, so nothing went out.
    pub fn is_denial(self) -> bool {
        matches!(self, Self::NotTls | Self::ServerNameMissing | Self::ServerNameOther)
    }
}

impl Line {
    /// With its end of line.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Text of a stranger: short, and nothing but printable ASCII.
pub(crate) fn told(bytes: &[u8]) -> String {
    let escaped = bytes.iter().copied().flat_map(std::ascii::escape_default).map(char::from);
    escaped.take(HOST_CHARACTERS).collect()
}
