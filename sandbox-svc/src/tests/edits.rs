//! Edits of the private copy by tools: refused with both digests when the file is another, written whole or not at
//! all, byte for byte, and never to the workspace.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use event::Digest;
use receipt::{Diff, Effect, EffectClass, Scope};
use serde_json::{Value, json};

use super::run::{Run, Told};
use super::world::{World, manifest, open_manifest};

fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

fn whole(path: &str, before: Option<&[u8]>, content: &str) -> Value {
    json!({ "path": path, "expectedDigest": before.map(digest), "content": content })
}

fn edits(path: &str, before: &[u8], edits: &Value) -> Value {
    json!({ "path": path, "expectedDigest": digest(before), "edits": edits })
}

async fn call(run: &Run<'_>, tool: &str, arguments: Value) -> Told {
    let call = run.plan(tool, arguments).await;
    run.execute(&call, None).await
}

async fn apply(run: &Run<'_>, changes: Value) -> Told {
    call(run, "apply_edits", json!({ "changes": changes })).await
}

async fn refused(run: &Run<'_>, tool: &str, arguments: Value) -> (String, String) {
    let refused = run.plan_or_refusal(tool, &arguments).await.unwrap_err();
    (refused.reason, refused.detail)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_another_by_now_is_not_edited_and_the_record_has_both_digests() {
    let world = World::new(&[("a.txt", "one\n"), ("b.txt", "b\n")]).await;
    let asking = manifest("  fs.read: allow\n  fs.write: ask\n  process.exec: allow\n");
    let run = world.run(&asking).await;
    let changes =
        json!([whole("a.txt", Some(b"one\n"), "two\n"), whole("b.txt", Some(b"b\n"), "c\n")]);
    let planned = run.plan("apply_edits", json!({ "changes": changes })).await;
    assert_eq!(planned.plan.effect, Effect::Ask);
    let approved = run.approve(&planned);
    fs::write(run.copy().join("a.txt"), "changed\n").unwrap();

    let told = run.execute(&planned, Some(&approved)).await;
    assert_eq!(told.end(), "EDIT_STALE");
    let (expected, actual) = (digest(b"one\n"), digest(b"changed\n"));
    assert_eq!(told.detail(), format!("a.txt: expected {expected}, found {actual}"));
    assert_eq!(fs::read(run.copy().join("b.txt")).unwrap(), b"b\n");
    let recorded = || {
        let of =
            world.ledger.entries().into_iter().filter(|entry| entry.session == run.stream_id());
        let differs = of.filter_map(|entry| match entry.event.data {
            event::Data::CallRefused(refused) => refused.differs,
            _ => None,
        });
        differs.collect::<Vec<_>>()
    };
    world.ledger.wait(|_| !recorded().is_empty()).await;
    let (expected, actual) = (Some(Digest::of(b"one\n")), Some(Digest::of(b"changed\n")));
    let path = Some("a.txt".to_owned());
    assert_eq!(recorded(), [event::Differs { path, expected, actual }]);
    // The answer was about a file that is gone, and is used up.
    fs::write(run.copy().join("a.txt"), "one\n").unwrap();
    assert_eq!(run.execute(&planned, Some(&approved)).await.end(), "RECEIPT_CONSUMED");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_edited_is_refused_by_its_reason() {
    let files = [("a", "x\n"), ("d/x", "x"), (".env", "SECRET=1"), ("deny/y", "x"), ("hard", "h")];
    let world = World::new(&files).await;
    fs::write(world.workspace().join("latin"), b"caf\xe9\r\n").unwrap();
    fs::write(world.workspace().join("nul"), b"a\0b\n").unwrap();
    let rules =
        "  fs.read: {'deny/y': deny, '*': allow}\n  fs.write: {'no/**': deny, '*': allow}\n";
    let run = world.run(&manifest(rules)).await;
    let copy = run.copy();
    symlink("d", copy.join("link")).unwrap();
    symlink("/etc", copy.join("out")).unwrap();
    fs::hard_link(copy.join("hard"), copy.join("hard2")).unwrap();
    fs::write(copy.join(".npmrc"), "token").unwrap();
    let one = |change: Value| json!({ "changes": [change] });
    let find = json!([{ "find": "a", "replace": "b" }]);
    for (arguments, reason, detail) in [
        (one(whole("a", None, "y")), "EDIT_STALE", format!("a: expected no file, found {}", digest(b"x\n"))),
        (one(whole("b", Some(b"x"), "y")), "EDIT_STALE", format!("b: expected {}, found no file", digest(b"x"))),
        (one(whole("a", Some(b"x\n"), "x\n")), "EDIT_EMPTY", "nothing would change".to_owned()),
        (one(whole("d", None, "y")), "PATH_NOT_WRITABLE", "d is a directory".to_owned()),
        (one(whole("link", None, "y")), "PATH_NOT_WRITABLE", "link is a symbolic link".to_owned()),
        (one(whole("link/y", None, "y")), "PATH_NOT_WRITABLE", "link/y cannot be reached: a symbolic link is on the way to it".to_owned()),
        (one(whole("out/y", None, "y")), "PATH_NOT_WRITABLE", "out/y cannot be reached: a symbolic link is on the way to it".to_owned()),
        (one(whole("a/y", None, "y")), "PATH_NOT_WRITABLE", "a/y cannot be reached: a is no directory".to_owned()),
        (one(whole("hard", Some(b"h"), "y")), "PATH_NOT_WRITABLE", "hard has more than one hard link".to_owned()),
        (one(whole(".harness-import-x/y", None, "y")), "PATH_NOT_WRITABLE", ".harness-import-x/y is a name that only the service uses".to_owned()),
        (one(whole(".env", Some(b"SECRET=1"), "y")), "PATH_NOT_WRITABLE", ".env is not open to edits: secret_name".to_owned()),
        (one(whole(".npmrc", None, "y")), "PATH_NOT_WRITABLE", ".npmrc is not open to edits: secret_name".to_owned()),
        (one(edits("latin", b"caf\xe9\r\n", &find)), "EDIT_NOT_TEXT", "latin: it is not UTF-8 text, and a text edit would damage it; replace the whole file or use a command".to_owned()),
        (one(edits("nul", b"a\0b\n", &find)), "EDIT_NOT_TEXT", "nul: it is not UTF-8 text, and a text edit would damage it; replace the whole file or use a command".to_owned()),
        (one(edits("a", b"x\n", &find)), "EDIT_NOT_POSSIBLE", "a: edit 0: what is to be found is not there".to_owned()),
        (json!({ "changes": [whole("b", None, "y")], "proposalId": digest(b"x") }), "PROPOSAL_CHANGED", "the changes do not come to what was proposed".to_owned()),
    ] {
        let told = refused(&run, "apply_edits", arguments.clone()).await;
        assert_eq!(told, (reason.to_owned(), detail), "{arguments}");
    }
    let moving = |source: &str, destination: &str, bytes: &[u8]| json!({ "source": source, "destination": destination, "expectedDigest": digest(bytes) });
    for (tool, arguments, reason) in [
        ("move_file", moving("a", "d/x", b"x\n"), "PATH_EXISTS"),
        ("move_file", moving("a", "a", b"x\n"), "ARGUMENTS_INVALID"),
        ("move_file", moving("a", "b", b"y"), "EDIT_STALE"),
        ("move_file", moving("gone", "b", b"y"), "EDIT_STALE"),
        ("move_file", moving("d", "b", b"y"), "PATH_NOT_WRITABLE"),
        ("quarantine_file", json!({ "path": "a", "expectedDigest": digest(b"y") }), "EDIT_STALE"),
        (
            "restore_file",
            json!({ "quarantineId": "q-00000000000000000000000000000000" }),
            "QUARANTINE_UNKNOWN",
        ),
    ] {
        assert_eq!(refused(&run, tool, arguments.clone()).await.0, reason, "{tool} {arguments}");
    }
    // A rule's no comes before anything is told of the file.
    for (tool, arguments) in [
        ("apply_edits", one(whole("no/a", Some(b"wrong"), "y"))),
        ("apply_edits", one(whole(".git/hooks/pre-commit", None, "y"))),
        ("apply_edits", one(edits("deny/y", b"x", &json!([{ "find": "x", "replace": "" }])))),
        ("propose_edits", one(whole("deny/y", Some(b"x"), "y"))),
        ("move_file", moving("a", "no/a", b"x\n")),
        ("move_file", moving("deny/y", "b", b"x")),
    ] {
        let planned = run.plan(tool, arguments.clone()).await;
        assert_eq!(
            (planned.plan.effect, planned.plan.edit.is_none()),
            (Effect::Deny, true),
            "{arguments}"
        );
        assert_eq!(run.execute(&planned, None).await.end(), "POLICY_DENIED", "{arguments}");
    }
    assert_eq!(fs::read(copy.join("a")).unwrap(), b"x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_is_applied_as_it_was_shown_and_the_host_is_not_touched() {
    let crlf = b"\xef\xbb\xbfone\r\ntwo\r\nthree";
    let world = World::new(&[("keep", "k")]).await;
    let host = world.workspace();
    fs::write(host.join("run.sh"), crlf).unwrap();
    fs::set_permissions(host.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = world.run(&manifest("  fs.read: allow\n  fs.write: ask\n")).await;
    let changes = json!([
        edits(
            "run.sh",
            crlf,
            &json!([{ "startLine": 2, "endLine": 2, "text": "2\n" }, { "find": "three", "replace": "3\n4" }])
        ),
        whole("new/deep/file", None, "hello\n"),
    ]);
    let proposal = run.plan("propose_edits", json!({ "changes": changes })).await;
    assert_eq!(proposal.plan.effect_class, EffectClass::Pure);
    let proposed = proposal.result.unwrap();
    assert_eq!(
        (&proposed["kind"], &proposed["schemaVersion"], &proposed["writes"][1]["effect"]),
        (&json!("edit-proposal"), &json!(1), &json!("ask"))
    );
    assert!(!run.copy().join("new").exists());

    let id = proposed["proposalId"].clone();
    let arguments = json!({ "changes": changes, "proposalId": id });
    let planned = run.plan("apply_edits", arguments).await;
    let edit = planned.plan.edit.clone().unwrap();
    assert_eq!((json!(edit.digest), edit.totals.entries), (id.clone(), 4));
    assert_eq!(
        (planned.plan.effect_class, &planned.plan.scopes[..]),
        (EffectClass::Staged, &[Scope::Once][..])
    );
    let Diff::Whole { text } = &edit.diff else { panic!("{:?}", edit.diff) };
    assert_eq!(json!(text), proposed["diff"]);
    assert!(text.contains("-two\r\n-three\n") && text.contains("+hello\n"), "{text:?}");
    let told = run.execute(&planned, Some(&run.approve(&planned))).await;
    assert_eq!(told.end(), "done");

    let after = b"\xef\xbb\xbfone\r\n2\r\n3\r\n4";
    assert_eq!(fs::read(run.copy().join("run.sh")).unwrap(), after);
    let meta = fs::metadata(run.copy().join("run.sh")).unwrap();
    let root = fs::metadata(run.copy()).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.uid()), (0o755, root.uid()));
    let made = fs::metadata(run.copy().join("new/deep/file")).unwrap();
    assert_eq!((made.permissions().mode() & 0o7777, made.uid()), (0o644, root.uid()));
    assert_eq!(fs::read(host.join("run.sh")).unwrap(), crlf);
    assert!(!host.join("new").exists());

    let result = told.result();
    assert_eq!(
        (&result["kind"], &result["proposalId"], &result["planDigest"]),
        (&json!("patch-result"), &id, &json!(planned.digest().to_string()))
    );
    assert_eq!(
        result["changes"][3],
        json!({ "path": "run.sh", "op": "update",
                "before": { "mode": "0755", "sha256": digest(crlf), "size": crlf.len() },
                "after": { "mode": "0755", "sha256": digest(after), "size": after.len() } })
    );
    let kept: Vec<_> = fs::read_dir(run.copy().parent().unwrap().join("kept")).unwrap().collect();
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(
        run.plan("environment_status", json!({})).await.result.unwrap()["changedEntries"],
        json!(4)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_and_comes_back_byte_for_byte() {
    let bytes = b"\0binary\xff\r\n";
    let world = World::new(&[]).await;
    fs::write(world.workspace().join("logo"), bytes).unwrap();
    fs::set_permissions(world.workspace().join("logo"), fs::Permissions::from_mode(0o640)).unwrap();
    let run = world.run(&open_manifest()).await;
    let copy = run.copy();

    let arguments =
        json!({ "source": "logo", "destination": "img/logo.bin", "expectedDigest": digest(bytes) });
    let moved = call(&run, "move_file", arguments).await.result();
    let (kind, place) = (&moved["kind"], &moved["destination"]);
    assert_eq!((kind, place), (&json!("move-result"), &json!("img/logo.bin")));
    assert_eq!(fs::read(copy.join("img/logo.bin")).unwrap(), bytes);
    assert!(!copy.join("logo").exists());

    let arguments = json!({ "path": "img/logo.bin", "expectedDigest": digest(bytes) });
    let quarantined = call(&run, "quarantine_file", arguments).await.result();
    assert_eq!(quarantined["kind"], json!("quarantine-result"));
    assert!(!copy.join("img/logo.bin").exists());
    // No command sees it, and the patch knows it as a deletion.
    assert_eq!(run.sh("find / -name 'logo*' 2>/dev/null; find . -type f").await.text(), "");
    let patch = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(patch["deletions"], json!(["logo"]));

    let id = quarantined["quarantineId"].clone();
    fs::write(copy.join("img/logo.bin"), "in the way").unwrap();
    assert_eq!(refused(&run, "restore_file", json!({ "quarantineId": id })).await.0, "PATH_EXISTS");
    let wrong = json!({ "quarantineId": id, "destination": "x", "expectedDigest": digest(b"") });
    assert_eq!(refused(&run, "restore_file", wrong).await.0, "EDIT_STALE");
    let arguments = json!({ "quarantineId": id, "destination": "logo" });
    let restored = call(&run, "restore_file", arguments.clone()).await.result();
    assert_eq!(restored["kind"], json!("restore-result"));
    assert_eq!(fs::read(copy.join("logo")).unwrap(), bytes);
    let mode = fs::metadata(copy.join("logo")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640);
    assert_eq!(refused(&run, "restore_file", arguments).await.0, "QUARANTINE_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_edits_outlives_the_service_and_ends_with_the_run() {
    let mut world = World::new(&[("a", "1\n"), ("b", "b")]).await;
    let run = world.run(&open_manifest()).await;
    let told = apply(&run, json!([whole("a", Some(b"1\n"), "2\n"), whole("n/c", None, "c")])).await;
    assert_eq!(told.end(), "done");
    let arguments = json!({ "path": "b", "expectedDigest": digest(b"b") });
    let quarantined = call(&run, "quarantine_file", arguments).await.result();
    let (session, id) = (run.session, run.run);
    let owner = run.owner.clone();
    world.kill();
    world.start().await;
    let run = Run { world: &world, session, owner, run: id };
    let audit = run.plan("mutation_audit", json!({})).await.result.unwrap();
    assert_eq!((&audit["kind"], &audit["truncated"]), (&json!("mutation-audit"), &json!(false)));
    let rows: Vec<_> = audit["mutations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["operation"].clone(),
                row["path"].clone(),
                row["beforeDigest"].clone(),
                row["afterDigest"].clone(),
            )
        })
        .collect();
    let state = |bytes: &[u8]| json!(digest(bytes));
    assert_eq!(
        rows,
        [
            (json!("update"), json!("a"), state(b"1\n"), state(b"2\n")),
            (json!("make_directory"), json!("n"), Value::Null, Value::Null),
            (json!("create"), json!("n/c"), Value::Null, state(b"c")),
            (json!("quarantine"), json!("b"), state(b"b"), Value::Null),
        ]
    );
    let number = audit["mutations"][1]["number"].clone();
    let page =
        run.plan("mutation_audit", json!({ "after": number, "limit": 1 })).await.result.unwrap();
    assert_eq!((&page["mutations"][0]["path"], &page["truncated"]), (&json!("n/c"), &json!(true)));

    let arguments = json!({ "quarantineId": quarantined["quarantineId"] });
    assert_eq!(call(&run, "restore_file", arguments).await.end(), "done");
    assert_eq!(fs::read(run.copy().join("b")).unwrap(), b"b");
    run.close().await.unwrap();
    let kept = world.sandbox().store.mutations(id, 0, 10).await.unwrap();
    assert_eq!(kept, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_an_edit_makes_stays_in_the_copy_and_is_not_shown() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----\n";
    let world = World::new(&[(".env", "HOST=1")]).await;
    let run = world.run(&open_manifest()).await;
    let changes =
        json!([whole(".env", None, "A=1\n"), whole("id", None, key), whole("ok", None, "x")]);
    let planned = run.plan("apply_edits", json!({ "changes": changes })).await;
    let shown = serde_json::to_string(&planned.plan.edit).unwrap();
    assert!(!shown.contains("A=1") && !shown.contains("MIIE"), "{shown}");
    let told = run.execute(&planned, Some(&run.approve(&planned))).await;
    assert_eq!(told.end(), "done");
    assert_eq!(
        told.result()["notCarried"],
        json!([{ "path": ".env", "reason": "secret_name" }, { "path": "id", "reason": "secret_content" }])
    );
    for path in [".env", "id"] {
        let (reason, _) = refused(&run, "read_file", json!({ "path": path })).await;
        assert_eq!(reason, "PATH_NOT_READABLE", "{path}");
    }
    let found = run.plan("search_files", json!({ "query": "A=1" })).await.result.unwrap();
    assert_eq!((&found["matches"], &found["skipped"]["withheld"]), (&json!([]), &json!(2)));
    let imported = run.plan("import_patch", json!({})).await;
    let entries = imported.plan.patch.as_ref().unwrap();
    let paths: Vec<_> = entries.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, ["ok"]);
    assert_eq!(run.execute(&imported, None).await.end(), "done");
    assert_eq!(fs::read_to_string(world.workspace().join(".env")).unwrap(), "HOST=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_back_end_every_tool_but_commands_works_on_the_copy() {
    let files = [("a", "old\n"), ("b", "b\n")];
    let world = World::with(&files, std::path::Path::new(""), "host-tmpfs").await;
    let rules = "id: demo\ntitle: Demo\ngoal: try\nacceptance: [it works]\nallowed_paths: ['**']\n\
                 permissions:\n  fs.list: allow\n  fs.read: allow\n  fs.write: allow\n  patch.import: allow\n  network: deny\n\
                 execution:\n  backend: none\n";
    let run = world.run(rules).await;
    assert_eq!(
        run.try_plan("process.exec", &json!({ "argv": ["true"] })).await.unwrap_err(),
        "TOOL_UNKNOWN"
    );
    let status = run.plan("environment_status", json!({})).await.result.unwrap();
    assert_eq!(status["commands"], Value::Null);
    let found = run.plan("search_files", json!({ "query": "OLD" })).await.result.unwrap();
    assert_eq!(found["matches"][0]["digest"], json!(digest(b"old\n")));
    assert_eq!(apply(&run, json!([whole("a", Some(b"old\n"), "new\n")])).await.end(), "done");
    let arguments = json!({ "path": "b", "expectedDigest": digest(b"b\n") });
    let quarantined = call(&run, "quarantine_file", arguments).await;
    let arguments =
        json!({ "quarantineId": quarantined.result()["quarantineId"], "destination": "c" });
    assert_eq!(call(&run, "restore_file", arguments).await.end(), "done");
    let arguments =
        json!({ "source": "c", "destination": "d/c", "expectedDigest": digest(b"b\n") });
    assert_eq!(call(&run, "move_file", arguments).await.end(), "done");
    let diff = run.plan("workspace_diff", json!({})).await.result.unwrap();
    assert!(diff["diff"].as_str().unwrap().contains("-old\n+new\n"), "{diff}");
    let import = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&import, None).await.end(), "done");
    let host = world.workspace();
    assert_eq!(fs::read_to_string(host.join("a")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(host.join("d/c")).unwrap(), "b\n");
    assert!(!host.join("b").exists());
}
