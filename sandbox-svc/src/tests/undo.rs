//! Parts of a patch, and imports that are taken back: by a person alone, exactly, also after their run has ended.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use event::id::{RunId, SessionId};
use futures::StreamExt as _;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::get_patch_response::Part;
use receipt::Effect;
use serde_json::json;
use transport::Fault;

use super::run::Run;
use super::world::{World, open_manifest};

async fn changed(run: &Run<'_>, script: &str) {
    let told = run.sh(script).await;
    assert_eq!(told.end(), "exited 0", "{}", told.text());
}

async fn read(
    run: &Run<'_>,
    digest: &str,
    paths: &[&str],
    form: wire::PatchForm,
) -> Result<(Vec<String>, String), Fault> {
    let request = wire::GetPatchRequest {
        owner: Some(run.owner.clone()),
        run_id: run.run.to_string(),
        patch_digest: digest.to_owned(),
        paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
        form: form.into(),
    };
    let mut stream = run.world.client.clone().get_patch(request).await?.into_inner();
    let (mut entries, mut diff) = (Vec::new(), Vec::new());
    while let Some(part) = stream.next().await {
        match part?.part.unwrap() {
            Part::Entry(entry) => entries.push(String::from_utf8(entry.path).unwrap()),
            Part::Diff(bytes) => diff.extend(bytes),
        }
    }
    Ok((entries, String::from_utf8(diff).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_patch_is_imported_alone_and_the_rest_stays_importable() {
    let world = World::new(&[("a", "one\n"), ("d/x", "x\n"), ("u", "same\n")]).await;
    let run = world.run(&open_manifest()).await;
    changed(&run, "echo two > a; rm -r d; mkdir -p n/m; echo deep > n/m/f; echo new > n/g").await;
    let whole = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!((&whole["kind"], &whole["schemaVersion"]), (&json!("environment-patch"), &json!(1)));

    assert_eq!(whole["renames"], json!([]));
    let unknown = json!({ "paths": ["n", "u", "nope/x"] });
    for tool in ["inspect_patch", "import_patch"] {
        let refused = run.plan_or_refusal(tool, &unknown).await.unwrap_err();
        assert_eq!(
            (refused.reason.as_str(), refused.detail.as_str()),
            ("PATCH_PATH_UNKNOWN", "the patch has nothing at nope/x, u")
        );
    }

    // The digest may be that of the whole, which was looked at.
    let part = json!({ "digest": whole["patch"], "paths": ["n/m/f"] });
    let call = run.plan("import_patch", part).await;
    let patch = call.plan.patch.clone().unwrap();
    let paths: Vec<_> = patch.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, ["n", "n/m", "n/m/f"]);
    assert_eq!(json!(patch.part_of), whole["patch"]);
    assert_ne!(json!(patch.digest), whole["patch"]);
    let digest = patch.digest.to_string();
    let (entries, _) = read(&run, &digest, &[], wire::PatchForm::Shown).await.unwrap();
    assert_eq!(entries, paths);
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "done");
    let result = told.result();
    assert_eq!(
        (&result["kind"], &result["pathsTotal"], &result["undo"]["kept"]),
        (&json!("environment-patch-import"), &json!(3), &json!(true))
    );
    assert_eq!(
        result["paths"][0],
        json!({
            "path": "n", "kind": "directory", "mode": "040755", "size": 0,
            "sha256": event::Digest::of(b"").to_string(),
        })
    );
    assert_eq!(fs::read_to_string(world.workspace().join("n/m/f")).unwrap(), "deep\n");
    assert_eq!(fs::read_to_string(world.workspace().join("a")).unwrap(), "one\n");

    // A part of the rest is no conflict, and then the whole rest.
    let call = run.plan("import_patch", json!({ "paths": ["d"] })).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");
    assert!(!world.workspace().join("d").exists());
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(call.plan.patch.as_ref().unwrap().part_of, None);
    assert_eq!(run.execute(&call, None).await.end(), "done");
    assert_eq!(fs::read_to_string(world.workspace().join("n/g")).unwrap(), "new\n");
    assert_eq!(run.try_plan("import_patch", &json!({})).await.unwrap_err(), "PATCH_EMPTY");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_taken_back_after_its_run_has_ended_and_touches_nothing_else() {
    let mut world =
        World::new(&[("a", "one\n"), ("d/x", "x\n"), ("gone", "bytes"), ("other", "o")]).await;
    let host = world.workspace();
    fs::write(host.join("latin"), b"caf\xe9\r\n").unwrap();
    fs::set_permissions(host.join("gone"), fs::Permissions::from_mode(0o4750)).unwrap();
    std::os::unix::fs::chown(host.join("gone"), Some(1234), Some(1235)).unwrap();
    fs::set_permissions(host.join("gone"), fs::Permissions::from_mode(0o4750)).unwrap();
    let (first, patch) = {
        let run = world.run(&open_manifest()).await;
        let script = "echo two > a; rm -r d; echo file > d; rm gone; printf '\\377' >> latin; \
                      mkdir n; echo new > n/f; chmod 755 latin";
        changed(&run, script).await;
        let call = run.plan("import_patch", json!({})).await;
        assert_eq!(run.execute(&call, None).await.end(), "done");
        run.close().await.unwrap();
        (run.run, call.plan.patch.unwrap().digest)
    };
    let first_session = {
        // What was imported can still be read, by its own session alone.
        let row = world.sandbox().store.undo_rows(first, None).await.unwrap().remove(0);
        row.session
    };
    world.kill();
    world.start().await;
    let owner = |session: SessionId| proto::common::v1::Owner {
        session_id: session.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    let ended =
        Run { world: &world, session: first_session, owner: owner(first_session), run: first };
    let (entries, shown) = read(&ended, "", &[], wire::PatchForm::Shown).await.unwrap();
    assert_eq!(entries.len(), 8, "{entries:?}");
    assert!(shown.contains("-one\n+two\n"), "{shown}");
    let (_, git) = read(&ended, &patch.to_string(), &["a"], wire::PatchForm::Git).await.unwrap();
    assert_eq!(git, "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-one\n+two\n");
    let none = Run { run: RunId::new(), ..ended.clone() };
    let refused = read(&none, "", &[], wire::PatchForm::Git).await.unwrap_err();
    assert_eq!(refused.reason, "PATCH_GONE");
    let refused = read(&ended, "", &["zzz"], wire::PatchForm::Git).await.unwrap_err();
    assert_eq!(refused.reason, "PATCH_PATH_UNKNOWN");

    // Another run of the same workspace takes it back: asked, though the manifest allows everything.
    let run = world.run(&open_manifest()).await;
    let unknown = json!({ "run": RunId::new() });
    assert_eq!(run.try_plan("undo_patch", &unknown).await.unwrap_err(), "UNDO_UNKNOWN");
    let other = json!({ "run": first, "digest": event::Digest::of(b"x") });
    assert_eq!(run.try_plan("undo_patch", &other).await.unwrap_err(), "UNDO_UNKNOWN");
    let wish = json!({ "run": first, "digest": patch });

    for name in ["a", "n/f", "d"] {
        fs::write(host.join(name), "theirs").unwrap();
    }
    fs::write(host.join("gone"), "theirs").unwrap();
    let refused = run.plan_or_refusal("undo_patch", &wish).await.unwrap_err();
    assert_eq!(
        (refused.reason.as_str(), refused.detail.as_str()),
        (
            "HOST_CHANGED",
            "a changed on the host; d changed on the host; gone exists; n/f changed on the host"
        )
    );
    for (name, text) in [("a", "two\n"), ("n/f", "new\n"), ("d", "file\n")] {
        fs::write(host.join(name), text).unwrap();
    }
    fs::remove_file(host.join("gone")).unwrap();
    fs::write(host.join("other"), "theirs").unwrap();

    let call = run.plan("undo_patch", wish).await;
    let shown = call.plan.patch.clone().unwrap();
    assert_eq!(call.plan.effect, Effect::Ask);
    assert_eq!(
        (call.plan.parts[0].rule.as_str(), call.plan.parts[0].effect),
        ("undo", Effect::Ask)
    );
    assert_eq!(shown.undoes, Some(receipt::Undoes { run: first, patch }));
    let (entries, diff) =
        read(&run, &shown.digest.to_string(), &[], wire::PatchForm::Shown).await.unwrap();
    assert_eq!(entries.len(), 8);
    assert!(diff.contains("-two\n+one\n"), "{diff}");
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "done", "{}", told.result());

    assert_eq!(fs::read(host.join("latin")).unwrap(), b"caf\xe9\r\n");
    assert_eq!(fs::metadata(host.join("latin")).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(fs::read_to_string(host.join("a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(host.join("d/x")).unwrap(), "x\n");
    assert!(!host.join("n").exists());
    let gone = fs::metadata(host.join("gone")).unwrap();
    assert_eq!((gone.uid(), gone.gid(), gone.mode() & 0o7777), (1234, 1235, 0o4750));
    assert_eq!(fs::read_to_string(host.join("other")).unwrap(), "theirs");
    // That can be taken back as well, once; the first record now meets another workspace.
    let again = json!({ "run": first });
    assert_eq!(run.try_plan("undo_patch", &again).await.unwrap_err(), "HOST_CHANGED");
    let kinds = ["call.started", "call.finished"];
    world
        .ledger
        .wait(|_| {
            let seen = world.ledger.kinds(&run.stream_id());
            seen.iter().filter(|kind| kinds.contains(*kind)).count() == 2
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_import_is_as_good_as_none() {
    let world = World::new(&[("a", "one\n")]).await;
    let run = world.run(&open_manifest()).await;
    changed(&run, "echo two > a").await;
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");

    let session = SessionId::new();
    let owner = proto::common::v1::Owner { session_id: session.to_string(), ..run.owner.clone() };
    let manifest = open_manifest();
    let grant = receipt::Grant { tenant: "other".to_owned(), ..world.grant(session, &manifest) };
    world.fence(&owner, &world.sign(&grant), &manifest).await.unwrap();
    let theirs = Run { world: &world, session, owner, run: RunId::new() };
    theirs.open().await.unwrap();
    let wish = json!({ "run": run.run });
    assert_eq!(theirs.try_plan("undo_patch", &wish).await.unwrap_err(), "UNDO_UNKNOWN");
    let peek = Run { run: run.run, ..theirs.clone() };
    let refused = read(&peek, "", &[], wire::PatchForm::Git).await.unwrap_err();
    assert_eq!(refused.reason, "PATCH_GONE");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_bounded_by_age_and_size() {
    let world = World::new(&[("a", "one\n")]).await;
    let run = world.run(&open_manifest()).await;
    changed(&run, "echo two > a").await;
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");
    let sandbox = world.sandbox();
    let place = sandbox.undo.place(call.id);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 2);
    fs::create_dir(place.with_file_name("stranger")).unwrap();
    sandbox.undo.sweep(&sandbox.store, 0).await.unwrap();
    assert!(place.exists() && !place.with_file_name("stranger").exists());
    // As if as much as is kept in all were to come.
    sandbox.undo.sweep(&sandbox.store, sandbox.undo.retention.bytes).await.unwrap();
    assert!(!place.exists());
    let wish = json!({ "run": run.run });
    assert_eq!(run.try_plan("undo_patch", &wish).await.unwrap_err(), "UNDO_UNKNOWN");
}
