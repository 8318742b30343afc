//! The process of sandbox-svc.

fn main() -> std::process::ExitCode {
    transport::main(transport::Service::SandboxSvc, sandbox_svc::bind)
}
