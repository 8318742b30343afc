//! Writes a manifest or a ceiling out again, every text quoted: what is read from it is what was written. Layout
//! and remarks are not kept.

use std::fmt::Write as _;
use std::time::Duration;

use crate::ceiling::Ceiling;
use crate::execution::{Backend, Execution, Limits, Mode};
use crate::policy::{Pattern, Policy, Rule};
use crate::policy_test::{Example, PolicyTest};
use crate::requirement::Requirement;
use crate::schema::{Budget, Delivery, Interaction, Manifest, OnDisconnect};
use crate::server::Server;

/// The manifest's text; reading it gives the same manifest under another digest.
pub fn print(manifest: &Manifest) -> String {
    let Manifest { id, title, goal, acceptance, allowed_paths, .. } = manifest;
    let mut out = Out::default();
    out.line(0, format_args!("id: {}", quoted(id)));
    out.line(0, format_args!("title: {}", quoted(title)));
    out.line(0, format_args!("goal: {}", quoted(goal)));
    out.line(0, format_args!("acceptance: {}", list(acceptance)));
    out.line(0, format_args!("allowed_paths: {}", list(allowed_paths)));
    out.policy(&manifest.policy, true);
    out.tests(&manifest.tests);
    out.budget(&manifest.budget);
    let delivery = match manifest.delivery {
        Delivery::PullRequest => "pull_request",
        Delivery::Merge => "merge",
        Delivery::Artifact => "artifact",
        Delivery::None => "none",
    };
    out.line(0, format_args!("delivery: {{type: {delivery}}}"));
    out.execution(&manifest.execution);
    out.interaction(&manifest.interaction);
    if !manifest.models.is_empty() {
        out.line(0, format_args!("models: {}", list(&manifest.models)));
    }
    out.0
}

/// As [`print()`], of a ceiling.
pub fn print_ceiling(ceiling: &Ceiling) -> String {
    let mut out = Out::default();
    out.line(0, format_args!("kind: ceiling"));
    out.line(0, format_args!("id: {}", quoted(&ceiling.id)));
    if let Some(title) = &ceiling.title {
        out.line(0, format_args!("title: {}", quoted(title)));
    }
    out.policy(&ceiling.policy, false);
    out.tests(&ceiling.tests);
    if let Some(paths) = &ceiling.protected_paths {
        out.line(0, format_args!("protected_paths: {}", list(paths)));
    }
    out.0
}

#[derive(Default)]
struct Out(String);

impl Out {
    fn line(&mut self, depth: usize, text: std::fmt::Arguments<'_>) {
        self.0.extend(std::iter::repeat_n("  ", depth));
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{text}");
    }

    fn policy(&mut self, policy: &Policy, required: bool) {
        let Policy { rules, hard_deny, approvers } = policy;
        if rules.is_empty() && required {
            self.line(0, format_args!("permissions: {{}}"));
        } else if !rules.is_empty() {
            self.line(0, format_args!("permissions:"));
        }
        for (action, rule) in rules {
            match rule {
                Rule::Flat { effect, at: _ } => {
                    self.line(1, format_args!("{action}: {}", effect.as_str()));
                }
                Rule::Patterns { .. } => {
                    self.line(1, format_args!("{action}:"));
                    for pattern in rule.all() {
                        self.line(2, format_args!("{}: {}", quoted(&pattern.text), terms(pattern)));
                    }
                }
            }
        }
        if !hard_deny.is_empty() {
            self.line(0, format_args!("hard_deny:"));
        }
        for (action, patterns) in hard_deny {
            let texts: Vec<_> = patterns.iter().map(|pattern| pattern.text.clone()).collect();
            self.line(1, format_args!("{action}: {}", list(&texts)));
        }
        if let Some(requirement) = approvers {
            self.line(0, format_args!("approvers: {}", approvers_text(requirement)));
        }
    }

    fn tests(&mut self, tests: &[PolicyTest]) {
        if !tests.is_empty() {
            self.line(0, format_args!("tests:"));
        }
        for PolicyTest { action, on, expect, rule, at: _ } in tests {
            let on = match on {
                Example::Nothing => String::new(),
                Example::Subject(subject) => format!(", subject: {}", quoted(subject)),
                Example::Argv(argv) => format!(", argv: {}", list(argv)),
            };
            let rule =
                rule.as_ref().map_or_else(String::new, |rule| format!(", rule: {}", quoted(rule)));
            let expect = expect.as_str();
            self.line(1, format_args!("- {{action: {action}{on}, expect: {expect}{rule}}}"));
        }
    }

    fn budget(&mut self, budget: &Budget) {
        let Budget { max_model_tokens, max_tool_calls, max_steps, max_wall_time } = budget;
        let number =
            |name: &str, value: &Option<u64>| value.map(|value| format!("{name}: {value}"));
        let members: Vec<String> = [
            number("max_model_tokens", max_model_tokens),
            number("max_tool_calls", max_tool_calls),
            number("max_steps", max_steps),
            max_wall_time.map(|time| format!("max_wall_time: {}", duration(time))),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !members.is_empty() {
            self.line(0, format_args!("budget: {{{}}}", members.join(", ")));
        }
    }

    fn execution(&mut self, execution: &Execution) {
        let Execution {
            backend,
            mode,
            image,
            allow_commands,
            checks,
            servers,
            limits,
            dependencies,
        } = execution;
        let backend = match backend {
            Backend::Oci => "oci",
            Backend::None => "none",
        };
        let mode = match mode {
            Mode::Snapshot => "snapshot",
            Mode::Mount => "mount",
        };
        self.line(0, format_args!("execution:"));
        self.line(1, format_args!("backend: {backend}"));
        self.line(1, format_args!("mode: {mode}"));
        if let Some(image) = image {
            self.line(1, format_args!("image: {}", quoted(image)));
        }
        self.line(1, format_args!("allow_commands: {}", list(allow_commands)));
        if !checks.is_empty() {
            self.line(1, format_args!("checks:"));
        }
        for (name, argv) in checks {
            self.line(2, format_args!("{}: {}", quoted(name), list(argv)));
        }
        if !servers.is_empty() {
            self.line(1, format_args!("servers:"));
        }
        for (name, server) in servers {
            self.line(2, format_args!("{}: {}", quoted(name), server_text(server)));
        }
        self.limits(limits);
        self.line(1, format_args!("dependencies: {}", list(dependencies)));
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits {
            memory,
            pids,
            cpus_milli,
            time,
            output,
            workspace_bytes,
            workspace_inodes,
            file_bytes,
            tmp_bytes,
        } = limits;
        let cpus = format!("{}.{:03}", cpus_milli / 1_000, cpus_milli % 1_000);
        let time = duration(*time);
        self.line(1, format_args!("limits:"));
        self.line(2, format_args!("memory: {memory}"));
        self.line(2, format_args!("pids: {pids}"));
        self.line(2, format_args!("cpus: {}", quoted(&cpus)));
        self.line(2, format_args!("time: {time}"));
        self.line(2, format_args!("output: {output}"));
        self.line(2, format_args!("workspace_bytes: {workspace_bytes}"));
        self.line(2, format_args!("workspace_inodes: {workspace_inodes}"));
        self.line(2, format_args!("file_bytes: {file_bytes}"));
        self.line(2, format_args!("tmp_bytes: {tmp_bytes}"));
    }

    fn interaction(&mut self, interaction: &Interaction) {
        let Interaction { on_disconnect, permission_timeout, at: _ } = interaction;
        let on_disconnect = on_disconnect.map(|on_disconnect| match on_disconnect {
            OnDisconnect::Deny => "on_disconnect: deny".to_owned(),
            OnDisconnect::Hold => "on_disconnect: hold".to_owned(),
        });
        let timeout = permission_timeout.map(|t| format!("permission_timeout: {}", duration(t)));
        let members: Vec<String> = [on_disconnect, timeout].into_iter().flatten().collect();
        if !members.is_empty() {
            self.line(0, format_args!("interaction: {{{}}}", members.join(", ")));
        }
    }
}

fn terms(pattern: &Pattern) -> String {
    let terms = &pattern.terms;
    let effect = terms.effect.as_str();
    let members: Vec<String> = [
        terms.id.as_ref().map(|id| format!("id: {}", quoted(id))),
        terms.interpreter.then(|| "class: interpreter".to_owned()),
        terms.justification.as_ref().map(|text| format!("justification: {}", quoted(text))),
        terms.approvers.as_ref().map(|who| format!("approvers: {}", approvers_text(who))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if members.is_empty() {
        return effect.to_owned();
    }
    format!("{{effect: {effect}, {}}}", members.join(", "))
}

pub(crate) fn approvers_text(requirement: &Requirement) -> String {
    let Requirement { roles, not_requester, count, signature } = requirement;
    let mut members = vec![format!("count: {count}")];
    if !roles.is_empty() {
        members.push(format!("roles: {}", list(roles)));
    }
    if *not_requester {
        members.push("not: requester".to_owned());
    }
    if *signature {
        members.push("signature: true".to_owned());
    }
    format!("{{{}}}", members.join(", "))
}

pub(crate) fn server_text(server: &Server) -> String {
    let Server { argv, tools, timeout, output } = server;
    let timeout = timeout.map_or_else(String::new, |it| format!(", timeout: {}", duration(it)));
    let output = output.map_or_else(String::new, |it| format!(", output: {it}"));
    format!("{{command: {}, tools: {}{timeout}{output}}}", list(argv), list(tools))
}

pub(crate) fn list<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A time that was read is whole milliseconds.
pub(crate) fn duration(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Between double quotes, with everything escaped that a reader might take otherwise.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if character.is_control()
                || crate::names::is_ignorable(character)
                || matches!(character, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}') =>
            {
                // Writing to a string does not fail.
                let _ = write!(out, "\\U{:08X}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}
