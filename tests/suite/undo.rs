//! An import that a person takes back, through all five processes and the program that people run: refused where it
//! must be, and otherwise the workspace is byte for byte and mode for mode what it was.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use acp::Decision;
use anyhow::{Context as _, Result};
use e2e::{Books, Person, Rig, Spec, Turn, manifest, within};
use event::id::{RunId, SessionId};
use harness::file::Access;
use harness::token::{self, Holder, Role};
use serde_json::{Value, json};

const SCRIPT: &str = "echo repaired > app.txt; chmod 755 src/lib.txt; rm gone.txt; \
                      mkdir -p new/deep; echo n > new/deep/file; ln -s app.txt link";

type Tree = BTreeMap<String, (u32, Vec<u8>)>;

/// Every name below `root` with its mode and its bytes, a link's target, or nothing.
fn tree(root: &Path) -> Result<Tree> {
    let (mut found, mut dirs) = (Tree::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            let bytes = if meta.is_symlink() {
                std::fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else if meta.is_dir() {
                dirs.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path)?
            };
            let name = path.strip_prefix(root)?.display().to_string();
            found.insert(name, (meta.permissions().mode(), bytes));
        }
    }
    Ok(found)
}

/// A workspace in which a run has imported something, and how it was before.
struct Imported {
    rig: Rig,
    run: RunId,
    before: Tree,
    after: Tree,
}

impl Imported {
    async fn start() -> Result<Self> {
        let turns = vec![
            Turn::Call("process.exec", json!({"argv": ["sh", "-c", SCRIPT]})),
            Turn::Call("import_patch", json!({})),
            Turn::Say("changed"),
        ];
        let mut spec = Spec::new(manifest("undoing"), turns);
        spec.files.push(("gone.txt", b"\xff\x00 bytes\r\n"));
        let rig = Rig::start(spec).await?;
        let before = tree(&rig.workspace)?;
        let mut person = Person::arrive(&rig).await?;
        let session = person.open("undoing", None).await?;
        let prompt = person.prompt(session)?;
        let command = person.next_ask().await?;
        person.answer(&command, Decision::Allow).await?;
        let import = person.next_ask().await?;
        person.answer(&import, Decision::Allow).await?;
        within("the prompt's answer", prompt).await??;
        let after = tree(&rig.workspace)?;
        assert_ne!(before, after);
        Ok(Self { run: import.run()?, rig, before, after })
    }

    fn now(&self) -> Result<Tree> {
        tree(&self.rig.workspace)
    }

    fn patch(&self, command: &str, more: &[&str]) -> Result<Done> {
        let state = self.rig.mesh.layout().root().to_str().context("a path of text")?.to_owned();
        Done::of_patch(command, &["--state", &state], self.run, more)
    }

    /// As the operator of the mesh, without a terminal.
    fn undo(&self, run: RunId, more: &[&str]) -> Result<Done> {
        let state = self.rig.mesh.layout().root().to_str().context("a path of text")?.to_owned();
        Done::of(&["--state", &state], run, more)
    }

    /// As whoever holds this token.
    fn undo_as(&self, token: &acp::token::Token, run: RunId) -> Result<Done> {
        let file = self.rig.dir().join("token");
        std::fs::write(&file, token.reveal())?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let (file, ca) = (file.display().to_string(), self.rig.ready.ca.display().to_string());
        let target = ["--gateway", &self.rig.ready.gateway, "--ca", &ca, "--token-file", &file];
        Done::of(&target, run, &["--yes"])
    }
}

/// What the program said.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    fn of(target: &[&str], run: RunId, more: &[&str]) -> Result<Self> {
        Self::of_patch("undo", target, run, more)
    }

    fn of_patch(command: &str, target: &[&str], run: RunId, more: &[&str]) -> Result<Self> {
        let Output { status, stdout, stderr } = Command::new(e2e::programs()?.join("harness"))
            .args(["patch", command])
            .args(target)
            .args(more)
            .arg(run.to_string())
            .stdin(Stdio::null())
            .output()?;
        let (out, err) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
        Ok(Self { code: status.code(), out, err })
    }

    fn document(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no document: {self:?}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_act_or_belongs_elsewhere_takes_nothing_back() -> Result<()> {
    let imported = Imported::start().await?;
    let viewer = imported.rig.colleague("vera", &[Role::Viewer])?;
    let done = imported.undo_as(&viewer, imported.run)?;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("session/new was refused"), "{done:?}");

    let holder = Holder {
        tenant: "elsewhere".to_owned(),
        subject: "eve".to_owned(),
        roles: vec![Role::Operator],
        life: std::time::Duration::from_secs(3_600),
    };
    let tokens = imported.rig.mesh.layout().tokens();
    let eve = token::create(&tokens, &holder, Access::PRIVATE)?;
    let done = imported.undo_as(&eve, imported.run)?;
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("no run of yours has the id"), "{done:?}");

    // A wish of her own for a run that is not her tenant's ends at the executor, which keeps the records.
    let mut person = Person::arrive_as(&imported.rig, &eve).await?;
    if let Ok(session) = person.open("undoing", None).await {
        let params =
            acp::PatchUndoParams { session_id: session.into(), run_id: imported.run, digest: None };
        within("the answer", person.call::<acp::PatchUndo>(params)).await?;
        let result = person.next_of("tool.result").await?.data;
        assert_eq!(result["error"]["code"], "UNDO_UNKNOWN");
    }
    assert_eq!(imported.now()?, imported.after);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_back_without_a_yes_or_from_a_workspace_that_went_on() -> Result<()> {
    let imported = Imported::start().await?;
    let unknown = imported.undo(RunId::new(), &["--yes"])?;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    // Nobody is at a terminal.
    let denied = imported.undo(imported.run, &["--json"])?;
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.err.contains("PERMISSION_DENIED"), "{denied:?}");
    assert!(denied.err.contains(&format!("what run {} imported", imported.run)), "{denied:?}");
    let document = denied.document()?;
    assert_eq!(
        (&document["schemaVersion"], &document["kind"], &document["status"]),
        (&json!(1), &json!("patch-undo"), &json!("unchanged"))
    );
    assert_eq!(imported.now()?, imported.after);

    std::fs::write(imported.rig.workspace.join("app.txt"), "mine\n")?;
    let changed = imported.now()?;
    let refused = imported.undo(imported.run, &["--yes"])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let told = refused.err.lines().last().unwrap_or_default();
    assert!(told.contains("HOST_CHANGED") && told.contains("app.txt"), "{refused:?}");
    assert_eq!(imported.now()?, changed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_taken_back_with_bytes_and_modes_and_so_is_that() -> Result<()> {
    let mut imported = Imported::start().await?;
    // What is kept outlives every process.
    imported.rig.kill_and_restart_all().await?;
    let done = imported.undo(imported.run, &["--yes", "--json"])?;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(imported.now()?, imported.before);
    let document = done.document()?;
    assert_eq!(
        (&document["kind"], &document["status"], &document["undoes"]),
        (&json!("patch-undo"), &json!("undone"), &json!(imported.run))
    );
    let paths: Vec<&str> = document["result"]["paths"]
        .as_array()
        .context("paths")?
        .iter()
        .filter_map(|state| state["path"].as_str())
        .collect();
    let all = ["app.txt", "gone.txt", "link", "new", "new/deep", "new/deep/file", "src/lib.txt"];
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all);

    // The same yes that is needed of any import, and as provable.
    let session = SessionId::parse(document["sessionId"].as_str().context("a session")?)?;
    let books = Books::open(&imported.rig)?;
    let kinds = |lines: Vec<e2e::Line>| -> Vec<String> {
        lines.into_iter().map(|line| line.kind).collect()
    };
    let receipts = kinds(books.stream("gateway", session).await?);
    assert_eq!(receipts.iter().filter(|kind| *kind == "receipt.signed").count(), 1);
    let effects = kinds(books.stream("sandbox-svc", session).await?);
    assert_eq!(effects, ["call.started", "call.finished"]);
    let told = kinds(books.stream("agent-svc", session).await?);
    assert!(!told.iter().any(|kind| kind.starts_with("model.")), "{told:?}");

    let again = imported.undo(imported.run, &["--yes"])?;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("HOST_CHANGED"), "{again:?}");
    let own = RunId::parse(document["runId"].as_str().context("a run")?)?;
    let back = imported.undo(own, &["--yes"])?;
    assert_eq!(back.code, Some(0), "{back:?}");
    assert!(back.out.contains("restored app.txt (file "), "{back:?}");
    assert_eq!(imported.now()?, imported.after);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_imported_is_read_after_it_has_ended() -> Result<()> {
    let mut imported = Imported::start().await?;
    let no_digest = format!("sha256:{}", "0".repeat(64));
    for (more, told) in [
        (["--path", "nowhere"], "the run has no such patch"),
        (["--digest", &no_digest], "nothing is kept of what the run imported"),
    ] {
        let done = imported.patch("export", &more)?;
        assert!(done.code != Some(0) && done.out.is_empty(), "{done:?}");
        assert!(done.err.contains(told), "{done:?}");
    }
    imported.rig.kill_and_restart_all().await?;
    let part = imported.patch("export", &["--path", "app.txt"])?;
    assert_eq!(part.code, Some(0), "{part:?}");
    let diff = "diff --git a/app.txt b/app.txt\n--- a/app.txt\n+++ b/app.txt\n@@ -1,1 +1,1 @@\n-broken\n+repaired\n";
    assert_eq!(part.out, diff);
    let shown = imported.patch("show", &["--json"])?;
    let document = shown.document()?;
    assert_eq!(
        (&document["kind"], &document["runId"], &document["permissionId"]),
        (&json!("patch"), &json!(imported.run), &Value::Null)
    );
    let text = document["text"].as_str().context("a text")?;
    assert!(text.contains("\n-broken\n+repaired\n") && text.contains("gone.txt"), "{text}");
    let digest = document["patchDigest"].as_str().context("a digest")?;
    let named = imported.patch("show", &["--json", "--digest", digest])?;
    assert_eq!(named.document()?, document);
    Ok(())
}
