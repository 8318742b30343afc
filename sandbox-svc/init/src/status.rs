//! The container's own exit status, for whoever finds a container without having read its trailer. A command
//! cannot choose it: three statuses are the first process's own, and a command that ends with one of them is said
//! to have ended in a way that the status does not carry.

use crate::trailer::{End, Stop, Trailer};

/// No whole frame came, so nothing ran.
pub const NOTHING_RAN: u8 = 125;
/// The first process's clock ended the command.
pub const TIMED_OUT: u8 = 124;
/// Something ran; how it ended only the trailer says.
pub const NOT_CARRIED: u8 = 123;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const ENOENT: i32 = 2;

/// What the container exits with after `trailer`.
#[must_use]
pub fn of(trailer: &Trailer) -> u8 {
    if trailer.stop == Stop::TimeLimit {
        return TIMED_OUT;
    }
    let status = match trailer.ends.last().map(|last| last.end) {
        Some(End::Exited(code)) => code,
        Some(End::Signaled(signal)) => signal.saturating_add(128),
        Some(End::ExecFailed(ENOENT)) => NOT_FOUND,
        Some(End::ExecFailed(_)) => CANNOT_RUN,
        None => NOT_CARRIED,
    };
    match status {
        NOT_CARRIED..=NOTHING_RAN => NOT_CARRIED,
        status => status,
    }
}

#[cfg(test)]
mod tests {
    use super::{NOT_CARRIED, TIMED_OUT, of};
    use crate::trailer::{End, Ended, Stop, Trailer};

    fn status(stop: Stop, end: End) -> u8 {
        of(&Trailer { stop, ends: vec![Ended { end, duration_ms: 1 }] })
    }

    #[test]
    fn no_command_can_seem_not_to_have_run() {
        for code in 0..=u8::MAX {
            let expected = if (123..=125).contains(&code) { NOT_CARRIED } else { code };
            assert_eq!(status(Stop::None, End::Exited(code)), expected);
        }
        assert_eq!(status(Stop::None, End::Signaled(9)), 137);
        assert_eq!(status(Stop::TimeLimit, End::Signaled(9)), TIMED_OUT);
        assert_eq!(status(Stop::None, End::ExecFailed(2)), 127);
        assert_eq!(status(Stop::None, End::ExecFailed(13)), 126);
        assert_eq!(of(&Trailer { stop: Stop::Terminated, ends: Vec::new() }), NOT_CARRIED);
    }
}
