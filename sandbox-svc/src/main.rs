//! The process of sandbox-svc.

use clap::Parser as _;
use sandbox_svc::Purge;

fn main() -> std::process::ExitCode {
    if Purge::is_meant(std::env::args_os()) {
        return Purge::parse().main();
    }
    transport::main(transport::Service::SandboxSvc, sandbox_svc::bind)
}
