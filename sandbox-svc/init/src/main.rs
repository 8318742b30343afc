//! The first process of a container. It waits for one frame, runs what the frame says, and tells truly how that
//! ended; it keeps nothing alive and follows no order that comes later, but for the signal to end.

mod forward;
mod signal;
mod spawn;
mod supervise;

use std::process::ExitCode;

use sandbox_init::{Frame, status};

fn main() -> ExitCode {
    let nothing_ran = ExitCode::from(status::NOTHING_RAN);
    let (Ok(()), Ok(signals)) = (spawn::close_up(), signal::Signals::watch()) else {
        return nothing_ran;
    };
    let Ok(frame) = spawn::input().map_err(Into::into).and_then(Frame::read) else {
        return nothing_ran;
    };
    forward::start();
    let trailer = supervise::run(&frame, &signals);
    let last_words = trailer.to_bytes(&frame.nonce);
    // On both, so that whoever listens knows that neither has more to say.
    spawn::tell(std::io::stdout(), &last_words);
    spawn::tell(std::io::stderr(), &last_words);
    ExitCode::from(status::of(&trailer))
}
