//! The model-svc process.

use std::process::ExitCode;

fn main() -> ExitCode {
    transport::main(transport::Service::ModelSvc, model_svc::bind)
}
