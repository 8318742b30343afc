//! Fences and environments: who may use a session at all.

use event::id::{RunId, SessionId};
use proto::common::v1 as common;
use receipt::Grant;
use serde_json::json;
use transport::issue::DevPki;

use super::run::Run;
use super::world::{IMAGE, World, manifest, open_manifest};
use crate::session::now_secs;

fn owner(session: SessionId, node: &str, epoch: u64) -> common::Owner {
    common::Owner { session_id: session.to_string(), node: node.to_owned(), epoch }
}

/// Why a session with this manifest is not served.
pub(super) async fn refusal(world: &World, text: &str) -> String {
    let session = SessionId::new();
    let grant = world.sign(&world.grant(session, text));
    world.fence(&owner(session, "a", 1), &grant, text).await.unwrap_err().reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_must_be_signed_for_this_session_and_manifest() {
    let world = World::new(&[]).await;
    let session = SessionId::new();
    let text = open_manifest();
    let good = world.grant(session, &text);
    let stranger = DevPki::new("test.harness".parse().unwrap()).unwrap().receipts("0").unwrap();
    let stranger =
        receipt::Signer::from_pem(stranger.cert_pem.as_bytes(), stranger.key_pem.as_bytes())
            .unwrap();
    let mut forged = world.sign(&good);
    forged.payload = world.sign(&Grant { subject: "eve".into(), ..good.clone() }).payload;
    let now = now_secs();
    let cases = [
        (forged, "GRANT_SIGNATURE_INVALID"),
        (stranger.sign(&good).unwrap(), "GRANT_SIGNER_UNTRUSTED"),
        (world.sign(&Grant { iat: now - 20, exp: now - 10, ..good.clone() }), "GRANT_EXPIRED"),
        (
            world.sign(&Grant { iat: now + 600, exp: now + 900, ..good.clone() }),
            "GRANT_NOT_YET_VALID",
        ),
        (
            world.sign(&Grant { session: SessionId::new(), ..good.clone() }),
            "GRANT_SESSION_MISMATCH",
        ),
        (
            world.sign(&Grant { manifest: event::Digest::of(b"x"), ..good.clone() }),
            "MANIFEST_MISMATCH",
        ),
        (world.sign(&Grant { manifest_id: "other".into(), ..good.clone() }), "MANIFEST_MISMATCH"),
        (world.sign(&Grant { workspace: "other".into(), ..good.clone() }), "WORKSPACE_UNKNOWN"),
    ];
    let by = owner(session, "a", 1);
    let expected: Vec<_> = cases.iter().map(|(_, reason)| *reason).collect();
    for (grant, reason) in &cases {
        assert_eq!(world.fence(&by, grant, &text).await.unwrap_err().reason, *reason);
    }
    world.ledger.wait(|entries| entries.len() == expected.len()).await;
    let recorded: Vec<_> = world
        .ledger
        .entries()
        .into_iter()
        .map(|entry| match entry.event.data {
            event::Data::CallRefused(refused) => {
                assert_eq!(
                    (refused.session_id, refused.stage),
                    (session.to_string(), event::Stage::Fence)
                );
                assert_eq!(entry.session, SessionId::nil().to_string());
                refused.reason
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(recorded, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_host_cannot_do_is_refused_by_name() {
    let world = World::new(&[]).await;
    let text = open_manifest();
    let cases = [
        (
            text.replace("backend: oci", "backend: oci\n  mode: mount")
                .replace("allowed_paths: ['**']", "allowed_paths: ['src/']"),
            "WORKSPACE_OF_ROOT",
        ),
        (
            format!(
                "{}execution: {{backend: none, mode: mount}}\n",
                text.split("execution:").next().unwrap()
            )
            .replace("allowed_paths: ['**']", "allowed_paths: ['src/']"),
            "MODE_UNSUPPORTED",
        ),
        (text.replace("backend: oci", "backend: oci\n  dependencies: [x]"), "DEPENDENCY_UNKNOWN"),
        (
            text.replace("allowed_paths: ['**']", "allowed_paths: ['src/']").replace(
                "  limits:",
                "  mode: mount\n  servers: {notes: {command: [sh], tools: [read]}}\n  limits:",
            ),
            "MANIFEST_INVALID",
        ),
        (text.replace("network: deny", "network: allow"), "NETWORK_UNSUPPORTED"),
        (text.replace("network: deny", "network: ask"), "NETWORK_UNSUPPORTED"),
        (text.replace("network: deny", "network: {'a.test:443': allow}"), "NETWORK_UNSUPPORTED"),
        (
            text.replace("network: deny", "network: {'a.test:443': allow, '*': deny}"),
            "NETWORK_UNSUPPORTED",
        ),
        (text.replace(IMAGE, "no/such:1"), "IMAGE_UNKNOWN"),
        (text.replace(IMAGE, "../../info"), "IMAGE_UNKNOWN"),
        (text.replace("title: Demo", "titel: Demo"), "MANIFEST_INVALID"),
    ];
    for (text, reason) in cases {
        assert_eq!(refusal(&world, &text).await, reason, "{text}");
    }
    let unruled = text.replace("  network: deny\n", "");
    let session = SessionId::new();
    let grant = world.sign(&world.grant(session, &unruled));
    let answer = world.fence(&owner(session, "a", 1), &grant, &unruled).await.unwrap();
    let tools: Vec<_> = answer.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        tools,
        [
            "list_files",
            "read_file",
            "read_files",
            "search_files",
            "search_many",
            "environment_status",
            "workspace_diff",
            "mutation_audit",
            "propose_edits",
            "apply_edits",
            "move_file",
            "quarantine_file",
            "restore_file",
            "process.exec",
            "run_batch",
            "run_check",
            "inspect_patch",
            "import_patch",
            "delegate",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_back_end_there_are_repository_tools_only() {
    let world = World::new(&[("a", "x")]).await;
    let text = "id: demo\ntitle: D\ngoal: g\nacceptance: [x]\nallowed_paths: ['**']\n\
                permissions: {fs.read: allow, fs.list: allow}\n";
    let run = world.run(text).await;
    assert!(run.plan("read_file", json!({ "path": "a" })).await.result.is_some());
    let refused = run.try_plan("process.exec", &json!({ "argv": ["sh"] })).await;
    assert_eq!(refused.unwrap_err(), "TOOL_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_holder_of_the_fence_is_served() {
    let world = World::new(&[]).await;
    let text = open_manifest();
    let run = world.run(&text).await;
    let grant = world.sign(&world.grant(run.session, &text));
    let next = Run { owner: owner(run.session, "node-b", 2), ..run.clone() };
    assert_eq!(next.try_plan("list_files", &json!({})).await.unwrap_err(), "FENCE_STALE");
    world.fence(&next.owner, &grant, &text).await.unwrap();
    let call = next.plan_exec(&["true"]).await;

    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "FENCE_STALE");
    assert_eq!(run.send(run.order(&call, None)).await.unwrap_err().reason, "FENCE_STALE");
    assert_eq!(run.open().await.unwrap_err().reason, "FENCE_STALE");
    assert_eq!(run.close().await.unwrap_err().reason, "FENCE_STALE");
    let same_epoch = owner(run.session, "node-c", 2);
    assert_eq!(world.fence(&same_epoch, &grant, &text).await.unwrap_err().reason, "FENCE_STALE");
    assert_eq!(world.fence(&run.owner, &grant, &text).await.unwrap_err().reason, "FENCE_STALE");
    let unknown = Run { owner: owner(SessionId::new(), "node-a", 1), ..run.clone() };
    assert_eq!(unknown.open().await.unwrap_err().reason, "SESSION_UNKNOWN");
    assert_eq!(next.execute(&call, None).await.end(), "exited 0");

    let nil = SessionId::nil().to_string();
    world.ledger.wait(|_| world.ledger.refusals(&nil).len() == 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_changes_nothing_but_times_and_an_expired_grant_serves_nothing() {
    let world = World::new(&[]).await;
    let text = open_manifest();
    let session = SessionId::new();
    let by = owner(session, "node-a", 1);
    let now = now_secs();
    let short = Grant { iat: now - 5, exp: now + 3, ..world.grant(session, &text) };
    world.fence(&by, &world.sign(&short), &text).await.unwrap();
    let run = Run { world: &world, session, owner: by.clone(), run: RunId::new() };
    run.open().await.unwrap();
    let call = run.plan_exec(&["true"]).await;
    while now_secs() < short.exp {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "GRANT_EXPIRED");
    assert_eq!(run.execute(&call, None).await.end(), "GRANT_EXPIRED");
    let other = Run { run: RunId::new(), ..run.clone() };
    assert_eq!(other.open().await.unwrap_err().reason, "GRANT_EXPIRED");

    let renewed = world.grant(session, &text);
    let wider = world.sign(&Grant { subject: "eve".into(), ..renewed.clone() });
    assert_eq!(world.fence(&by, &wider, &text).await.unwrap_err().reason, "GRANT_CHANGED");
    world.fence(&by, &world.sign(&renewed), &text).await.unwrap();
    assert_eq!(run.execute(&call, None).await.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_one_copy_and_it_is_its_sessions() {
    let world = World::new(&[("a", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let first = run.open().await.unwrap();
    run.sh("echo y > a").await;
    assert_eq!(run.open().await.unwrap(), first);
    let theirs = world.run(&open_manifest()).await;
    let theirs = Run { run: run.run, ..theirs };
    assert_eq!(theirs.open().await.unwrap_err().reason, "RUN_UNKNOWN");
    assert_eq!(theirs.close().await.unwrap_err().reason, "RUN_UNKNOWN");
    assert_eq!(theirs.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");

    let copy = run.copy();
    let call = run.plan_exec(&["sleep", "100"]).await;
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(super::run::read(stream).await.unwrap().end(), "canceled");
    assert!(!copy.exists());
    run.close().await.unwrap();
    assert_eq!(run.open().await.unwrap_err().reason, "ENVIRONMENT_UNKNOWN");
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_is_too_large_is_refused_and_leaves_nothing() {
    let world = World::new(&[]).await;
    for number in 0..30 {
        std::fs::write(world.workspace().join(number.to_string()), "x").unwrap();
    }
    let text = manifest("").replace("workspace_inodes: 2000", "workspace_inodes: 20");
    let session = SessionId::new();
    let by = owner(session, "node-a", 1);
    world.fence(&by, &world.sign(&world.grant(session, &text)), &text).await.unwrap();
    let run = Run { world: &world, session, owner: by, run: RunId::new() };
    let fault = run.open().await.unwrap_err();
    assert_eq!(
        (fault.reason.as_str(), fault.message.as_str()),
        (
            "WORKSPACE_TOO_LARGE",
            "the workspace cannot be copied: it has more than 20 entries; raise \
             execution.limits.workspace_inodes in the manifest, and sandbox-svc's \
             --max-workspace-inodes where that is lower"
        )
    );
    let left = std::fs::read_dir(world.dir.path().join("state/environments")).unwrap().count();
    assert_eq!(left, 0);

    std::fs::write(world.workspace().join("big"), vec![0; 5000]).unwrap();
    let text = manifest("").replace("workspace_bytes: 128MiB", "workspace_bytes: 4096");
    let text = text.replace("file_bytes: 96MiB", "file_bytes: 4096");
    let by = owner(SessionId::new(), "node-a", 1);
    let session = SessionId::parse(&by.session_id).unwrap();
    world.fence(&by, &world.sign(&world.grant(session, &text)), &text).await.unwrap();
    let run = Run { world: &world, session, owner: by, run: RunId::new() };
    for number in 0..5 {
        std::fs::write(world.workspace().join(format!("k{number}")), [b'x'; 1000]).unwrap();
    }
    let fault = run.open().await.unwrap_err();
    assert_eq!(fault.reason, "WORKSPACE_TOO_LARGE");
    let limit = "4096 bytes";
    let raise = "raise execution.limits.workspace_bytes in the manifest";
    assert!(fault.message.contains(limit) && fault.message.contains(raise), "{}", fault.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_the_callers_fault() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let order = run.order(&call, None);
    let mut cases = vec![order.clone(); 6];
    cases[0].owner = None;
    cases[1].call = None;
    cases[2].plan_digest.pop();
    cases[3].call.as_mut().unwrap().call_id = "x".to_owned();
    cases[4].owner.as_mut().unwrap().epoch = 0;
    cases[5].tool = "x".repeat(200);
    for order in cases {
        let fault = run.send(order).await.unwrap_err();
        assert_eq!(
            (fault.code, fault.reason.as_str()),
            (transport::Code::InvalidArgument, "REQUEST_INVALID")
        );
    }
}
