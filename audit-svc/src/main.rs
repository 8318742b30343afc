//! The process: configuration, listeners, signals. What it serves is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    transport::main(transport::Service::AuditSvc, audit_svc::bind)
}
