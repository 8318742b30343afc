//! Commands inside commands: a wildcard for one program is none for another, and what is denied is denied
//! wherever it stands.
use event::Effect::{self, Allow, Ask, Deny};
use manifest::{Action, Command, Decision, ResolvedProgram, Rulebook, exec_subject};

use crate::{ceiling, manifest, rulebook};

fn decide(rules: &Rulebook, argv: &[&str]) -> Decision {
    let decisions = rules.decide_exec(&Command::new(argv.iter().copied()));
    Decision::strictest(decisions).unwrap()
}

fn short(decision: &Decision) -> (Effect, &str) {
    (decision.effect, &decision.rule)
}

#[test]
fn only_the_first_command_is_not_all_that_is_judged() {
    let rules = rulebook("  process.exec: {'git status*': allow, 'rm -rf*': deny, '*': allow}");
    for argv in [
        &["sh", "-c", "git status && rm -rf x"][..],
        &["sh", "-c", "{ rm -rf x; }"],
        &["sh", "-c", "echo `rm -rf x`"],
        &["sh", "-c", "echo $(rm -rf x)"],
        &["sh", "-c", "git status | xargs rm -rf"],
        &["sh", "-c", "rm -rf x"],
        &["bash", "-lc", "cat <(rm -rf x)"],
        &["git", "-c", "alias.x=!rm -rf x", "x"],
        &["find", ".", "-exec", "rm", "-rf", "{}", "+"],
        &["env", "A=1", "rm", "-rf", "x"],
        &["timeout", "5", "rm", "-rf", "x"],
        &["xargs", "rm", "-rf"],
        &["nice", "nohup", "sudo", "rm", "-rf", "x"],
        &["rm", "-rf", "x"],
        &["/bin/rm", "-rf", "x"],
        &["sh", "-c", "/usr/bin/rm -rf x"],
    ] {
        let decision = decide(&rules, argv);
        assert_eq!(short(&decision), (Deny, "permissions.process.exec[rm -rf*]"), "{argv:?}");
    }
    // Said as one word: the token is quoted, so it is no `git status`.
    assert_eq!(decide(&rules, &["git status && rm -rf x"]).effect, Allow);
    assert_eq!(decide(&rules, &["sh", "-c", "{ rm -r -f x; }"]).effect, Ask);
}

#[test]
fn each_part_is_a_decision_of_its_own() {
    let rules = rulebook("  process.exec: {'git status*': allow, 'rm -rf*': deny, '*': allow}");
    let command = Command::new(["sh", "-c", "git status && ls; rm -rf x"]);
    let decisions = rules.decide_exec(&command);
    let found: Vec<_> =
        decisions.iter().map(|d| (d.subject.as_deref().unwrap(), d.effect)).collect();
    assert_eq!(
        found,
        [("sh -c 'git status && ls; rm -rf x'", Ask), ("git status", Allow), ("rm -rf x", Deny)]
    );
    let subject = exec_subject(&command.argv);
    assert_eq!(rules.decide(Action::ProcessExec, Some(&subject)), decisions[2]);
}

#[test]
fn a_wildcard_does_not_reach_what_runs_other_programs() {
    let wide = rulebook("  process.exec: {'**': allow}");
    let fallback = rulebook("  process.exec: {'*': allow}");
    let named =
        rulebook("  process.exec: {'sh**': allow, 'py**': allow, 'find**': allow, 'git**': allow}");
    for argv in [
        &["sh", "x.sh"][..],
        &["python3", "-c", "x"],
        &["find", ".", "-delete"],
        &["git", "-c", "a=b", "status"],
    ] {
        for rules in [&wide, &fallback, &named] {
            let decision = decide(rules, argv);
            assert_eq!(short(&decision), (Ask, "interpreter"), "{argv:?}");
        }
    }
    assert_eq!(decide(&named, &["git", "status"]).effect, Allow);
    assert_eq!(decide(&wide, &["cargo", "test"]).effect, Allow);
}

#[test]
fn a_rule_covers_a_shell_when_it_says_so() {
    for (permissions, argv, expected) in [
        (
            "  process.exec: {'sh -c **': {effect: allow, class: interpreter}}",
            &["sh", "-c", "x"][..],
            Allow,
        ),
        ("  process.exec: {'*': {effect: allow, class: interpreter}}", &["sh", "-c", "x"], Allow),
        ("  process.exec: allow", &["sh", "-c", "x"], Allow),
        ("  process.exec: {'sh x.sh': allow}", &["sh", "x.sh"], Allow),
        ("  process.exec: {'sh x.sh': allow, 'sh x.s**': allow}", &["sh", "x.sh"], Allow),
        // No wildcard is meant, and none is exact.
        ("  process.exec: {\"sh -c 'ls *'\": allow}", &["sh", "-c", "ls *"], Ask),
        // A longer pattern that does not say so is not covered by a shorter one that does.
        (
            "  process.exec: {'sh **': {effect: allow, class: interpreter}, 'sh -c **': allow}",
            &["sh", "-c", "x"],
            Ask,
        ),
    ] {
        assert_eq!(decide(&rulebook(permissions), argv).effect, expected, "{permissions}");
    }
}

#[test]
fn what_is_covered_as_a_whole_is_still_searched_for_what_is_denied() {
    let rules = rulebook(
        "  process.exec: {'sh -c **': {effect: allow, class: interpreter}, 'rm**': deny, 'git push**': ask}",
    );
    assert_eq!(decide(&rules, &["sh", "-c", "ls; rm x"]).effect, Deny);
    assert_eq!(decide(&rules, &["sh", "-c", "ls; git push"]).effect, Ask);
    assert_eq!(decide(&rules, &["sh", "-c", "ls"]).effect, Allow);
    let hard = Rulebook::new(
        manifest("permissions: {process.exec: allow}"),
        Some(ceiling("hard_deny: {process.exec: ['rm**']}")),
        None,
    );
    assert_eq!(decide(&hard, &["sh", "-c", "ls; rm x"]).effect, Deny);
    assert_eq!(decide(&hard, &["sh", "-c", "ls"]).effect, Allow);
}

#[test]
fn a_script_that_cannot_be_taken_apart_asks() {
    let rules = rulebook("  process.exec: {'**': allow}");
    let decision = decide(&rules, &["sh", "-c", "f() { rm; }; f"]);
    assert_eq!(short(&decision), (Ask, "unparsable"));
    let told = rulebook("  process.exec: {'**': {effect: allow, class: interpreter}}");
    assert_eq!(decide(&told, &["sh", "-c", "f() { rm; }; f"]).effect, Allow);
}

#[test]
fn the_program_that_the_image_has_is_judged_too() {
    let rules = rulebook("  process.exec: {'*': allow, 'python3.11 -c **': deny}");
    let command = |argv: &[&str], resolved: &str| Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        program: Some(ResolvedProgram { path: "/w/tool".into(), resolved: Some(resolved.into()) }),
    };
    let decide = |command| Decision::strictest(rules.decide_exec(&command)).unwrap();
    let link = decide(command(&["./tool", "x"], "/usr/bin/python3.11"));
    assert_eq!(short(&link), (Ask, "interpreter"));
    assert_eq!(decide(command(&["./tool", "-c", "x"], "/usr/bin/python3.11")).effect, Deny);
    assert_eq!(decide(command(&["./tool", "x"], "/bin/busybox")).effect, Allow);
}

#[test]
fn another_name_of_the_program_never_allows() {
    let rules = rulebook("  process.exec: {'cargo test**': allow, '*': ask}");
    assert_eq!(decide(&rules, &["cargo", "test"]).effect, Allow);
    assert_eq!(decide(&rules, &["/tmp/cargo", "test"]).effect, Ask);
}

#[test]
fn a_star_stops_at_a_slash_in_commands_too() {
    let rules = rulebook("  process.exec: {'git status*': allow, '*': ask}");
    assert_eq!(decide(&rules, &["git", "status", "--short"]).effect, Allow);
    assert_eq!(decide(&rules, &["git", "status", "src/lib.rs"]).effect, Ask);
    assert_eq!(decide(&rules, &["git", "status;rm"]).effect, Ask);
}

#[test]
fn what_is_no_argv_is_denied() {
    let rules = rulebook("  process.exec: allow");
    for subject in ["", "a  b", "a;b", "'a"] {
        let decision = rules.decide(Action::ProcessExec, Some(subject));
        assert_eq!(short(&decision), (Deny, "argv"), "{subject}");
    }
    assert_eq!(short(&rules.decide_exec(&Command::new([""; 0]))[0]), (Deny, "argv"));
}

#[test]
fn what_cannot_be_read_asks_where_something_inside_could_be_denied() {
    let wide = "permissions: {process.exec: {'**': {effect: allow, class: interpreter}}}";
    let flat = "permissions: {process.exec: allow}";
    let hidden = &["sh", "-c", "f() { rm -rf x; }; f"][..];
    let named =
        "permissions: {process.exec: {'**': {effect: allow, class: interpreter}, 'rm**': deny}}";
    for (task, organisation) in [
        (flat, "hard_deny: {process.exec: ['rm**']}"),
        (flat, named),
        (
            wide,
            "permissions: {process.exec: {'**': {effect: allow, class: interpreter}, 'rm**': ask}}",
        ),
        (named, ""),
    ] {
        let rules = Rulebook::new(manifest(task), Some(ceiling(organisation)), None);
        for argv in [
            hidden,
            &["env", "-S", "rm\\_-rf\\_x"],
            &["python3", "-c", "x"],
            &["sudo", "-i"],
            &["make", "-f", "x"],
        ] {
            assert!(decide(&rules, argv).effect >= Ask, "{task} {organisation} {argv:?}");
        }
    }
    let denies = Some(ceiling("hard_deny: {process.exec: ['rm**']}"));
    let under = |task: &str| Rulebook::new(manifest(task), denies.clone(), None);
    let decision = decide(&under(flat), hidden);
    assert_eq!(short(&decision), (Ask, "unparsable"));
    assert_eq!(decide(&under(flat), &["sh", "-c", "ls; cat x"]).effect, Allow);
    assert_eq!(decide(&under(flat), &["cargo", "test"]).effect, Allow);
    // Its very text, or nothing that could be denied.
    let exact = "permissions: {process.exec: {'sh -c ''f() { x; }''': allow}}";
    assert_eq!(decide(&under(exact), &["sh", "-c", "f() { x; }"]).effect, Allow);
    for task in [wide, flat] {
        let rules = Rulebook::new(manifest(task), None, None);
        assert_eq!(decide(&rules, hidden).effect, Allow, "{task}");
    }
}
