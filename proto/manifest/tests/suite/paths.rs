//! Paths and hosts in their normal form, what may be modified, and what is protected.
use event::Effect::{Allow, Ask, Deny};
use manifest::{
    Action, BadAllowedPath, Decision, Layer, Manifest, Mode, Rulebook, Target, check_allowed_path,
};

use crate::{manifest, rulebook};

fn short(decision: &Decision) -> (event::Effect, &str) {
    (decision.effect, &decision.rule)
}

#[test]
fn spellings_of_a_path_are_decided_as_one_and_what_leads_out_is_denied() {
    let rules = rulebook("  fs.read: {'src/**': allow}");
    for (subject, expected, rule, normal) in [
        ("src/x", Allow, "permissions.fs.read[src/**]", "src/x"),
        ("./src/x", Allow, "permissions.fs.read[src/**]", "src/x"),
        ("src//x", Allow, "permissions.fs.read[src/**]", "src/x"),
        ("src/", Allow, "permissions.fs.read[src/**]", "src"),
        ("src", Deny, "permissions.fs.read", "src"),
        ("src/../.git/config", Deny, "path", "src/../.git/config"),
        ("src/../src/x", Deny, "path", "src/../src/x"),
        ("/src/x", Deny, "path", "/src/x"),
        ("src\\x", Deny, "path", "src\\x"),
        ("", Deny, "path", ""),
    ] {
        let decision = rules.decide(Action::FsRead, Some(subject));
        assert_eq!(short(&decision), (expected, rule), "{subject}");
        assert_eq!(decision.subject.as_deref(), Some(normal));
    }
}

#[test]
fn a_bad_path_is_denied_even_where_everything_is_allowed() {
    let rules = rulebook("  fs.read: allow\n  fs.write: allow\n  fs.list: allow");
    for action in [Action::FsRead, Action::FsWrite, Action::FsList] {
        let decision = rules.decide(action, Some("a/../b"));
        assert_eq!((short(&decision), decision.layer), ((Deny, "path"), Layer::System));
    }
}

#[test]
fn a_write_has_the_built_in_rules_whichever_way_it_is_decided() {
    let text = "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['src/**', .github/, Makefile, '.git/**']\npermissions: {fs.write: {'src/no/**': deny, '**': allow}}\n";
    let rules = Rulebook::new(Manifest::parse(text.as_bytes(), "a.yaml").unwrap(), None, None);
    for (path, expected) in [
        ("src/a", (Allow, "permissions.fs.write[**]")),
        ("src/no/a", (Deny, "permissions.fs.write[src/no/**]")),
        ("other", (Deny, "allowed_paths")),
        (".git/config", (Deny, "git_directory")),
        ("src/.GIT/x", (Deny, "git_directory")),
        ("src/git~1/x", (Deny, "git_directory")),
        (".g\u{200c}it/config", (Deny, "git_directory")),
        (".github/workflows/x.yml", (Ask, "protected_paths")),
        ("Makefile", (Ask, "protected_paths")),
        ("src/no/Makefile", (Deny, "permissions.fs.write[src/no/**]")),
    ] {
        let decision = rules.decide_write(path, Target::File);
        assert_eq!(short(&decision), expected, "{path}");
        assert_eq!(rules.decide(Action::FsWrite, Some(path)), decision);
    }
}

#[test]
fn a_directory_may_be_made_along_with_what_is_in_it() {
    let text = "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['src/**']\npermissions: {fs.write: {'src/**': allow}}\n";
    let rules = Rulebook::new(Manifest::parse(text.as_bytes(), "a.yaml").unwrap(), None, None);
    let on = |target| rules.decide_write("src", target);
    assert_eq!(short(&on(Target::File)), (Deny, "allowed_paths"));
    assert_eq!(short(&on(Target::Directory { along: false })), (Deny, "allowed_paths"));
    assert_eq!(
        short(&on(Target::Directory { along: true })),
        (Allow, "permissions.fs.write[src/**]")
    );
    let git = rules.decide_write(".git", Target::Directory { along: true });
    assert_eq!(short(&git), (Deny, "git_directory"));
}

#[test]
fn entries_of_allowed_paths_that_a_mount_could_misread_are_refused() {
    use BadAllowedPath::{
        Absolute, Backslash, Comma, Control, Empty, NotMountable, Segment, WholeWorkspace,
    };
    for (entry, snapshot, mount) in [
        ("/", Err(Absolute), Err(Absolute)),
        ("/etc/**", Err(Absolute), Err(Absolute)),
        ("../x/**", Err(Segment), Err(Segment)),
        ("src/./x", Err(Segment), Err(Segment)),
        ("src//x", Err(Segment), Err(Segment)),
        (".", Err(Segment), Err(Segment)),
        ("**", Ok(()), Err(WholeWorkspace)),
        ("*", Ok(()), Err(WholeWorkspace)),
        ("**/", Ok(()), Err(WholeWorkspace)),
        ("src/**,ro", Err(Comma), Err(Comma)),
        ("a\nb", Err(Control), Err(Control)),
        ("a\\b", Err(Backslash), Err(Backslash)),
        ("", Err(Empty), Err(Empty)),
        ("src/*.rs", Ok(()), Err(NotMountable)),
        ("**/x", Ok(()), Err(NotMountable)),
        ("src/**", Ok(()), Ok(())),
        ("src/", Ok(()), Ok(())),
        ("src/a.rs", Ok(()), Ok(())),
    ] {
        assert_eq!(check_allowed_path(entry, Mode::Snapshot), snapshot, "{entry:?}");
        assert_eq!(check_allowed_path(entry, Mode::Mount), mount, "{entry:?}");
    }
    let text = "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['**']\npermissions: {}\nexecution: {backend: none, mode: mount}\n";
    assert_eq!(
        Manifest::parse(text.as_bytes(), "a.yaml").unwrap_err().to_string(),
        "a.yaml:5:17: allowed_paths[0] is the whole workspace, which mode mount does not hand out; name directories"
    );
}

#[test]
fn hosts_are_names_and_a_wildcard_is_below_its_domain_only() {
    let rules = rulebook("  network: {'registry.test:443': allow, '*.pkg.test:443': allow}");
    for (subject, expected, rule) in [
        ("registry.test:443", Allow, "permissions.network[registry.test:443]"),
        ("Registry.TEST:443", Allow, "permissions.network[registry.test:443]"),
        ("registry.test:22", Deny, "permissions.network"),
        ("registry.test.evil.test:443", Deny, "permissions.network"),
        ("a.pkg.test:443", Allow, "permissions.network[*.pkg.test:443]"),
        ("a.b.pkg.test:443", Allow, "permissions.network[*.pkg.test:443]"),
        ("pkg.test:443", Deny, "permissions.network"),
        ("evilpkg.test:443", Deny, "permissions.network"),
        ("10.0.0.5:443", Deny, "host"),
        ("[::1]:443", Deny, "host"),
        ("registry.test", Deny, "host"),
    ] {
        let decision = rules.decide(Action::Network, Some(subject));
        assert_eq!(short(&decision), (expected, rule), "{subject}");
    }
    let flat = rulebook("  network: allow");
    assert_eq!(short(&flat.decide(Action::Network, Some("169.254.169.254:80"))), (Deny, "host"));
    assert_eq!(flat.decide(Action::Network, None).effect, Allow);
}

#[test]
fn of_equal_length_the_strictest_wins() {
    let rules = Rulebook::new(
        manifest("permissions: {fs.write: {'src/a*': allow, 'src/*b': deny, '*': allow}}"),
        None,
        None,
    );
    assert_eq!(rules.decide(Action::FsWrite, Some("src/ab")).effect, Deny);
    assert_eq!(rules.decide(Action::FsWrite, Some("src/ac")).effect, Allow);
}

#[test]
fn a_control_character_is_said_to_be_why_nothing_covers_the_path() {
    let rules = rulebook("  fs.write: allow");
    let decision = rules.decide(Action::FsWrite, Some("src/a\tb"));
    assert_eq!((decision.effect, decision.rule.as_str()), (Deny, "allowed_paths"));
    assert!(decision.reason.contains("control character"), "{}", decision.reason);
}
