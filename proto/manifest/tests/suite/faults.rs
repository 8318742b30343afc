//! Manifests that are refused, with the place of each fault.
use insta::assert_snapshot;
use manifest::Manifest;
use proptest::prelude::*;

use crate::reading::SEED;

/// Every fault of the text, one a line.
fn faults(text: impl AsRef<[u8]>) -> String {
    Manifest::parse(text.as_ref(), "a.yaml").unwrap_err().to_string()
}

#[test]
fn bytes_that_are_no_manifest_at_all_say_so() {
    assert_snapshot!(
        [
            faults(""),
            faults(" \n\n"),
            faults(format!("\u{feff}{SEED}")),
            faults([SEED.as_bytes(), b"x: \xff\n"].concat()),
            faults("#".repeat(256 * 1024 + 1)),
            faults("just text"),
            faults("- a\n"),
            faults("{}"),
            faults("a: [\n"),
            faults(format!("{SEED}---\nid: b\n")),
        ]
        .join("\n\n")
    );
}

#[test]
fn unknown_and_duplicate_keys_are_named_with_their_place() {
    assert_snapshot!(
        [
            faults(format!("{SEED}budgte: {{}}\ncolour: red\n")),
            faults(format!("{SEED}budget: {{max_model_token: 1, max_money: 1}}\n")),
            faults(SEED.replace("fs.read", "fs.reed")),
            faults(SEED.replace("fs.read", "everything")),
            faults(format!("{SEED}title: again\n")),
            faults(SEED.replace("fs.read: allow", "fs.read: {a: allow, 'a': deny}")),
            faults(format!("{SEED}models: {{<<: [a]}}\n")),
        ]
        .join("\n\n")
    );
}

#[test]
fn every_wrong_type_is_told_in_one_pass() {
    let text = "\
id: Not-Kebab
title: 7
goal: ''
acceptance: []
allowed_paths: [/etc, ../x, 'a\\b', src/, ok/**]
permissions:
  fs.read: maybe
  fs.write: [allow]
  fs.list: {}
  process.exec: {ls: perhaps}
budget: {max_model_tokens: 0, max_tool_calls: -1, max_steps: 1.5, max_wall_time: 10}
delivery: {type: fax}
execution:
  backend: oci
  mode: nowhere
  image: 'a b'
  allow_commands: [sh]
  checks: {test: [cargo, test], empty: []}
  limits: {memory: 1GB, cpus: 0, pids: many, time: 5}
interaction: {on_disconnect: stay, permission_timeout: soon}
models: [a, a]
";
    assert_snapshot!(faults(text));
}

#[test]
fn an_oci_back_end_needs_an_image_and_programs() {
    assert_snapshot!(
        [
            faults(format!("{SEED}execution: {{backend: oci}}\n")),
            faults(format!("{SEED}execution: {{mode: snapshot}}\n")),
        ]
        .join("\n\n")
    );
}

#[test]
fn a_null_where_something_is_due_is_a_fault() {
    assert_snapshot!(
        [faults(SEED.replace("title: Demo", "title:")), faults(format!("{SEED}budget:\n")),]
            .join("\n\n")
    );
}

#[test]
fn aliases_and_tags_do_not_multiply_or_convert() {
    let bomb = (0..40).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1)
    });
    assert_snapshot!(
        [faults(bomb), faults(SEED.replace("title: Demo", "title: !secret Demo")),].join("\n\n")
    );
    let deep = format!("{SEED}models: {}{}\n", "[".repeat(40), "]".repeat(40));
    assert_snapshot!(faults(deep));
}

#[test]
fn what_a_fault_quotes_from_the_file_is_harmless_on_a_terminal() {
    let key = format!("\"\\e[2J{}\": 1", "x".repeat(1_000));
    let text = faults(format!("{SEED}{key}\n"));
    assert!(text.starts_with("a.yaml:11:1: unknown key \\u{1b}[2Jxxx"), "{text}");
    assert!(text.chars().count() < 600 && !text.contains('\u{1b}'), "{text}");
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,64}") {
        prop_assert!(Manifest::parse(text.as_bytes(), "a.yaml").is_err());
    }

    #[test]
    fn any_yaml_like_text_is_read_without_a_panic(text in "[a-c:\\-\\[\\]{}&*!|>'\"#%@`,? \n\t0-9]{0,96}") {
        prop_assert!(Manifest::parse(text.as_bytes(), "a.yaml").is_err());
    }

    #[test]
    fn any_damage_to_a_good_manifest_is_read_without_a_panic(
        at in 0..SEED.len(),
        cut in 0usize..8,
        with in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = SEED.as_bytes().to_vec();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, with);
        if let Err(faults) = Manifest::parse(&bytes, "a.yaml") {
            prop_assert!(!faults.as_slice().is_empty());
            prop_assert!(faults.as_slice().iter().all(|fault| fault.line >= 1 && fault.column >= 1));
        }
    }
}

#[test]
fn every_fault_of_a_tool_server_is_told() {
    assert_snapshot!(faults(format!(
        "{SEED}execution:\n  backend: oci\n  image: a\n  allow_commands: [sh]\n  servers:\n    Notes: {{command: [sh], tools: [a]}}\n    one: {{command: [python3, -m, x], tools: [a]}}\n    two: {{command: [sh], tools: [a, a, 'b c']}}\n    three: {{tools: [], colour: red}}\n    four: {{command: [sh], tools: [a], timeout: 5, output: many}}\n"
    )));
    assert_snapshot!(faults(format!("{SEED}execution: {{backend: none, servers: {{}}}}\n")));
}
