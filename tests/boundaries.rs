//! Holds the dependency table of docs/ARCHITECTURE.md in both directions: what a crate may link, and that a row
//! which no longer applies goes. It reads `cargo tree` and the manifests; it never looks at code.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const SERVICES: [&str; 5] = ["gateway", "agent-svc", "sandbox-svc", "model-svc", "audit-svc"];

/// A crate that only its holders may link, directly or not.
struct Capability {
    krate: &'static str,
    holders: &'static [&'static str],
    why: &'static str,
}

const CAPABILITIES: &[Capability] = &[
    Capability {
        krate: "bollard",
        holders: &["sandbox-svc"],
        why: "the engine's socket is root on its host",
    },
    Capability {
        krate: "rmcp",
        holders: &["sandbox-svc"],
        why: "tool servers are spoken to where they are contained",
    },
    Capability { krate: "reqwest", holders: &["model-svc"], why: "one way out to the internet" },
    Capability {
        krate: "secrecy",
        holders: &["model-svc"],
        why: "one holder of third-party credentials",
    },
    Capability {
        krate: "sqlx",
        holders: &["agent-svc", "sandbox-svc", "model-svc", "audit-svc"],
        why: "each store has one writer",
    },
    Capability {
        krate: "tokio-tungstenite",
        holders: &["gateway", "acp", "harness"],
        why: "the only face to people",
    },
    Capability {
        krate: "egress",
        holders: &["sandbox-svc"],
        why: "one starter of brokers agrees with them on their work",
    },
    Capability { krate: "rcgen", holders: &["harness"], why: "no service mints identities" },
    Capability {
        krate: "ledger",
        holders: &["audit-svc", "harness"],
        why: "one keeper, one verifier",
    },
    Capability {
        krate: "kernel",
        holders: &["agent-svc"],
        why: "one process decides what a run does next",
    },
    Capability {
        krate: "sandbox-init",
        holders: &["sandbox-svc"],
        why: "one maker of containers tells their first process what to run",
    },
    Capability {
        krate: "manifest",
        holders: &["gateway", "agent-svc", "sandbox-svc", "model-svc", "harness"],
        why: "the ledger knows no policy",
    },
    Capability {
        krate: "acp",
        holders: &["gateway", "harness"],
        why: "people's dialect ends at the gateway",
    },
];

/// Crates that decide and never act, and what they must not reach.
const PURE: [&str; 5] = ["kernel", "ledger", "event", "manifest", "receipt"];
const EFFECTFUL: [&str; 10] = [
    "tokio",
    "tonic",
    "hyper",
    "mio",
    "socket2",
    "rustls",
    "sqlx-core",
    "reqwest",
    "proto",
    "transport",
];

/// Who may call whom: the client stubs that each service asks `proto` for, and the one server stub it has.
const CALLS: [(&str, &[&str]); 5] = [
    ("gateway", &["agent-client", "audit-client"]),
    ("agent-svc", &["agent-server", "audit-client", "model-client", "sandbox-client"]),
    ("sandbox-svc", &["audit-client", "sandbox-server"]),
    ("model-svc", &["audit-client", "model-server"]),
    ("audit-svc", &["audit-server"]),
];

/// Never anywhere: a second TLS stack or crypto provider.
const BANNED: [&str; 4] = ["openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

/// Never anywhere: what would run a repository's own programs, or unpack an archive for a tree.
const REPOSITORY_READERS: [&str; 6] = ["git2", "libgit2-sys", "gix", "gitoxide", "zip", "tar"];

#[test]
fn capabilities_stay_with_their_holders() {
    let mut faults = Vec::new();
    for krate in ours() {
        let reached = reaches(&krate);
        for capability in CAPABILITIES {
            if krate == capability.krate || krate == "e2e" {
                continue;
            }
            let holds = capability.holders.contains(&krate.as_str());
            if reached.contains(capability.krate) && !holds {
                faults.push(format!("{krate} links {}: {}", capability.krate, capability.why));
            }
            if holds && !reached.contains(capability.krate) {
                faults.push(format!("{krate} no longer links {}: drop its row", capability.krate));
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn pure_crates_reach_nothing_that_acts() {
    let mut faults = Vec::new();
    for krate in PURE {
        let reached = reaches(krate);
        faults.extend(
            EFFECTFUL
                .iter()
                .filter(|name| reached.contains(**name))
                .map(|name| format!("{krate} reaches {name}")),
        );
    }
    assert_eq!(faults, Vec::<String>::new());
}

/// It is in every container beside hostile programs, and built by every build of the service.
#[test]
fn the_first_process_of_a_container_links_next_to_nothing() {
    let linked = [
        "bitflags",
        "errno",
        "libc",
        "linux-raw-sys",
        "rustix",
        "signal-hook",
        "signal-hook-registry",
    ];
    assert_eq!(reaches("sandbox-init"), linked.map(str::to_owned).into());
}

#[test]
fn the_egress_broker_reaches_nothing_worth_taking() {
    let reached = reaches("egress");
    let forbidden =
        ["bollard", "sqlx", "proto", "transport", "tonic", "event", "manifest", "receipt"];
    let found: Vec<_> = forbidden.into_iter().filter(|name| reached.contains(*name)).collect();
    assert_eq!(found, Vec::<&str>::new());
}

#[test]
fn kernel_and_ledger_stay_without_std() {
    for root in ["agent-svc/kernel/src", "audit-svc/ledger/src"] {
        let root = workspace().join(root);
        let lib = std::fs::read_to_string(root.join("lib.rs")).expect("lib.rs is readable");
        assert!(
            lib.contains("#![no_std]") || lib.contains("#![cfg_attr(not(test), no_std)]"),
            "{root:?}"
        );
        for file in std::fs::read_dir(&root).expect("the folder is readable") {
            let text =
                std::fs::read_to_string(file.expect("an entry").path()).expect("a source file");
            assert!(
                !text.lines().any(|line| line.trim_start().starts_with("extern crate std")),
                "{root:?}"
            );
        }
    }
}

#[test]
fn services_meet_only_on_the_wire() {
    let mut faults = Vec::new();
    for krate in ours().into_iter().filter(|krate| krate != "e2e") {
        let reached = reaches(&krate);
        faults.extend(
            SERVICES
                .iter()
                .filter(|name| reached.contains(**name))
                .map(|name| format!("{krate} links the service {name}")),
        );
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn each_service_names_only_the_calls_it_makes() {
    let asked = proto_features();
    let wanted: BTreeMap<String, BTreeSet<String>> = CALLS
        .iter()
        .map(|(service, features)| {
            ((*service).to_owned(), features.iter().map(|name| (*name).to_owned()).collect())
        })
        .collect();
    let services: BTreeMap<_, _> =
        asked.into_iter().filter(|(krate, _)| SERVICES.contains(&krate.as_str())).collect();
    assert_eq!(services, wanted);
}

/// A tool server is reached over two streams: no part of the protocol's library that opens a connection, starts a
/// process or serves is built.
#[test]
fn rmcp_comes_without_its_ways_out() {
    let holders: Vec<_> = packages()
        .into_iter()
        .filter_map(|package| {
            let rmcp = dependencies(&package, None).find(|it| it["name"] == "rmcp")?.clone();
            Some((name(&package), rmcp["uses_default_features"].clone(), rmcp["features"].clone()))
        })
        .collect();
    let expected =
        ("sandbox-svc".to_owned(), serde_json::json!(false), serde_json::json!(["client"]));
    assert_eq!(holders, [expected]);
}

#[test]
fn axum_is_named_by_the_gateway_alone() {
    let named: Vec<String> = packages()
        .into_iter()
        .filter(|package| {
            dependencies(package, None).any(|dependency| dependency["name"] == "axum")
        })
        .map(|package| name(&package))
        .collect();
    assert_eq!(named, ["gateway"]);
}

#[test]
fn one_crypto_provider_in_the_whole_tree() {
    let all: BTreeSet<String> = ours().iter().flat_map(|krate| reaches(krate)).collect();
    let found: Vec<&str> = BANNED.into_iter().filter(|name| all.contains(*name)).collect();
    assert_eq!(found, Vec::<&str>::new());
}

#[test]
fn nothing_reads_a_repository_as_git_does_and_nothing_unpacks_an_archive() {
    let all: BTreeSet<String> = ours().iter().flat_map(|krate| reaches(krate)).collect();
    let found: Vec<&str> =
        REPOSITORY_READERS.into_iter().filter(|name| all.contains(*name)).collect();
    assert_eq!(found, Vec::<&str>::new());
}

/// The names of every crate that `krate` links or builds with, all its features on.
fn reaches(krate: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args([
            "tree",
            "--locked",
            "--offline",
            "--prefix",
            "none",
            "--edges",
            "normal,build",
            "--package",
            krate,
        ])
        // acp's client is a feature; a service that turned `transport/issue` on would show it by itself.
        .args(if krate == "acp" { ["--all-features"].as_slice() } else { &[] })
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .expect("cargo prints UTF-8")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|found| *found != krate)
        .map(str::to_owned)
        .collect()
}

fn proto_features() -> BTreeMap<String, BTreeSet<String>> {
    packages()
        .iter()
        .filter_map(|package| {
            let proto =
                dependencies(package, None).find(|dependency| dependency["name"] == "proto")?;
            let features = proto["features"].as_array().expect("features").iter();
            let features =
                features.map(|feature| feature.as_str().expect("a name").to_owned()).collect();
            Some((name(package), features))
        })
        .collect()
}

/// The dependencies of one kind: `None` is normal, `Some("dev")` and `Some("build")` the others.
fn dependencies<'a>(
    package: &'a serde_json::Value,
    kind: Option<&'a str>,
) -> impl Iterator<Item = &'a serde_json::Value> {
    let all = package["dependencies"].as_array().expect("dependencies").iter();
    all.filter(move |dependency| dependency["kind"].as_str() == kind)
}

fn ours() -> Vec<String> {
    packages().iter().map(name).collect()
}

fn name(package: &serde_json::Value) -> String {
    package["name"].as_str().expect("a package has a name").to_owned()
}

fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn workspace() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package sits in the workspace")
}
