//! A directory that is handed out as a whole: no rule about anything in it is stepped over.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use event::Effect::{self, Allow, Ask, Deny};
use manifest::{Ceiling, Manifest, Rulebook, Target};

fn ceiling(text: &str) -> Ceiling {
    let text = format!("kind: ceiling\nid: top\n{text}\n");
    Ceiling::parse(text.as_bytes(), "top.yaml").unwrap()
}

fn book(allowed: &str, rules: &str, ceiling: Option<Ceiling>) -> Rulebook {
    let text = format!(
        "id: t\ntitle: T\ngoal: g\nacceptance: [x]\nallowed_paths: [{allowed}]\npermissions:\n{rules}\n"
    );
    Rulebook::new(Manifest::parse(text.as_bytes(), "t.yaml").unwrap(), ceiling, None)
}

/// Without protected paths, which would ask about any directory.
fn decided(allowed: &str, rules: &str) -> (Effect, String) {
    let decision = book(allowed, rules, Some(ceiling("protected_paths: []")))
        .decide_write("src", Target::Tree);
    (decision.effect, decision.rule)
}

#[test]
fn every_rule_that_reaches_into_it_counts_and_no_exception_to_one_does() {
    for (rules, effect, rule) in [
        ("  fs.write: allow", Allow, "permissions.fs.write"),
        ("  {}", Ask, "default"),
        ("  fs.write: {'src/**': allow}", Allow, "permissions.fs.write[src/**]"),
        ("  fs.write: {'src/**': allow, 'docs/**': deny}", Allow, "permissions.fs.write[src/**]"),
        ("  fs.write: {'src/**': allow, '*': deny}", Allow, "permissions.fs.write[src/**]"),
        ("  fs.write: {'src/': allow}", Deny, "permissions.fs.write"),
        ("  fs.write: {'src/*': allow}", Deny, "permissions.fs.write"),
        ("  fs.write: {'src/**.rs': allow}", Deny, "permissions.fs.write"),
        (
            "  fs.write: {'src/**': allow, 'src/gen/**': deny}",
            Deny,
            "permissions.fs.write[src/gen/**]",
        ),
        ("  fs.write: {'src/**': allow, '**/x.lock': ask}", Ask, "permissions.fs.write[**/x.lock]"),
        (
            "  fs.write: {'src/**': allow, 'src/a/**': deny, 'src/a/b/**': allow}",
            Deny,
            "permissions.fs.write[src/a/**]",
        ),
        (
            "  fs.write: allow\nhard_deny: {fs.write: ['**.pem']}",
            Deny,
            "hard_deny.fs.write[**.pem]",
        ),
        ("  fs.write: allow\nhard_deny: {fs.write: ['docs/**']}", Allow, "permissions.fs.write"),
    ] {
        assert_eq!(decided("src/", rules), (effect, rule.to_owned()), "{rules}");
    }
}

#[test]
fn it_must_be_allowed_as_a_whole() {
    let rules = "  fs.write: allow";
    for (allowed, effect) in
        [("src/", Allow), ("src/**", Allow), ("src/*", Deny), ("src/a/", Deny), ("other/", Deny)]
    {
        assert_eq!(decided(allowed, rules).0, effect, "{allowed}");
    }
    let git = book(".git/", "  fs.write: allow", None).decide_write(".git", Target::Tree);
    assert_eq!((git.effect, git.rule.as_str()), (Deny, "git_directory"));
}

#[test]
fn whatever_could_be_protected_in_it_is_asked_about() {
    for (listed, effect) in [
        (None, Ask),
        (Some("[]"), Allow),
        (Some("[ci/**]"), Allow),
        (Some("[Makefile]"), Allow),
        (Some("['**/Makefile']"), Ask),
        (Some("[SRC/ci/]"), Ask),
        (Some("[src/]"), Ask),
    ] {
        let listed = listed.map(|listed| ceiling(&format!("protected_paths: {listed}")));
        let book = book("src/", "  fs.write: allow", listed.clone());
        let decision = book.decide_write("src", Target::Tree);
        assert_eq!(decision.effect, effect, "{listed:?}");
        let rule = if effect == Ask { "protected_paths" } else { "permissions.fs.write" };
        assert_eq!(decision.rule, rule);
    }
}
