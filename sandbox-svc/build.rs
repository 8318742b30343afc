//! Builds the first process of containers, which the service carries in itself: static, so that it runs in an
//! image that has nothing, and with none of the outer build's flags.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// What an outer cargo, or who called it, set for its own compilers.
const NOT_INHERITED: [&str; 7] = [
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
];

fn main() -> Result<(), Box<dyn Error>> {
    // The migrations are part of the binary, too.
    for path in ["build.rs", "migrations", "init/Cargo.toml", "init/src", "../Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let set = |name: &str| env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"));
    let out = PathBuf::from(set("OUT_DIR")?);
    let target = set("TARGET")?;
    let mut cargo = Command::new(set("CARGO")?);
    cargo.current_dir(set("CARGO_MANIFEST_DIR")?);
    cargo.args(["build", "--quiet", "--profile", "init", "--package", "sandbox-init"]);
    // All that it needs is on the machine: the library of the same package is a dependency of this one.
    cargo.args(["--bin", "sandbox-init", "--locked", "--offline"]);
    cargo.arg("--target").arg(&target).arg("--target-dir").arg(out.join("init"));
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", OsString::from("-Ctarget-feature=+crt-static"));
    let status = cargo.status()?;
    if !status.success() {
        let advice = "the containers' first process cannot be built; a static C library is needed \
                      (Debian: libc6-dev)";
        return Err(format!("{advice}: {status}").into());
    }
    let built = out.join("init").join(&target).join("init/sandbox-init");
    std::fs::copy(built, out.join("sandbox-init"))?;
    Ok(())
}
