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
