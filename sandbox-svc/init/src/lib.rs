//! What the service and the first process of a container say to each other: one frame in, one trailer out, and
//! the container's exit status. It only encodes and decodes.

mod frame;
pub mod status;
mod trailer;

pub use frame::{Command, Frame, FrameError, MAX_COMMANDS, MAX_FRAME, Nonce, Stdin};
pub use trailer::{End, Ended, Found, Sieve, Stop, Trailer};

/// Where the directory of the first process is bound, and the program in it.
pub const DIRECTORY: &str = "/.sbx";
pub const PROGRAM: &str = "/.sbx/sbx-init";

/// Where the broker's socket is bound, in a container that has a network.
pub const EGRESS_DIRECTORY: &str = "/.egress";
pub const EGRESS_SOCKET: &str = "/.egress/s";
/// Where commands find it, on the container's own loopback.
pub const PROXY_PORT: u16 = 3128;
