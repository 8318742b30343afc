//! The program `harness`.
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(std::env::args_os())
}
