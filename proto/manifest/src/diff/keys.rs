//! What two sets of files say differently beside their rules, key by key, and whether that gives more. It weighs
//! what is written; whether it ever mattered it does not ask.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;

use crate::decision::Layer;
use crate::execution::{Backend, Execution, Limits, Mode};
use crate::glob::Glob;
use crate::overlap::contains;
use crate::print::{approvers_text, duration, list, server_text};
use crate::requirement::Requirement;
use crate::rulebook::Rulebook;
use crate::schema::{Delivery, OnDisconnect};
use crate::server::Server;

/// A key that has another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    pub layer: Layer,
    /// As in the file, such as `execution.limits.memory`.
    pub key: String,
    pub before: String,
    pub after: String,
    /// It gives more, or something else of which that cannot be told.
    pub widening: bool,
}

struct Keys {
    layer: Layer,
    found: Vec<KeyChange>,
}

/// Every key with another value, of every layer.
pub fn diff_keys(old: &Rulebook, new: &Rulebook) -> Vec<KeyChange> {
    let mut found = Vec::new();
    for layer in [Layer::Organisation, Layer::Tenant, Layer::Manifest] {
        let mut keys = Keys { layer, found };
        keys.approvers(approvers(old, layer), approvers(new, layer));
        keys.protected(protected(old, layer), protected(new, layer));
        if layer == Layer::Manifest {
            keys.manifest(old, new);
        }
        found = keys.found;
    }
    found
}

fn approvers(rulebook: &Rulebook, layer: Layer) -> Option<&Requirement> {
    let sides = rulebook.sides();
    sides.into_iter().find(|side| side.layer == layer)?.policy.approvers.as_ref()
}

fn protected(rulebook: &Rulebook, layer: Layer) -> Option<&Vec<String>> {
    rulebook.ceiling(layer)?.protected_paths.as_ref()
}

impl Keys {
    fn change(&mut self, key: &str, before: impl Display, after: impl Display, widening: bool) {
        let (before, after) = (before.to_string(), after.to_string());
        if before != after {
            let key = key.to_owned();
            self.found.push(KeyChange { layer: self.layer, key, before, after, widening });
        }
    }

    fn approvers(&mut self, before: Option<&Requirement>, after: Option<&Requirement>) {
        let anybody = Requirement::default();
        let widening = !after.unwrap_or(&anybody).covers(before.unwrap_or(&anybody));
        let text =
            |who: Option<&Requirement>| who.map_or_else(|| "anybody".to_owned(), approvers_text);
        self.change("approvers", text(before), text(after), widening);
    }

    /// Whichever list comes in place of another, what only the other has is no longer protected.
    fn protected(&mut self, before: Option<&Vec<String>>, after: Option<&Vec<String>>) {
        let kept = match (before, after) {
            (Some(before), Some(after)) => before.iter().all(|entry| after.contains(entry)),
            _ => false,
        };
        let text = |paths: Option<&Vec<String>>| paths.map_or_else(|| "not given".to_owned(), list);
        self.change("protected_paths", text(before), text(after), !kept);
    }

    fn manifest(&mut self, old: &Rulebook, new: &Rulebook) {
        let (old, new) = (old.manifest(), new.manifest());
        let globs = |paths: &[String]| -> Vec<Glob> {
            let whole = |path: &String| {
                Glob::new(&if path.ends_with('/') { format!("{path}**") } else { path.clone() })
            };
            paths.iter().map(whole).collect()
        };
        let before = globs(&old.allowed_paths);
        let covered = |path: &Glob| before.iter().any(|outer| contains(outer, path));
        let wider = !globs(&new.allowed_paths).iter().all(covered);
        self.change("allowed_paths", list(&old.allowed_paths), list(&new.allowed_paths), wider);
        self.execution(&old.execution, &new.execution);
        let (before, after) = (old.budget, new.budget);
        self.most("budget.max_model_tokens", before.max_model_tokens, after.max_model_tokens);
        self.most("budget.max_tool_calls", before.max_tool_calls, after.max_tool_calls);
        self.most("budget.max_steps", before.max_steps, after.max_steps);
        self.longest("budget.max_wall_time", before.max_wall_time, after.max_wall_time);
        let wider = match (old.models.is_empty(), new.models.is_empty()) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => added(&old.models, &new.models),
        };
        self.change("models", list(&old.models), list(&new.models), wider);
        let (before, after) = (delivery(old.delivery), delivery(new.delivery));
        self.change("delivery.type", before.1, after.1, after.0 > before.0);
        let (before, after) = (old.interaction, new.interaction);
        let holds = |on: Option<OnDisconnect>| match on {
            Some(OnDisconnect::Hold) => "hold",
            Some(OnDisconnect::Deny) => "deny",
            None => "not given",
        };
        let (one, other) = (holds(before.on_disconnect), holds(after.on_disconnect));
        self.change("interaction.on_disconnect", one, other, other != "deny");
        self.longest(
            "interaction.permission_timeout",
            before.permission_timeout,
            after.permission_timeout,
        );
    }

    fn execution(&mut self, old: &Execution, new: &Execution) {
        let backend = |backend| if backend == Backend::Oci { "oci" } else { "none" };
        let wider = new.backend == Backend::Oci;
        self.change("execution.backend", backend(old.backend), backend(new.backend), wider);
        let mode = |mode| if mode == Mode::Mount { "mount" } else { "snapshot" };
        self.change("execution.mode", mode(old.mode), mode(new.mode), new.mode == Mode::Mount);
        let image =
            |image: &Option<String>| image.clone().unwrap_or_else(|| "not given".to_owned());
        // Another image has other programs.
        self.change("execution.image", image(&old.image), image(&new.image), new.image.is_some());
        for (key, before, after) in [
            ("execution.allow_commands", &old.allow_commands, &new.allow_commands),
            ("execution.dependencies", &old.dependencies, &new.dependencies),
        ] {
            self.change(key, list(before), list(after), added(before, after));
        }
        let names =
            old.checks.keys().chain(new.checks.keys().filter(|n| !old.checks.contains_key(*n)));
        for name in names {
            let (before, after) = (old.checks.get(name), new.checks.get(name));
            let text =
                |argv: Option<&Vec<String>>| argv.map_or_else(|| "not given".to_owned(), list);
            let key = format!("execution.checks.{name}");
            self.change(&key, text(before), text(after), after.is_some());
        }
        let names =
            old.servers.keys().chain(new.servers.keys().filter(|n| !old.servers.contains_key(*n)));
        for name in names {
            let (before, after) = (old.servers.get(name), new.servers.get(name));
            let text = |it: Option<&Server>| it.map_or_else(|| "not given".to_owned(), server_text);
            let key = format!("execution.servers.{name}");
            self.change(&key, text(before), text(after), gives_more(before, after));
        }
        for ((key, before), (_, after)) in limits(&old.limits).into_iter().zip(limits(&new.limits))
        {
            self.change(&format!("execution.limits.{key}"), before, after, after > before);
        }
        let (before, after) = (old.limits.time, new.limits.time);
        self.longest("execution.limits.time", Some(before), Some(after));
    }

    /// Absent does not limit.
    fn most(&mut self, key: &str, before: Option<u64>, after: Option<u64>) {
        let text =
            |limit: Option<u64>| limit.map_or_else(|| "not given".to_owned(), |n| n.to_string());
        self.change(key, text(before), text(after), more(before, after));
    }

    fn longest(&mut self, key: &str, before: Option<Duration>, after: Option<Duration>) {
        let text = |limit: Option<Duration>| limit.map_or_else(|| "not given".to_owned(), duration);
        self.change(key, text(before), text(after), more(before, after));
    }
}

/// Another command is another server.
fn gives_more(before: Option<&Server>, after: Option<&Server>) -> bool {
    let (before, after) = match (before, after) {
        (_, None) => return false,
        (None, Some(_)) => return true,
        (Some(before), Some(after)) => (before, after),
    };
    before.argv != after.argv
        || added(&before.tools, &after.tools)
        || more(before.timeout, after.timeout)
        || more(before.output, after.output)
}

fn more<T: PartialOrd>(before: Option<T>, after: Option<T>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => after > before,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn added(before: &[String], after: &[String]) -> bool {
    !after.iter().all(|entry| before.contains(entry))
}

fn delivery(delivery: Delivery) -> (u8, &'static str) {
    match delivery {
        Delivery::None => (0, "none"),
        Delivery::Artifact => (1, "artifact"),
        Delivery::PullRequest => (2, "pull_request"),
        Delivery::Merge => (3, "merge"),
    }
}

fn limits(limits: &Limits) -> [(&'static str, u64); 8] {
    let Limits {
        memory,
        pids,
        cpus_milli,
        time: _,
        output,
        workspace_bytes,
        workspace_inodes,
        file_bytes,
        tmp_bytes,
    } = *limits;
    [
        ("memory", memory),
        ("pids", pids),
        ("cpus_milli", cpus_milli),
        ("output", output),
        ("workspace_bytes", workspace_bytes),
        ("workspace_inodes", workspace_inodes),
        ("file_bytes", file_bytes),
        ("tmp_bytes", tmp_bytes),
    ]
}
