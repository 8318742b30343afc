//! The text that a new task begins with. It allows little and says why.

/// A manifest with remarks; it is read without a fault when `id` is words of a-z and 0-9 joined by single
/// hyphens.
pub fn starter(id: &str) -> String {
    format!(
        r#"# What this task may do. Everything that no rule names asks. See docs/manifest.md for every key.
id: "{id}"
title: Say what this is about
goal: Say what is to be reached, and what is not part of it.
acceptance:
  - Say how one sees that it is done

# What the task may modify; all else is denied whatever the rules say.
allowed_paths:
  - src/**

permissions:
  fs.list: allow
  fs.read: allow          # files that look like credentials are never carried along
  fs.write:
    "src/**": allow
    "*": deny             # when nothing else matches
  patch.import: ask       # nothing leaves the private copy without an answer
  process.exec:
    "*": ask              # add the commands that need no answer, such as "cargo test": allow
  network: deny

# Never, by any pattern, layer or answer.
hard_deny:
  process.exec: ["rm -rf**"]

# These are tried whenever the file is read.
tests:
  - {{action: fs.write, subject: src/main.rs, expect: allow}}
  - {{action: fs.write, subject: .git/config, expect: deny, rule: git_directory}}
  - {{action: process.exec, argv: [sh, -c, "rm -rf /"], expect: deny}}

budget:
  max_steps: 32
  max_wall_time: 30m

# Without this there is no command tool.
# execution:
#   backend: oci
#   image: registry.example/tools@sha256:...
#   allow_commands: [cargo]

interaction:
  on_disconnect: deny     # hold: the run waits for an answer, also when everybody has left
"#
    )
}
