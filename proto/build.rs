//! Compiles the schema with protox, so that no `protoc` is needed, and gates each stub by its feature.
use prost::Message as _;

const SERVICES: [&str; 4] = ["agent", "sandbox", "model", "audit"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=harness");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let files: Vec<String> = std::iter::once("common")
        .chain(SERVICES)
        .map(|name| format!("harness/{name}/v1/{name}.proto"))
        .collect();
    let set = protox::compile(files, ["."])?;
    std::fs::write(out.join("descriptor.bin"), set.encode_to_vec())?;

    let mut build = tonic_prost_build::configure().build_transport(false);
    for name in SERVICES {
        let package = format!("harness.{name}.v1");
        build = build
            .client_mod_attribute(&package, format!("#[cfg(feature = \"{name}-client\")]"))
            .server_mod_attribute(&package, format!("#[cfg(feature = \"{name}-server\")]"));
    }
    build.compile_fds(set)?;
    Ok(())
}
