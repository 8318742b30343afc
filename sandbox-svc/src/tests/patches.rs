//! Patches: inspected, approved apart, written whole or not at all, and only over what was reviewed.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use futures::StreamExt as _;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::get_patch_response::Part;
use receipt::{Effect, PatchOp, Scope};
use serde_json::json;
use transport::Fault;

use super::run::Run;
use super::world::{World, asking_manifest, manifest, open_manifest};

async fn changed(run: &Run<'_>, script: &str) {
    let told = run.sh(script).await;
    assert_eq!(told.end(), "exited 0", "{}", told.text());
}

fn allow_exec(rules: &str) -> String {
    manifest(&format!("  process.exec: allow\n  fs.read: allow\n{rules}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewed_patch_changes_the_host_byte_for_byte() {
    let world =
        World::new(&[("app.txt", "old\n"), ("gone", "x"), ("dir/x", "x"), ("keep.txt", "k")]).await;
    let host = world.workspace();
    fs::write(host.join("latin"), b"caf\xe9 \xff\r\n").unwrap();
    std::os::unix::fs::chown(host.join("app.txt"), Some(1234), Some(1235)).unwrap();
    let run = world.run(&allow_exec("  fs.write: allow\n  patch.import: ask\n")).await;
    let script = "echo new > app.txt; rm gone; rm -r dir; echo file > dir; mkdir -p deep/er; \
                  printf 'a\\r\\nb' > deep/er/crlf; printf '\\377' >> latin; chmod 755 latin; \
                  printf keep.txt > .gitignore; ln -s app.txt link";
    changed(&run, script).await;

    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(inspected["totals"]["entries"], json!(11));
    assert!(inspected["diff"].as_str().unwrap().contains("-old\n+new\n"), "{inspected}");

    let call = run.plan("import_patch", json!({})).await;
    let patch = call.plan.patch.clone().unwrap();
    assert_eq!((call.plan.effect, &call.plan.scopes[..]), (Effect::Ask, &[Scope::Once][..]));
    assert_eq!(json!(patch.digest), inspected["patch"]);
    let deletions: Vec<_> = patch.deletions.iter().map(ToString::to_string).collect();
    assert_eq!(deletions, ["dir/x", "gone"]);
    assert_eq!(fs::read_to_string(host.join("app.txt")).unwrap(), "old\n");

    let links: Vec<_> =
        patch.links.iter().map(|link| (link.path.to_string(), link.target.to_string())).collect();
    assert_eq!(links, [("link".to_owned(), "app.txt".to_owned())]);
    assert_eq!(patch.not_carried, None);

    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "done");
    assert_eq!(fs::read_to_string(host.join("app.txt")).unwrap(), "new\n");
    assert_eq!(fs::read(host.join("deep/er/crlf")).unwrap(), b"a\r\nb");
    assert_eq!(fs::read(host.join("latin")).unwrap(), b"caf\xe9 \xff\r\n\xff");
    assert_eq!(fs::read_to_string(host.join("dir")).unwrap(), "file\n");
    assert_eq!(fs::read_to_string(host.join("keep.txt")).unwrap(), "k");
    assert_eq!(fs::read_link(host.join("link")).unwrap(), std::path::Path::new("app.txt"));
    assert!(!host.join("gone").exists());
    let owner = fs::metadata(host.join("app.txt")).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (1234, 1235));
    assert_eq!(fs::metadata(host.join("latin")).unwrap().permissions().mode() & 0o777, 0o755);
    let result = told.result();
    let app =
        result["paths"].as_array().unwrap().iter().find(|entry| entry["path"] == json!("app.txt"));
    let digest = event::Digest::of(b"new\n").to_string();
    assert_eq!(
        app.unwrap(),
        &json!({ "path": "app.txt", "kind": "file", "mode": "0644", "sha256": digest, "size": 4 })
    );

    // The base has followed; the same call finds its own result.
    assert_eq!(run.try_plan("import_patch", &json!({})).await.unwrap_err(), "PATCH_EMPTY");
    assert_eq!(run.execute(&call, None).await.finished, told.finished);
    changed(&run, "echo newer > app.txt").await;
    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert!(inspected["diff"].as_str().unwrap().contains("-new\n+newer\n"), "{inspected}");
    let names = fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".harness")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_changed_is_never_written_over() {
    let world = World::new(&[("a", "one"), ("b", "one")]).await;
    let run = world.run(&allow_exec("  fs.write: allow\n  patch.import: ask\n")).await;
    changed(&run, "echo two > a; echo new > c").await;
    let call = run.plan("import_patch", json!({})).await;
    // Somebody works on while the person thinks.
    fs::write(world.workspace().join("a"), "theirs").unwrap();
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "HOST_CHANGED");
    assert_eq!(run.try_plan("import_patch", &json!({})).await.unwrap_err(), "HOST_CHANGED");
    assert_eq!(fs::read_to_string(world.workspace().join("a")).unwrap(), "theirs");
    assert!(!world.workspace().join("c").exists());

    // What the patch does not touch may change.
    fs::write(world.workspace().join("a"), "one").unwrap();
    fs::write(world.workspace().join("b"), "theirs").unwrap();
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, Some(&run.approve(&call))).await.end(), "done");
    assert_eq!(fs::read_to_string(world.workspace().join("b")).unwrap(), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_after_the_approval_makes_the_plan_stale() {
    let world = World::new(&[("a", "one")]).await;
    let run = world.run(&allow_exec("  fs.write: allow\n  patch.import: ask\n")).await;
    changed(&run, "echo two > a").await;
    let call = run.plan("import_patch", json!({})).await;
    let receipt = run.approve(&call);
    changed(&run, "echo evil > a").await;
    assert_eq!(run.execute(&call, Some(&receipt)).await.end(), "PLAN_STALE");
    let named = json!({ "digest": call.plan.patch.unwrap().digest.to_string() });
    assert_eq!(run.try_plan("import_patch", &named).await.unwrap_err(), "PATCH_UNKNOWN");
    assert_eq!(fs::read_to_string(world.workspace().join("a")).unwrap(), "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_outside_of_the_task_are_denied_whatever_the_rules_say() {
    let world = World::new(&[("src/a", "x"), ("other", "x")]).await;
    let text = open_manifest().replace("allowed_paths: ['**']", "allowed_paths: ['src/**']");
    let run = world.run(&text).await;
    changed(&run, "mkdir src/new; echo y > src/new/b; echo y > other").await;
    let call = run.plan("import_patch", json!({})).await;
    let denied: Vec<_> =
        call.plan.parts.iter().filter(|part| part.effect == Effect::Deny).collect();
    assert_eq!(denied.len(), 1, "{denied:?}");
    assert_eq!(denied[0].subject.as_ref().unwrap().to_string(), "other");
    assert_eq!(denied[0].rule, "allowed_paths");
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "POLICY_DENIED");
    changed(&run, "echo x > undo; rm undo; printf x > other").await;
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(
        (call.plan.effect, call.plan.patch.as_ref().unwrap().totals.entries),
        (Effect::Allow, 2)
    );
    assert_eq!(run.execute(&call, None).await.end(), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_on_its_own_is_shown_apart_and_git_never_comes_along() {
    let world = World::new(&[("a", "x")]).await;
    let run = world.run(&allow_exec("  fs.write: allow\n  patch.import: ask\n")).await;
    let script = "mkdir -p .github/workflows .git/hooks '.git ' 'git~1' .GIT; echo x > .github/workflows/ci.yml; \
                  echo x > .git/hooks/pre-commit; echo x > '.git /config'; echo x > 'git~1/x'; \
                  echo x > AGENTS.md; echo x > Makefile; echo y > a; echo s > .env; mkfifo fifo; \
                  ln -s /etc/passwd out; ln a hard; chmod 4755 Makefile";
    changed(&run, script).await;
    let call = run.plan("import_patch", json!({})).await;
    let patch = call.plan.patch.clone().unwrap();
    let protected: Vec<_> = patch.protected.iter().map(ToString::to_string).collect();
    assert_eq!(
        protected,
        [".github", ".github/workflows", ".github/workflows/ci.yml", "AGENTS.md", "Makefile"]
    );
    let paths: Vec<_> = patch.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, protected);
    assert!(patch.entries.iter().all(|entry| entry.op == PatchOp::Create));
    assert_eq!(patch.entries[4].after.as_ref().unwrap().mode, "0755");

    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    let left: Vec<_> = inspected["notCarried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["path"].as_str().unwrap(), entry["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        left,
        [
            (".GIT", "git_metadata"),
            (".env", "secret_name"),
            (".git", "git_metadata"),
            (".git ", "git_metadata"),
            ("a", "linked"),
            ("fifo", "special_file"),
            ("git~1", "git_metadata"),
            ("hard", "linked"),
            ("out", "link_outside"),
        ]
    );
    assert_eq!(inspected["notCarriedTotal"], json!(9));
    // Whoever approves sees the same list.
    let stays = patch.not_carried.unwrap();
    let listed: Vec<_> =
        stays.entries.iter().map(|entry| (entry.path.to_string(), entry.reason.clone())).collect();
    let expected: Vec<_> =
        left.iter().map(|(path, reason)| ((*path).to_owned(), (*reason).to_owned())).collect();
    assert_eq!((stays.total, listed), (9, expected));
    assert_eq!(inspected["setIdRemoved"], json!(["Makefile"]));

    let mut wide = run.receipt(&call, Scope::Run);
    wide.scope = Scope::Run;
    let told = run.execute(&call, Some(&world.sign(&wide))).await;
    assert_eq!(told.end(), "RECEIPT_SCOPE_MISMATCH");
    // So does whoever reads what became of it.
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "done");
    let result = told.result();
    assert_eq!((&result["status"], &result["notCarriedTotal"]), (&json!("applied"), &json!(9)));
    assert_eq!(result["notCarried"], inspected["notCarried"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_files_and_binary_files_are_imported() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    changed(&run, "i=0; while [ $i -lt 600 ]; do echo $i > f$i; i=$((i+1)); done; head -c 3000 /dev/zero > png").await;
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(call.plan.patch.as_ref().unwrap().totals.entries, 601);
    assert_eq!(call.plan.patch.as_ref().unwrap().entries.len(), 200);
    let parts: Vec<_> =
        call.plan.parts.iter().map(|part| part.subject.as_ref().unwrap().to_string()).collect();
    assert_eq!(parts[1..], ["601 paths"]);
    assert_eq!(run.execute(&call, None).await.end(), "done");
    assert_eq!(fs::read(world.workspace().join("png")).unwrap(), vec![0; 3000]);
    assert_eq!(fs::read_to_string(world.workspace().join("f599")).unwrap(), "599\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_patch_says_what_was_not_carried() {
    let world = World::new(&[("a", "x"), (".env", "x"), ("d/.env", "x"), ("d/f", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let refused = run.plan_or_refusal("import_patch", &json!({})).await.unwrap_err();
    assert_eq!(
        (refused.reason.as_str(), refused.detail.as_str()),
        ("PATCH_EMPTY", "nothing has changed")
    );
    changed(&run, "echo new > .env; mkfifo fifo").await;
    let refused = run.plan_or_refusal("import_patch", &json!({})).await.unwrap_err();
    assert_eq!(
        (refused.reason.as_str(), refused.detail.as_str()),
        (
            "PATCH_EMPTY",
            "nothing that may go to the workspace has changed; 2 of the private copy are not \
             carried: .env (secret_name), fifo (special_file)"
        )
    );
    changed(&run, "i=0; while [ $i -lt 150 ]; do mkfifo p$i; i=$((i+1)); done").await;
    let refused = run.plan_or_refusal("import_patch", &json!({})).await.unwrap_err();
    assert!(refused.detail.ends_with("p113 (special_file) and 132 more"), "{}", refused.detail);

    // A plan shows the first hundred, and their number.
    changed(&run, "echo y > a; ln -s d/f link; ln -s a 'odd\nlink'").await;
    let call = run.plan("import_patch", json!({})).await;
    let patch_of_plan = call.plan.patch.clone().unwrap();
    let stays = patch_of_plan.not_carried.unwrap();
    assert_eq!((stays.total, stays.entries.len()), (152, 100));
    let (_, diff) = patch(&run, &patch_of_plan.digest.to_string()).await.unwrap();
    assert_eq!(diff.matches("\nnot carried ").count() + 1, 152, "{diff}");
    assert!(diff.starts_with("not carried .env (secret_name)\n"), "{diff}");
    assert!(diff.contains("diff a/link b/link\nnew link mode 120777 to \"d/f\"\n"), "{diff}");
    let told = run.execute(&call, None).await;
    assert_eq!(
        (told.end().as_str(), told.detail()),
        ("POLICY_DENIED", "fs.write of odd\\nlink is denied by the system's rule allowed_paths")
    );
    changed(&run, "rm 'odd\nlink'").await;
    let call = run.plan("import_patch", json!({})).await;
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "done");
    let result = told.result();
    let named = result["notCarried"].as_array().map(Vec::len);
    assert_eq!((named, &result["notCarriedTotal"]), (Some(20), &json!(152)));
}

async fn patch(run: &Run<'_>, digest: &str) -> Result<(Vec<wire::PatchEntry>, String), Fault> {
    let request = wire::GetPatchRequest {
        owner: Some(run.owner.clone()),
        run_id: run.run.to_string(),
        patch_digest: digest.to_owned(),
        paths: Vec::new(),
        form: wire::PatchForm::Shown.into(),
    };
    let mut stream = run.world.client.clone().get_patch(request).await?.into_inner();
    let (mut entries, mut diff) = (Vec::new(), Vec::new());
    while let Some(part) = stream.next().await {
        match part?.part.unwrap() {
            Part::Entry(entry) => entries.push(entry),
            Part::Diff(bytes) => diff.extend(bytes),
        }
    }
    Ok((entries, String::from_utf8(diff).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_patch_is_fetched_by_its_digest() {
    let world = World::new(&[("a", "one\n"), ("Makefile", "all:\n")]).await;
    let run =
        world.run(&asking_manifest().replace("process.exec: ask", "process.exec: allow")).await;
    changed(&run, "echo two > a; rm Makefile; printf 'x\\0y' > bin").await;
    let call = run.plan("import_patch", json!({})).await;
    let digest = call.plan.patch.unwrap().digest;
    let (entries, diff) = patch(&run, &digest.to_string()).await.unwrap();
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                String::from_utf8_lossy(&entry.path).into_owned(),
                entry.change.as_str(),
                entry.protected,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("Makefile".to_owned(), "delete", true),
            ("a".to_owned(), "update", false),
            ("bin".to_owned(), "create", false),
        ]
    );
    assert_eq!((entries[1].before_mode, entries[1].after_mode), (0o644, 0o644));
    assert_eq!(entries[1].after_digest, event::Digest::of(b"two\n").to_string());
    assert!(diff.contains("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"), "{diff}");
    assert!(diff.contains("+ binary, 3 bytes, sha256:"), "{diff}");
    assert_eq!(patch(&run, "").await.unwrap().0, entries);

    changed(&run, "echo three > a").await;
    assert_eq!(patch(&run, &digest.to_string()).await.unwrap_err().reason, "PATCH_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_moved_is_shown_as_moved_and_the_patch_has_every_entry() {
    let files = [("a", "one\n"), ("mode", "m\n"), ("twice", "t\n"), ("d/x", "x\n"), ("empty", "")];
    let world = World::new(&files).await;
    let run =
        world.run(&asking_manifest().replace("process.exec: ask", "process.exec: allow")).await;
    let script = "mv a b; mv d e; mv mode other; chmod 600 other; cp twice copied; mv empty void; \
                  printf 'changed\n' > new; mv 'b' 'odd b'";
    changed(&run, script).await;
    let call = run.plan("import_patch", json!({})).await;
    let shown = call.plan.patch.clone().unwrap();
    let (entries, diff) = patch(&run, &shown.digest.to_string()).await.unwrap();
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| format!("{} {}", entry.change, String::from_utf8_lossy(&entry.path)))
        .collect();
    let expected = [
        "delete a",
        "create copied",
        "delete d",
        "delete d/x",
        "create e",
        "create e/x",
        "delete empty",
        "delete mode",
        "create new",
        "create odd b",
        "create other",
        "create void",
    ];
    assert_eq!(seen, expected);
    // As the plan has them: what is imported is told in full.
    assert_eq!(shown.entries.len(), expected.len());
    let renames: Vec<_> = diff.lines().filter(|line| line.starts_with("rename")).collect();
    assert_eq!(renames, ["rename from a", "rename to odd b", "rename from d/x", "rename to e/x"]);
    for text in ["+one", "-one", "+x\n", "-x\n"] {
        assert!(!diff.contains(text), "{text} in {diff}");
    }
    // Another mode is another file, and a copy is no move.
    for text in ["+m\n", "-m\n", "+t\n", "+changed\n"] {
        assert!(diff.contains(text), "no {text} in {diff}");
    }
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "done");
    assert_eq!(fs::read_to_string(world.workspace().join("odd b")).unwrap(), "one\n");
    assert!(!world.workspace().join("a").exists() && !world.workspace().join("d").exists());
}
