//! What holds for any files and any subject: the evaluator is the naive reading, a further deny never widens,
//! and the order of rules says nothing.
use std::collections::BTreeMap;

use event::Effect::{self, Allow, Ask, Deny};
use manifest::{Action, Ceiling, Command, Decision, Manifest, Rulebook, glob};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Rules {
    Flat(Effect),
    Map(BTreeMap<String, Effect>),
}

/// One file about one action.
#[derive(Debug, Clone, Default)]
struct File {
    rules: Option<Rules>,
    hard: Vec<String>,
}

fn effect() -> impl Strategy<Value = Effect> {
    prop::sample::select(vec![Allow, Ask, Deny])
}

fn pattern(of: &'static str) -> BoxedStrategy<String> {
    prop_oneof![1 => Just("*".to_owned()), 6 => of].boxed()
}

fn file(of: &'static str) -> impl Strategy<Value = File> {
    let rules = prop::option::of(prop_oneof![
        1 => effect().prop_map(Rules::Flat),
        4 => prop::collection::btree_map(pattern(of), effect(), 1..5).prop_map(Rules::Map),
    ]);
    let hard = prop::collection::btree_set(pattern(of), 0..2);
    (rules, hard).prop_map(|(rules, hard)| File { rules, hard: hard.into_iter().collect() })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The members of the file; the patterns begin at `turn`.
fn members(file: &File, action: Action, turn: usize) -> String {
    let rules = match &file.rules {
        None => "permissions: {}".to_owned(),
        Some(Rules::Flat(effect)) => format!("permissions: {{{action}: {}}}", effect.as_str()),
        Some(Rules::Map(patterns)) => {
            let mut lines: Vec<_> = patterns
                .iter()
                .map(|(pattern, effect)| format!("    {}: {}", quoted(pattern), effect.as_str()))
                .collect();
            let len = lines.len();
            lines.rotate_left(turn % len);
            format!("permissions:\n  {action}:\n{}", lines.join("\n"))
        }
    };
    if file.hard.is_empty() {
        return rules;
    }
    let mut hard: Vec<_> = file.hard.iter().map(|pattern| quoted(pattern)).collect();
    let len = hard.len();
    hard.rotate_left(turn % len);
    format!("{rules}\nhard_deny: {{{action}: [{}]}}", hard.join(", "))
}

/// Organisation, tenant, manifest.
fn book(files: &[File; 3], action: Action, turn: usize) -> Rulebook {
    let ceiling = |file| {
        let text = format!("kind: ceiling\nid: c\n{}\n", members(file, action, turn));
        Ceiling::parse(text.as_bytes(), "c.yaml").unwrap()
    };
    let text = format!(
        "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['a/**', b]\n{}\n",
        members(&files[2], action, turn)
    );
    let manifest = Manifest::parse(text.as_bytes(), "a.yaml").unwrap();
    Rulebook::new(manifest, Some(ceiling(&files[0])), Some(ceiling(&files[1])))
}

/// What one file says, read as the documentation words it.
fn naive(file: &File, subject: Option<&str>) -> Option<Effect> {
    let hard = file.hard.iter().any(|pattern| {
        pattern == "*" || subject.is_some_and(|subject| glob::matches(pattern, subject))
    });
    if hard {
        return Some(Deny);
    }
    let patterns = match file.rules.as_ref()? {
        Rules::Flat(effect) => return Some(*effect),
        Rules::Map(patterns) => patterns,
    };
    let matching: Vec<_> = patterns
        .iter()
        .filter(|(pattern, _)| {
            *pattern != "*" && subject.is_some_and(|subject| glob::matches(pattern, subject))
        })
        .collect();
    let longest = matching.iter().map(|(pattern, _)| pattern.chars().count()).max();
    if let Some(longest) = longest {
        let longest = matching.iter().filter(|(pattern, _)| pattern.chars().count() == longest);
        return longest.map(|(_, effect)| **effect).max();
    }
    Some(match (patterns.get("*"), subject) {
        (Some(effect), _) => *effect,
        (None, Some(_)) => Deny,
        (None, None) => Ask,
    })
}

fn naive_layers(files: &[File; 3], subject: Option<&str>) -> Effect {
    let manifest = naive(&files[2], subject).unwrap_or(Ask);
    let ceilings = files[..2].iter().filter_map(|file| naive(file, subject));
    ceilings.chain([manifest]).max().unwrap()
}

/// The file with one deny more.
fn with_deny(file: &File, pattern: &str, hard: bool) -> File {
    let mut file = file.clone();
    match (&mut file.rules, hard) {
        (Some(Rules::Map(patterns)), false) => {
            patterns.insert(pattern.to_owned(), Deny);
        }
        (rules @ None, false) => {
            *rules = Some(Rules::Map(BTreeMap::from([(pattern.to_owned(), Deny)])));
        }
        (Some(Rules::Flat(_)), _) | (_, true) => {
            if !file.hard.iter().any(|listed| listed == pattern) {
                file.hard.push(pattern.to_owned());
            }
        }
    }
    file
}

const NAMES: &str = "[ab/*?]{1,4}";
const COMMANDS: &str = "(sh|rm|ls|env)( (-c|x|rm|ls))?[*]{0,2}";

fn files(of: &'static str) -> impl Strategy<Value = [File; 3]> {
    [file(of), file(of), file(of)]
}

fn argv() -> impl Strategy<Value = Vec<String>> {
    let words = vec!["sh", "-c", "rm", "ls", "env", "x", "rm x; ls", "$(rm x)", "'", "A=1"];
    prop::collection::vec(prop::sample::select(words).prop_map(str::to_owned), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn layers_agree_with_the_naive_reading_in_any_order(
        files in files(NAMES),
        subject in prop::option::of("[ab/]{1,4}"),
        turn in 0usize..5,
    ) {
        let action = Action::McpCall;
        let decision = book(&files, action, 0).decide(action, subject.as_deref());
        prop_assert_eq!(decision.effect, naive_layers(&files, subject.as_deref()));
        let other = book(&files, action, turn).decide(action, subject.as_deref());
        prop_assert_eq!(Decision { manifest: decision.manifest, ..other }, decision.clone());
        prop_assert_eq!(decision.approvers.is_some(), decision.effect == Ask);
        prop_assert!(decision.matching.is_sorted_by_key(|m| (std::cmp::Reverse(m.effect), m.layer)));
        let decider = manifest::Matched {
            layer: decision.layer,
            rule: decision.rule.clone(),
            effect: decision.effect,
        };
        prop_assert!(decision.matching.contains(&decider));
    }

    #[test]
    fn writes_are_never_wider_than_the_rules_and_the_built_in_rules(
        files in files(NAMES),
        subject in "[ab/.]{1,5}",
    ) {
        let action = Action::FsWrite;
        let rules = book(&files, action, 0);
        let decision = rules.decide(action, Some(&subject));
        match manifest::WorkPath::parse(&subject) {
            Err(_) => prop_assert_eq!(decision.effect, Deny),
            Ok(path) => {
                let shown = if path.is_directory() && path.as_str() != "." {
                    format!("{path}/")
                } else {
                    path.to_string()
                };
                let by_rules = naive_layers(&files, Some(&shown));
                let allowed = rules.manifest().may_modify(path.as_str());
                let expected = if allowed { by_rules } else { Deny };
                prop_assert_eq!(decision.effect, expected);
            }
        }
    }

    #[test]
    fn a_further_deny_never_widens(
        files in files(NAMES),
        layer in 0usize..3,
        pattern in pattern(NAMES),
        hard in any::<bool>(),
        subject in prop::option::of("[ab/]{1,4}"),
    ) {
        let mut stricter = files.clone();
        stricter[layer] = with_deny(&files[layer], &pattern, hard);
        for action in [Action::McpCall, Action::FsRead, Action::FsWrite] {
            let before = book(&files, action, 0).decide(action, subject.as_deref());
            let after = book(&stricter, action, 0).decide(action, subject.as_deref());
            prop_assert!(after.effect >= before.effect);
        }
    }

    #[test]
    fn a_further_deny_never_widens_a_command(
        files in files(COMMANDS),
        layer in 0usize..3,
        pattern in pattern(COMMANDS),
        hard in any::<bool>(),
        argv in argv(),
    ) {
        let action = Action::ProcessExec;
        let mut stricter = files.clone();
        stricter[layer] = with_deny(&files[layer], &pattern, hard);
        let decide = |files| {
            let decisions = book(files, action, 0).decide_exec(&Command::new(argv.clone()));
            Decision::strictest(decisions).unwrap().effect
        };
        prop_assert!(decide(&stricter) >= decide(&files));
        prop_assert!(decide(&files) >= naive_layers(&files, Some(&manifest::exec_subject(&argv))));
    }

    #[test]
    fn a_ceiling_never_widens(
        files in files(COMMANDS),
        argv in argv(),
    ) {
        let action = Action::ProcessExec;
        let alone = [File::default(), File::default(), files[2].clone()];
        let decide = |files| {
            let decisions = book(files, action, 0).decide_exec(&Command::new(argv.clone()));
            Decision::strictest(decisions).unwrap().effect
        };
        prop_assert!(decide(&files) >= decide(&alone));
    }
}
