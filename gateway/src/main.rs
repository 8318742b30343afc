//! The gateway's process; everything it does is in the library.
use std::process::ExitCode;

fn main() -> ExitCode {
    transport::main(transport::Service::Gateway, gateway::bind)
}
