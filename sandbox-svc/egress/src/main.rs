//! The process of the egress broker.

fn main() -> std::process::ExitCode {
    egress::main()
}
