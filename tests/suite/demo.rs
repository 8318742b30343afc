//! The demonstration as a person runs it; every field is what it saw.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

#[test]
fn the_demonstration_ends_with_every_claim_observed() -> Result<()> {
    let output =
        std::process::Command::new(e2e::programs()?.join("harness")).arg("demo").output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let document: Value =
        serde_json::from_slice(&output.stdout).with_context(|| told.into_owned())?;
    let wanted = json!({
        "schemaVersion": 1,
        "kind": "hostile-repository-demo",
        "ok": true,
        "approvals": ["process.exec", "patch.import"],
        "secretExcluded": true,
        "networkDenied": true,
        "hostUnchangedUntilApprovedImport": true,
        "exactlyOnceJournal": true,
        "staleHostImportBlocked": true,
        "redactedLedger": true,
        "ledgerVerified": true,
        "serviceRestarts": 2,
        "processes": 5,
    });
    let shown: serde_json::Map<String, Value> = wanted
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), document[name.as_str()].clone()))
        .collect();
    assert_eq!(Value::Object(shown), wanted);
    assert!(document["imageDigest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
    Ok(())
}
