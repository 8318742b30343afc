//! What is printed is read as what was printed, for any manifest and any ceiling.
use manifest::{Ceiling, Manifest, print, print_ceiling, starter};
use proptest::prelude::*;

/// Between double quotes, whatever is in it.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            ' '..='!' | '#'..='[' | ']'..='~' => c.to_string(),
            other => format!("\\U{:08X}", u32::from(other)),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "\\PC{1,12}",
        "[ -~\n\t\u{85}\u{2028}\u{feff}\u{200b}é]{1,12}",
        prop::sample::select(vec!["true", "null", "1", "1.5", "- a", "{", "a: b", "#", "~", "<<"])
            .prop_map(str::to_owned),
    ]
    .prop_filter("some text", |text| !text.trim().is_empty())
    .prop_map(|text| quoted(&text))
}

fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(text(), 1..4).prop_map(|texts| format!("[{}]", texts.join(", ")))
}

fn approvers() -> impl Strategy<Value = String> {
    (1u8..=16, any::<[bool; 3]>()).prop_map(|(count, [roles, not, signature])| {
        let roles = if roles { ", roles: [operator, '1']" } else { "" };
        let not = if not { ", not: requester" } else { "" };
        format!("{{count: {count}{roles}{not}, signature: {signature}}}")
    })
}

fn terms(exec: bool) -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec!["allow", "ask", "deny"]).prop_map(str::to_owned);
    let long = (text(), approvers(), any::<[bool; 3]>()).prop_map(move |(why, who, [j, a, c])| {
        let justification = if j { format!(", justification: {why}") } else { String::new() };
        let approvers = if a { format!(", approvers: {who}") } else { String::new() };
        let class = if c && exec { ", class: interpreter" } else { "" };
        let effect = if a { "ask" } else { "allow" };
        format!("{{effect: {effect}{justification}{approvers}{class}}}")
    });
    prop_oneof![short, long]
}

fn rule(exec: bool) -> impl Strategy<Value = String> {
    let pattern = prop_oneof![Just("*".to_owned()), "[a-z*?/ '#:é-]{1,8}"];
    prop::collection::btree_map(pattern, terms(exec), 1..4).prop_map(|rules| {
        let rules: Vec<_> =
            rules.iter().map(|(key, value)| format!("{}: {value}", quoted(key))).collect();
        format!("{{{}}}", rules.join(", "))
    })
}

/// Members that a manifest and a ceiling have in common.
fn common() -> impl Strategy<Value = String> {
    (rule(false), rule(true), approvers(), texts(), any::<[bool; 5]>()).prop_map(
        |(read, exec, who, hard, [a, b, c, d, e])| {
            let id = if e { "    net: {effect: deny, id: '1'}\n" } else { "" };
            let mut out = "permissions:\n  mcp.call:\n    a: ask\n".to_owned() + id;
            for (wanted, line) in [
                (a, format!("  fs.read: {read}\n")),
                (b, format!("  process.exec: {exec}\n")),
                (true, "  network: {\"*.a.test:443\": allow}\n".to_owned()),
                (c, format!("approvers: {who}\n")),
                (d && !hard.contains("\\U"), format!("hard_deny: {{fs.write: {hard}}}\n")),
                (e, "tests: [{action: network, subject: 'a:1', expect: deny}, {action: network, expect: ask}]\n".to_owned()),
            ] {
                if wanted {
                    out += &line;
                }
            }
            out
        },
    )
}

fn manifest() -> impl Strategy<Value = String> {
    (text(), texts(), common(), 1u64..1 << 40, any::<[bool; 5]>()).prop_map(
        |(line, lines, common, number, [a, b, c, d, e])| {
            let mut out = format!(
                "id: '1-a'\ntitle: {line}\ngoal: {line}\nacceptance: {lines}\nallowed_paths: ['a/**', \"é b/\"]\n{common}"
            );
            for (wanted, line) in [
                (a, format!("budget: {{max_steps: {number}, max_wall_time: {number}ms}}\n")),
                (b, "delivery: {type: none}\n".to_owned()),
                (
                    c,
                    format!(
                        "execution: {{backend: oci, image: 'a:1', allow_commands: {lines}, servers: {{n: {{command: {lines}, tools: [a/b], output: {number}}}, a-1: {{command: {lines}, tools: [x, y], timeout: 5s}}}}, limits: {{cpus: 1.25, memory: {number}, time: 3m}}}}\n"
                    ),
                ),
                (d, "interaction: {on_disconnect: hold, permission_timeout: 5h}\n".to_owned()),
                (e, "models: ['1', b]\n".to_owned()),
            ] {
                if wanted {
                    out += &line;
                }
            }
            out
        },
    )
}

proptest! {
    #[test]
    fn a_printed_manifest_is_the_same_manifest(text in manifest()) {
        match Manifest::parse(text.as_bytes(), "a.yaml") {
            Ok(first) => {
                let printed = print(&first);
                let again = Manifest::parse(printed.as_bytes(), "b.yaml");
                let again = again.map_err(|faults| TestCaseError::fail(format!("{faults}\n{printed}")))?;
                prop_assert_eq!(Manifest { digest: first.digest, ..again.clone() }, first);
                prop_assert_eq!(print(&again), printed);
            }
            // Random hard_deny entries may be listed twice; nothing else is wrong.
            Err(faults) => prop_assert!(faults.to_string().contains("twice"), "{faults}\n{text}"),
        }
    }

    #[test]
    fn a_printed_ceiling_is_the_same_ceiling(common in common(), title in text(), empty in any::<bool>()) {
        let paths = if empty { "[]" } else { "['a/**']" };
        let text = format!("kind: ceiling\nid: '1'\ntitle: {title}\n{common}protected_paths: {paths}\n");
        // A ceiling's test may fail where the manifest's holds: only what is read counts here.
        let text = text.replace("expect: ask", "expect: ask, rule: permissions.network");
        if let Ok(first) = Ceiling::parse(text.as_bytes(), "a.yaml") {
            let again = Ceiling::parse(print_ceiling(&first).as_bytes(), "b.yaml").unwrap();
            prop_assert_eq!(Ceiling { digest: first.digest, ..again }, first);
        } else {
            prop_assert!(text.contains("hard_deny"), "{}", text);
        }
    }
}

#[test]
fn the_starting_text_prints_as_itself() {
    let first = Manifest::parse(starter("a").as_bytes(), "a.yaml").unwrap();
    let again = Manifest::parse(print(&first).as_bytes(), "b.yaml").unwrap();
    assert_eq!(Manifest { digest: first.digest, ..again }, first);
}
