//! What holds for every plan and every signed payload, not only for the examples.

use crate::pki::{Ca, DOMAIN, NOW, grant};
use event::id::{CallId, RunId};
use event::{Digest, Effect, EffectClass, Executor, Layer, Matched, Scope};
use proptest::prelude::*;
use receipt::{
    FileState, Grant, Limits, Mount, MountMode, Network, NotCarried, NotCarriedEntry, Part, Patch,
    PatchEntry, PatchLink, PatchOp, PathText, Payload, Plan, Policy, Program, Requirement, Signed,
    Signer, Snapshot, Stdin, Step, Totals, Undoes, Verifier, Version, plan_digest, strictest,
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
    let program = (path_text(), prop::option::of(path_text()), any::<bool>())
        .prop_map(|(path, resolved, workspace)| Program { path, resolved, workspace });
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
    let undoes = digest().prop_map(|patch| Undoes { run: RunId::nil(), patch });
    let of = (prop::option::of(digest()), prop::option::of(undoes));
    let stays = (prop::collection::vec(link, 0..3), prop::option::of(not_carried), of);
    (digest(), count(), count(), paths(), paths(), prop::collection::vec(entry, 0..3), stays)
        .prop_map(
            |(
                digest,
                entries,
                bytes,
                protected,
                deletions,
                listed,
                (links, not_carried, (part_of, undoes)),
            )| {
                Patch {
                    digest,
                    totals: Totals { entries, bytes },
                    protected,
                    deletions,
                    entries: listed,
                    links,
                    not_carried,
                    part_of,
                    undoes,
                }
            },
        )
}

prop_compose! {
    fn mount()(
        source in "[a-z/]{1,8}",
        target in "/[a-z]{0,8}",
        mode in prop::sample::select(vec![MountMode::Ro, MountMode::Rw]),
    ) -> Mount {
        Mount { source, target, mode }
    }
}

prop_compose! {
    fn command()(
        argv in prop::option::of(prop::collection::vec("[a-z é\n]{0,8}", 0..4)),
        cwd in prop::option::of("/[a-z]{0,8}"),
        env in prop::option::of(prop::collection::btree_set("[A-Z]{1,6}", 0..4)),
        image in prop::option::of(digest()),
        limits in prop::option::of(limits()),
        mounts in prop::collection::vec(mount(), 0..3),
    ) -> (Option<Vec<String>>, Option<String>, Option<std::collections::BTreeSet<String>>, Option<Digest>, Option<Limits>, Vec<Mount>) {
        (argv, cwd, env, image, limits, mounts)
    }
}

fn input() -> impl Strategy<Value = Stdin> {
    ".{0,20}".prop_map(|text| Stdin::of(&text))
}

fn step() -> impl Strategy<Value = Step> {
    (prop::collection::vec("[a-z é\n]{0,8}", 1..4), path_text(), any::<bool>()).prop_map(
        |(argv, path, workspace)| Step {
            argv,
            program: Program { path, resolved: None, workspace },
        },
    )
}

fn commands() -> impl Strategy<Value = (Option<Stdin>, Option<String>, Vec<Step>)> {
    (prop::option::of(input()), prop::option::of("[a-z]{1,8}"), prop::collection::vec(step(), 0..3))
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
        (argv, cwd, env, image, limits, mounts) in command(),
        snapshot in prop::option::of((digest(), digest(), prop::option::of(digest()), count())),
        workspace in prop::option::of("[a-z]{1,8}"),
        (patch, (stdin, check, steps)) in (prop::option::of(patch()), commands()),
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
            task: program.as_ref().map(|_| "look around".to_owned()),
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
            mounts,
            snapshot: snapshot.map(|(base, digest, mounted, withheld)| Snapshot {
                base,
                digest,
                mounted,
                withheld,
            }),
            workspace,
            patch,
            stdin,
            check,
            steps,
            mcp: None,
            edit: None,
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
            none => {
                *none = Some(Program { path: "/bin/sh".into(), resolved: None, workspace: false });
            }
        }),
        with(&|p| p.parts.push(explained(None, vec![]))),
        with(&|p| p.parts.push(explained(Some("why"), vec![]))),
        with(&|p| p.argv.get_or_insert_default().push("x".into())),
        with(&|p| p.stdin = Some(Stdin::of("another"))),
        with(&|p| p.check.get_or_insert_default().push('x')),
        with(&|p| {
            let program = Program { path: "/bin/x".into(), resolved: None, workspace: false };
            p.steps.push(Step { argv: vec!["x".into()], program });
        }),
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
        with(&|p| {
            let (source, target) = ("x".into(), "/dependencies/x".into());
            p.mounts.push(Mount { source, target, mode: MountMode::Ro });
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
                    part_of: None,
                    undoes: None,
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
                    mounted: Some(Digest::of(b"m")),
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
