//! Reading and listing: answered at once where nobody is asked, bounded, and never outside of the copy.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use receipt::Effect;
use serde_json::json;

use super::world::{World, manifest, open_manifest};

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_read_is_answered_with_its_plan() {
    let world = World::new(&[("src/a.rs", "one\ntwo\nthree\n"), ("b", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let read =
        run.plan("read_file", json!({ "path": "src/a.rs", "startLine": 2, "endLine": 2 })).await;
    let digest = event::Digest::of(b"one\ntwo\nthree\n").to_string();
    assert_eq!(
        read.result.unwrap(),
        json!({ "schemaVersion": 1, "kind": "file", "path": "src/a.rs", "digest": digest, "size": 14,
                "startLine": 2, "endLine": 2, "totalLines": 3, "lineEnding": "lf", "byteOrderMark": false,
                "finalNewline": true, "truncated": true, "utf8": true, "content": "two\n" })
    );
    let list = run.plan("list_files", json!({ "limit": 2 })).await.result.unwrap();
    let paths: Vec<_> =
        list["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!((paths, &list["truncated"]), (vec![&json!("b"), &json!("src")], &json!(true)));
    let rest = run.plan("list_files", json!({ "path": ".", "after": "src" })).await.result.unwrap();
    assert_eq!(rest["entries"][0]["path"], json!("src/a.rs"));
    assert_eq!(world.ledger.kinds(&run.stream_id()), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_asked_for_needs_its_receipt() {
    let world = World::new(&[("a", "text")]).await;
    let run = world.run(&manifest("  fs.read: ask\n")).await;
    let call = run.plan("read_file", json!({ "path": "a" })).await;
    assert_eq!((call.plan.effect, &call.result), (Effect::Ask, &None));
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!((told.end(), &told.result()["content"]), ("done".to_owned(), &json!("text")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_by_its_reason() {
    let files = [
        ("a", "x"),
        ("nul", "x\0y"),
        (".env", "x"),
        ("d/x", "x"),
        (".git/config", "x"),
        ("deny/y", "x"),
    ];
    let world = World::new(&files).await;
    let fifo = rustix::fs::FileType::Fifo;
    let path = world.workspace().join("host-fifo");
    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let open = "  fs.read: {'*': allow}\n  process.exec: allow\n";
    let denied = open.replace("{'*'", "{'deny/y': deny, '*'");
    let run = world.run(&manifest(&denied)).await;
    fs::write(run.copy().join("big"), vec![b'x'; (1 << 20) + 1]).unwrap();
    symlink("a", run.copy().join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        run.copy().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::hard_link(run.copy().join("d/x"), run.copy().join("hard")).unwrap();
    symlink("d", run.copy().join("dir-link")).unwrap();
    for (path, reason, detail) in [
        ("../etc/passwd", "PATH_INVALID", ""),
        ("/etc/passwd", "PATH_INVALID", ""),
        ("missing", "PATH_NOT_FOUND", ""),
        ("a/b", "PATH_NOT_FOUND", ""),
        (".env", "PATH_NOT_READABLE", "it is withheld from the private copy: secret_name"),
        (".git/config", "PATH_NOT_READABLE", "it is withheld from the private copy: git_metadata"),
        ("host-fifo", "PATH_NOT_READABLE", "it is withheld from the private copy: special_file"),
        ("link", "PATH_NOT_READABLE", "it is a symbolic link"),
        ("dir-link/x", "PATH_NOT_READABLE", "a symbolic link is on the way to it"),
        ("fifo", "PATH_NOT_READABLE", "special_file"),
        ("hard", "PATH_NOT_READABLE", "linked"),
        ("nul", "PATH_NOT_READABLE", "it is not text"),
        ("big", "PATH_NOT_READABLE", "it is larger than 1 MiB"),
        ("d", "PATH_NOT_READABLE", "it is a directory"),
        (".", "PATH_NOT_READABLE", "it is a directory"),
    ] {
        let refused = run.plan_or_refusal("read_file", &json!({ "path": path })).await.unwrap_err();
        assert_eq!(refused.reason, reason, "{path}");
        if !detail.is_empty() {
            assert_eq!(refused.detail, detail, "{path}");
        }
    }
    // A rule's no comes first, and is on record as the rule's.
    let denied = run.plan("read_file", json!({ "path": "deny/y" })).await;
    assert_eq!((denied.plan.effect, &denied.result), (Effect::Deny, &None));
    assert_eq!(run.execute(&denied, None).await.end(), "POLICY_DENIED");
    for (path, reason, detail) in [
        ("missing", "PATH_NOT_FOUND", "there is nothing of that name in the private copy"),
        (".env", "PATH_NOT_READABLE", "it is withheld from the private copy: secret_name"),
        ("deny/y", "PATH_NOT_READABLE", "it is withheld from the private copy: read_denied"),
        ("fifo", "PATH_NOT_READABLE", "what is there is not carried: special_file"),
        ("a", "PATH_NOT_READABLE", "it is not a directory"),
    ] {
        let refused =
            run.plan_or_refusal("list_files", &json!({ "path": path })).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.detail.as_str()), (reason, detail), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_swapped_for_a_link_while_it_is_read_shows_nothing_of_the_host() {
    let world = World::new(&[("d/passwd", "inside")]).await;
    let run = world.run(&open_manifest()).await;
    let copy = run.copy();
    symlink("/etc", copy.join("l")).unwrap();
    let planned = run.planned("read_file", &json!({ "path": "d/passwd" })).await;
    let done = AtomicBool::new(false);
    let root = crate::tree::Dir::open(&copy).unwrap();
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(&root, "d", &root, "l", flags).unwrap();
            }
        });
        let environment = world.sandbox().environment(run.session, run.run).unwrap();
        let path = crate::tree::RelPath::parse(b"d/passwd").unwrap();
        let prepared = crate::planner::Prepared::Read(crate::planner::read::Prepared::ReadFile(
            crate::tool::read::Slice { path, start: 1, end: None },
        ));
        let planned = crate::planner::Planned { prepared, ..planned };
        for _ in 0..5_000 {
            match crate::answer::answer(&environment, &planned) {
                Ok(bytes) => {
                    let result: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    assert_eq!(result["content"], json!("inside"));
                    inside += 1;
                }
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(inside > 0 && refused > 0, "{inside} {refused}");
}
