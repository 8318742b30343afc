//! Policy files as a reviewer writes them, right and wrong, the rules they become, and what those decide.

#![expect(clippy::panic, reason = "a test fails by panicking")]

#[cfg(test)]
mod commands;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod lints;
#[cfg(test)]
mod network;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod printing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod tell;
mod trees;

use manifest::{Ceiling, Manifest, Rulebook};

/// A manifest that may modify everything and has these members besides.
fn manifest(members: &str) -> Manifest {
    let text =
        format!("id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['**']\n{members}\n");
    match Manifest::parse(text.as_bytes(), "a.yaml") {
        Ok(manifest) => manifest,
        Err(faults) => panic!("{faults}"),
    }
}

/// A ceiling with these members.
fn ceiling(members: &str) -> Ceiling {
    let text = format!("kind: ceiling\nid: c\n{members}\n");
    match Ceiling::parse(text.as_bytes(), "c.yaml") {
        Ok(ceiling) => ceiling,
        Err(faults) => panic!("{faults}"),
    }
}

/// No ceilings, and these permissions.
fn rulebook(permissions: &str) -> Rulebook {
    Rulebook::new(manifest(&format!("permissions:\n{permissions}")), None, None)
}
