//! What holds for every plan and every signed payload, not only for the examples.

use crate::pki::{Ca, DOMAIN, NOW, grant};
use event::id::{CallId, RunId};
use event::{Digest, Effect, EffectClass, Executor, Layer, Matched, Scope};
use proptest::prelude::*;
use receipt::{
    FileState, Grant, Limits, Malformed, Network, NotCarried, NotCarriedEntry, Part, Patch,
    PatchEntry, PatchLink, PatchOp, PathText, Payload, Plan, PlanTooLarge, Policy, Program,
    Requirement, Signed, Signer, Snapshot, Totals, Verifier, Version, meant, plan_digest,
    strictest,
};
use uuid::Uuid;

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from)
}

fn path_text() -> impl Strategy<Value = PathText> {
    prop_oneof![
        "[a-z/.é\"\\\\\u{1}]{1,12}".prop_map(PathText::from),
        prop::collection::vec(any::<u8>(), 1..8).prop_map(|bytes| PathText::from_bytes(&bytes)),
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    prop::sample::select(vec![Effect::Allow, Effect::Ask, Effect::Deny])
}

fn layer() -> impl Strategy<Value = Layer> {
    prop::sample::select(vec![Layer::Organisation, Layer::Tenant, Layer::Manifest, Layer::System])
}

fn part() -> impl Strategy<Value = Part> {
    let rule = || "[a-z.\\[\\]*]{1,12}";
    let matched = (layer(), rule(), effect()).prop_map(|(layer, rule, effect)| Matched {
        layer,
        rule,
        effect,
    });
    let why = (prop::option::of("[a-z ]{0,12}"), prop::collection::vec(matched, 0..3));
    ("[a-z.]{1,12}", prop::option::of(path_text()), effect(), layer(), rule(), why).prop_map(
        |(action, subject, effect, layer, rule, (justification, matching))| Part {
            action,
            subject,
            effect,
            layer,
            rule,
            justification,
            matching,
        },
    )
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let roles = prop::collection::btree_set("[a-z]{1,6}", 0..3);
    (roles, any::<bool>(), 1u8.., any::<bool>())
        .prop_map(|(roles, not_requester, count, signature)| Requirement {
            roles,
            not_requester,
            count,
            signature,
        })
        .prop_filter("a plan names no other", |requirement| !requirement.is_trivial())
}

/// Ceilings, requirements and the program: what the plan says of its rules.
fn terms() -> impl Strategy<Value = (Vec<Policy>, Vec<Requirement>, Option<Program>)> {
    let policy = (layer(), digest()).prop_map(|(layer, digest)| Policy { layer, digest });
    let program = (path_text(), prop::option::of(path_text()))
        .prop_map(|(path, resolved)| Program { path, resolved });
    (
        prop::collection::vec(policy, 0..3),
        prop::collection::vec(requirement(), 0..3),
        prop::option::of(program),
    )
}

fn count() -> impl Strategy<Value = u64> {
    0..(1u64 << 53)
}

fn limits() -> impl Strategy<Value = Limits> {
    prop::array::uniform9(count()).prop_map(
        |[
            cpus_milli,
            file_bytes,
            memory,
            output,
            pids,
            time_ms,
            tmp_bytes,
            workspace_bytes,
            workspace_inodes,
        ]| {
            Limits {
                cpus_milli,
                file_bytes,
                memory,
                output,
                pids,
                time_ms,
                tmp_bytes,
                workspace_bytes,
                workspace_inodes,
            }
        },
    )
}

fn file_state() -> impl Strategy<Value = FileState> {
    ("0[0-7]{3}", digest(), count()).prop_map(|(mode, sha256, size)| FileState {
        mode,
        sha256,
        size,
    })
}

fn patch() -> impl Strategy<Value = Patch> {
    let op = prop::sample::select(vec![PatchOp::Create, PatchOp::Update, PatchOp::Delete]);
    let entry = (op, path_text(), prop::option::of(file_state()), prop::option::of(file_state()))
        .prop_map(|(op, path, before, after)| PatchEntry { op, path, before, after });
    let paths = || prop::collection::vec(path_text(), 0..3);
    let link = (path_text(), path_text()).prop_map(|(path, target)| PatchLink { path, target });
    let left =
        (path_text(), "[a-z_]{1,12}").prop_map(|(path, reason)| NotCarriedEntry { path, reason });
    let not_carried = (count(), prop::collection::vec(left, 0..3))
        .prop_map(|(total, entries)| NotCarried { total, entries });
    let stays = (prop::collection::vec(link, 0..3), prop::option::of(not_carried));
    (digest(), count(), count(), paths(), paths(), prop::collection::vec(entry, 0..3), stays)
        .prop_map(|(digest, entries, bytes, protected, deletions, listed, (links, not_carried))| {
            Patch {
                digest,
                totals: Totals { entries, bytes },
                protected,
                deletions,
                entries: listed,
                links,
                not_carried,
            }
        })
}

prop_compose! {
    fn command()(
        argv in prop::option::of(prop::collection::vec("[a-z é\n]{0,8}", 0..4)),
        cwd in prop::option::of("/[a-z]{0,8}"),
        env in prop::option::of(prop::collection::btree_set("[A-Z]{1,6}", 0..4)),
        image in prop::option::of(digest()),
        limits in prop::option::of(limits()),
    ) -> (Option<Vec<String>>, Option<String>, Option<std::collections::BTreeSet<String>>, Option<Digest>, Option<Limits>) {
        (argv, cwd, env, image, limits)
    }
}

prop_compose! {
    fn plan()(
        ids in any::<[u128; 3]>(),
        subject in prop::option::of(path_text()),
        parts in prop::collection::vec(part(), 0..4),
        scopes in prop::sample::subsequence(vec![Scope::Once, Scope::Run], 0..=2),
        executor in prop::sample::select(vec![Executor::SandboxSvc, Executor::ModelSvc]),
        effect_class in prop::sample::select(vec![
            EffectClass::Pure, EffectClass::Idempotent, EffectClass::Staged, EffectClass::Irreversible,
        ]),
        manifest in digest(),
        (policies, approval, program) in terms(),
        (argv, cwd, env, image, limits) in command(),
        snapshot in prop::option::of((digest(), digest(), count())),
        workspace in prop::option::of("[a-z]{1,8}"),
        patch in prop::option::of(patch()),
    ) -> Plan {
        let [session, run, call] = ids.map(Uuid::from_u128);
        Plan {
            v: Version::V1,
            session: session.into(),
            run: run.into(),
            call: call.into(),
            tool: "process.exec".into(),
            action: "process.exec".into(),
            subject,
            effect: strictest(&parts),
            effect_class,
            executor,
            scopes,
            manifest,
            policies,
            parts,
            approval,
            network: Network::None,
            argv,
            program,
            cwd,
            env,
            image,
            limits,
            snapshot: snapshot.map(|(base, digest, withheld)| Snapshot { base, digest, withheld }),
            workspace,
            patch,
        }
    }
}

fn explained(justification: Option<&str>, matching: Vec<Matched>) -> Part {
    Part {
        action: "fs.read".into(),
        subject: None,
        effect: Effect::Allow,
        layer: Layer::System,
        rule: "interpreter".into(),
        justification: justification.map(str::to_owned),
        matching,
    }
}

/// The members that an action digest must notice, each changed in turn.
fn other_actions(plan: &Plan) -> Vec<Plan> {
    let new = || Digest::of(b"another");
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut other = plan.clone();
        change(&mut other);
        other
    };
    let flipped = |effect| if effect == Effect::Ask { Effect::Deny } else { Effect::Ask };
    vec![
        with(&|p| p.session = Uuid::now_v7().into()),
        with(&|p| p.tool.push('x')),
        with(&|p| p.action.push('x')),
        with(&|p| p.subject = Some("another".into())),
        with(&|p| p.effect = flipped(p.effect)),
        with(&|p| {
            p.effect_class = if p.effect_class == EffectClass::Pure {
                EffectClass::Staged
            } else {
                EffectClass::Pure
            };
        }),
        with(&|p| {
            p.executor = if p.executor == Executor::SandboxSvc {
                Executor::ModelSvc
            } else {
                Executor::SandboxSvc
            };
        }),
        with(&|p| p.scopes.push(Scope::Once)),
        with(&|p| p.manifest = new()),
        with(&|p| {
            p.parts.push(Part {
                action: "fs.read".into(),
                subject: None,
                effect: Effect::Allow,
                layer: Layer::Manifest,
                rule: "default".into(),
                justification: None,
                matching: vec![],
            });
        }),
        with(&|p| p.policies.push(Policy { layer: Layer::Tenant, digest: new() })),
        with(&|p| p.approval.push(Requirement { count: 2, ..Requirement::default() })),
        with(&|p| match &mut p.program {
            Some(program) => program.path = "/another".into(),
            none => *none = Some(Program { path: "/bin/sh".into(), resolved: None }),
        }),
        with(&|p| p.parts.push(explained(None, vec![]))),
        with(&|p| p.parts.push(explained(Some("why"), vec![]))),
        with(&|p| p.argv.get_or_insert_default().push("x".into())),
        with(&|p| p.cwd.get_or_insert_default().push('x')),
        with(&|p| {
            p.env.get_or_insert_default().insert("ANOTHER".into());
        }),
        with(&|p| p.image = Some(new())),
        with(&|p| {
            p.limits = match p.limits {
                Some(limits) => Some(Limits { pids: limits.pids ^ 1, ..limits }),
                None => Some(Limits {
                    cpus_milli: 1,
                    file_bytes: 1,
                    memory: 1,
                    output: 1,
                    pids: 1,
                    time_ms: 1,
                    tmp_bytes: 1,
                    workspace_bytes: 1,
                    workspace_inodes: 1,
                }),
            };
        }),
        with(&|p| p.workspace.get_or_insert_default().push('x')),
        with(&|p| match &mut p.patch {
            Some(patch) => patch.digest = new(),
            none => {
                *none = Some(Patch {
                    digest: new(),
                    totals: Totals { entries: 0, bytes: 0 },
                    protected: vec![],
                    deletions: vec![],
                    entries: vec![],
                    links: vec![],
                    not_carried: None,
                });
            }
        }),
    ]
}

proptest! {
    #[test]
    fn a_plan_reads_back_as_written(plan in plan()) {
        let bytes = plan.to_bytes().unwrap();
        let again = Plan::parse(&bytes).unwrap();
        prop_assert_eq!(&again, &plan);
        prop_assert_eq!(again.to_bytes().unwrap(), bytes);
    }

    #[test]
    fn the_action_digest_ignores_exactly_run_call_and_snapshot(plan in plan()) {
        let action = plan.action_digest().unwrap();
        let elsewhere = Plan {
            run: RunId::new(),
            call: CallId::new(),
            snapshot: match plan.snapshot {
                Some(_) => None,
                None => Some(Snapshot {
                    base: Digest::of(b"b"),
                    digest: Digest::of(b"d"),
                    withheld: 1,
                }),
            },
            ..plan.clone()
        };
        prop_assert_eq!(elsewhere.action_digest().unwrap(), action);
        prop_assert_ne!(
            plan_digest(&elsewhere.to_bytes().unwrap()),
            plan_digest(&plan.to_bytes().unwrap())
        );
        for other in other_actions(&plan) {
            prop_assert_ne!(other.action_digest().unwrap(), action, "{:?}", other);
        }
    }
}

fn setting() -> (Verifier, Signer) {
    let ca = Ca::new();
    (Verifier::new(ca.pem.as_bytes(), DOMAIN).unwrap(), ca.signer())
}

#[test]
fn no_single_bit_of_payload_or_signature_can_change() {
    let (verifier, signer) = setting();
    let signed = signer.sign(&grant()).unwrap();
    let refused = |signed: &Signed| verifier.verify::<Grant>(signed, NOW, &|_| false).is_err();
    assert!(!refused(&signed));
    for bit in 0..signed.payload.len() * 8 {
        let mut other = signed.clone();
        other.payload[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&other), "payload bit {bit}");
    }
    for bit in 0..signed.signature.len() * 8 {
        let mut other = signed.clone();
        other.signature[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&other), "signature bit {bit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_payload_reads_back_as_written(
        workspace in "\\PC{0,16}",
        models in prop::collection::vec("[a-z]{1,6}", 0..4),
        life in 1u64..12 * 3_600,
    ) {
        let grant = Grant { workspace, models, exp: NOW + life, ..grant() };
        let bytes = grant.to_bytes().unwrap();
        prop_assert_eq!(Grant::parse(&bytes).unwrap(), grant);
    }
}

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
        snapshot: None,
        workspace: None,
        patch: None,
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
        program: Some(Program { path: "/bin/sh".into(), resolved: Some("/bin/busybox".into()) }),
        ..example()
    };
    let bytes = plan.to_bytes().unwrap();
    assert_eq!(Plan::parse(&bytes), Ok(plan));
    let text = String::from_utf8(bytes).unwrap();
    for member in [
        r#""approval":[{"count":2,"not_requester":true,"roles":["admin","operator"],"signature":true}]"#,
        r#""justification":"a shell does anything","layer":"organisation","matching":[{"effect":"ask","layer":"organisation","rule":"shells"},{"effect":"allow","layer":"manifest","rule":"permissions.process.exec"}],"rule":"shells""#,
        r#""program":{"path":"/bin/sh","resolved":"/bin/busybox"}"#,
        &format!(
            r#""policies":[{{"digest":"{}","layer":"organisation"}}]"#,
            Digest::of(b"ceiling")
        ),
    ] {
        assert!(text.contains(member), "{member} in {text}");
    }
    assert!(!event::redact::holds_secret(&serde_json::from_str(&text).unwrap()));
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
    let snapshot = Snapshot { base: Digest::of(b""), digest: Digest::of(b""), withheld: 1 << 53 };
    let number = Plan { snapshot: Some(snapshot), ..example() };
    assert_eq!(number.to_bytes(), Err(PlanTooLarge::Number));
}
