//! WebSocket as the dialect wants it: stricter than the protocol asks, bounded in every direction, and never closed
//! without saying why. It knows frames and text, not what the text means.
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod reader;
pub(crate) mod writer;

use std::time::Duration;

/// Time and room of one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For a frame or a fragmented message to be completed.
    pub(crate) incomplete: Duration,
    /// Without a byte taken by a peer for whom bytes wait.
    pub(crate) stall: Duration,
    /// For the goodbye.
    pub(crate) drain: Duration,
    /// Bytes that may wait to be sent.
    pub(crate) outbound: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            incomplete: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            drain: Duration::from_secs(1),
            outbound: 2 * acp::MAX_MESSAGE,
        }
    }
}

/// Why the gateway ends a connection, as the peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

impl Farewell {
    pub(crate) const GOING_AWAY: Self = Self::new(1001, "restarting; attach again with afterSeq");
    pub(crate) const INTERNAL: Self = Self::new(1011, "internal error");
    pub(crate) const SLOW: Self =
        Self::new(1013, "events are not taken in time; attach again with afterSeq");
    pub(crate) const SIGNED_OUT: Self = Self::new(4401, "the token is valid no longer");

    pub(crate) const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }
}
