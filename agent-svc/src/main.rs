//! Runs agents: sessions, runs and approvals; holds no key, no engine and no way out.

use std::process::ExitCode;

use transport::Service;

fn main() -> ExitCode {
    transport::main(Service::AgentSvc, agent_svc::bind)
}
