//! Plans as they are written, and what is no plan although it reads like one.

use crate::pki::grant;
use event::id::{CallId, RunId};
use event::{Digest, Effect, EffectClass, Executor, Layer, Matched, Scope};
use receipt::{
    Malformed, Network, Part, Plan, PlanTooLarge, Policy, Program, Requirement, Snapshot, ToolCall,
    ToolServer, Version, meant,
};

fn example() -> Plan {
    Plan {
        v: Version::V1,
        session: grant().session,
        run: RunId::nil(),
        call: CallId::nil(),
        tool: "process.exec".into(),
        action: "process.exec".into(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once, Scope::Run],
        task: None,
        manifest: Digest::of(b"manifest"),
        policies: vec![],
        parts: vec![Part {
            action: "process.exec".into(),
            subject: Some("cargo test".into()),
            effect: Effect::Ask,
            layer: Layer::Manifest,
            rule: "permissions.process.exec".into(),
            justification: None,
            matching: vec![],
        }],
        approval: vec![],
        network: Network::None,
        argv: Some(vec!["cargo".into(), "test".into()]),
        program: None,
        cwd: None,
        env: None,
        image: None,
        limits: None,
        mounts: Vec::new(),
        snapshot: None,
        workspace: None,
        patch: None,
        stdin: None,
        check: None,
        steps: Vec::new(),
        mcp: None,
        edit: None,
    }
}

#[test]
fn a_plan_is_the_canonical_json_of_its_members() {
    let bytes = example().to_bytes().unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        concat!(
            r#"{"action":"process.exec","argv":["cargo","test"],"#,
            r#""call":"00000000-0000-0000-0000-000000000000","effect":"ask","#,
            r#""effect_class":"staged","executor":"sandbox-svc","#,
            r#""manifest":"MANIFEST","#,
            r#""network":{"mode":"none"},"parts":[{"action":"process.exec","effect":"ask","#,
            r#""layer":"manifest","rule":"permissions.process.exec","subject":"cargo test"}],"#,
            r#""run":"00000000-0000-0000-0000-000000000000","scopes":["once","run"],"#,
            r#""session":"0198f000-0000-7000-8000-000000000001","subject":"cargo test","#,
            r#""tool":"process.exec","v":1}"#,
        )
        .replace("MANIFEST", &Digest::of(b"manifest").to_string())
    );
}

#[test]
fn what_rules_and_people_a_plan_rests_on_is_written_as_documented() {
    let matched = |layer, rule: &str, effect| Matched { layer, rule: rule.into(), effect };
    let requirement = Requirement {
        roles: ["operator".to_owned(), "admin".to_owned()].into(),
        not_requester: true,
        count: 2,
        signature: true,
    };
    let plan = Plan {
        policies: vec![Policy { layer: Layer::Organisation, digest: Digest::of(b"ceiling") }],
        parts: vec![Part {
            layer: Layer::Organisation,
            rule: "shells".into(),
            justification: Some("a shell does anything".into()),
            matching: vec![
                matched(Layer::Organisation, "shells", Effect::Ask),
                matched(Layer::Manifest, "permissions.process.exec", Effect::Allow),
            ],
            ..example().parts.remove(0)
        }],
        approval: vec![requirement],
        program: Some(Program {
            path: "/bin/sh".into(),
            resolved: Some("/bin/busybox".into()),
            workspace: true,
        }),
        ..example()
    };
    let bytes = plan.to_bytes().unwrap();
    assert_eq!(Plan::parse(&bytes), Ok(plan));
    let text = String::from_utf8(bytes).unwrap();
    for member in [
        r#""approval":[{"count":2,"not_requester":true,"roles":["admin","operator"],"signature":true}]"#,
        r#""justification":"a shell does anything","layer":"organisation","matching":[{"effect":"ask","layer":"organisation","rule":"shells"},{"effect":"allow","layer":"manifest","rule":"permissions.process.exec"}],"rule":"shells""#,
        r#""program":{"path":"/bin/sh","resolved":"/bin/busybox","workspace":true}"#,
        &format!(
            r#""policies":[{{"digest":"{}","layer":"organisation"}}]"#,
            Digest::of(b"ceiling")
        ),
    ] {
        assert!(text.contains(member), "{member} in {text}");
    }
    assert!(!event::redact::holds_secret(&serde_json::from_str(&text).unwrap()));
}

fn of_a_tool(definition: &[u8], note: &str, hint: bool) -> Plan {
    let call = ToolCall {
        tool: "read_notes".into(),
        definition: Digest::of(definition),
        arguments: serde_json::Map::from_iter([("note".to_owned(), note.into())]),
        description: Some("Reads a note.".into()),
        hints: [("readOnlyHint".to_owned(), hint)].into(),
    };
    Plan { mcp: Some(ToolServer { server: "notes".into(), call: Some(call) }), ..example() }
}

#[test]
fn a_plan_of_a_tool_names_its_definition_its_arguments_and_what_the_server_says_of_it() {
    let plan = of_a_tool(b"one", "a", true);
    let bytes = plan.to_bytes().unwrap();
    assert_eq!(Plan::parse(&bytes), Ok(plan));
    let member = format!(
        r#""mcp":{{"call":{{"arguments":{{"note":"a"}},"definition":"{}","description":"Reads a note.","hints":{{"readOnlyHint":true}},"tool":"read_notes"}},"server":"notes"}}"#,
        Digest::of(b"one")
    );
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains(&member), "{text}");
}

#[test]
fn another_definition_another_argument_or_another_hint_is_another_action() {
    let first = of_a_tool(b"one", "a", true);
    let digest = |plan: &Plan| plan.action_digest().unwrap();
    let again = Plan { call: CallId::new(), snapshot: None, ..first.clone() };
    assert_eq!(digest(&again), digest(&first));
    for other in
        [of_a_tool(b"two", "a", true), of_a_tool(b"one", "b", true), of_a_tool(b"one", "a", false)]
    {
        assert_ne!(digest(&other), digest(&first));
    }
}

#[test]
fn a_plan_names_no_requirement_that_goes_without_saying_or_needs_nobody() {
    let trivial = Requirement::default();
    let nobody = Requirement { count: 0, signature: true, ..Requirement::default() };
    for requirement in [trivial.clone(), nobody.clone()] {
        let bytes = Plan { approval: vec![requirement], ..example() }.to_bytes().unwrap();
        assert_eq!(Plan::parse(&bytes), Err(Malformed::Requirement));
    }
    let two = Requirement { count: 2, ..Requirement::default() };
    let one = Requirement { count: 1, ..nobody.clone() };
    assert_eq!(
        meant([two.clone(), trivial, nobody, two.clone()]),
        [one, two],
        "each once, and somebody always"
    );
}

#[test]
fn a_plan_that_contradicts_its_parts_or_says_more_is_refused() {
    let text = String::from_utf8(example().to_bytes().unwrap()).unwrap();
    for (name, other) in [
        ("a milder effect", text.replacen(r#""effect":"ask""#, r#""effect":"allow""#, 1)),
        ("another version", text.replace(r#""v":1"#, r#""v":2"#)),
        ("another network", text.replace(r#""mode":"none""#, r#""mode":"host""#)),
        ("more on the network", text.replace(r#""mode":"none""#, r#""mode":"none","x":1"#)),
        ("an unknown member", text.replace(r#""v":1"#, r#""v":1,"w":1"#)),
        ("a null", text.replace(r#""argv":["cargo","test"]"#, r#""argv":null"#)),
    ] {
        assert_ne!(other, text, "{name}");
        assert!(Plan::parse(other.as_bytes()).is_err(), "{name}");
    }
}

#[test]
fn a_plan_that_cannot_be_shown_is_refused() {
    let many = Plan { argv: Some(vec!["x".into(); 8_000]), ..example() };
    assert_eq!(many.to_bytes(), Err(PlanTooLarge::Nodes));
    let long = Plan { argv: Some(vec!["x".repeat(512 * 1024)]), ..example() };
    assert_eq!(long.to_bytes(), Err(PlanTooLarge::Bytes));
    let nothing = Digest::of(b"");
    let snapshot = Snapshot { base: nothing, digest: nothing, mounted: None, withheld: 1 << 53 };
    let number = Plan { snapshot: Some(snapshot), ..example() };
    assert_eq!(number.to_bytes(), Err(PlanTooLarge::Number));
}
