//! Every attack of the list in docs/attacks.md, from inside of a real container through the real service: each ends as
//! its row says, nothing outside has changed, and nothing is left. The page is held to the two tables.

mod elsewhere;
mod table;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Asked, Engine, Impostor, Order, Outcome, Rig, Spec, Turn, manifest};
use event::Digest;
use event::id::CallId;
use serde_json::{Value, json};

use elsewhere::{ELSEWHERE, Elsewhere};
use table::{ATTACKS, Attack, Says, TRY};

/// A rig whose workspace has what an attacker would plant in it, and canaries beside it.
async fn ground() -> Result<(Rig, PathBuf)> {
    let mut rules = manifest("attacked").rule("process.exec", json!("allow"));
    rules.limits = json!({
        "memory": "48MiB", "pids": 64, "cpus": 1, "time": "20s", "output": "256KiB",
        "workspace_bytes": "128MiB", "workspace_inodes": 2000, "file_bytes": "96MiB", "tmp_bytes": "1MiB",
    });
    let rig = Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await?;
    let outside = rig.dir().join("outside");
    std::fs::create_dir(&outside)?;
    std::fs::write(outside.join("secret"), "of nobody's business\n")?;
    std::fs::write(outside.join("canary"), "as it was\n")?;
    std::fs::hard_link(outside.join("secret"), rig.workspace.join("leak.txt"))?;
    std::fs::create_dir(rig.workspace.join(".git"))?;
    std::fs::write(rig.workspace.join(".git/config.orig"), "[core]\n")?;
    Ok((rig, outside))
}

/// Everything that could be another afterwards: of each file and directory its identity, mode, times and bytes.
fn seen(roots: &[&Path]) -> Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    let mut left: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
    while let Some(path) = left.pop() {
        let meta = std::fs::symlink_metadata(&path)?;
        let bytes = match meta.is_file() {
            true => Digest::of(&std::fs::read(&path)?).to_string(),
            false => String::new(),
        };
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        let what = format!(
            "{} {:o} {}:{} {}.{} {bytes}",
            meta.ino(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec()
        );
        all.insert(path, what);
    }
    Ok(all)
}

const OF_THE_HOST: [&str; 9] = [
    "/etc/passwd",
    "/etc/shadow",
    "/etc/crontab",
    "/etc/hostname",
    "/bin/busybox",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/sys/kernel/uevent_helper",
];

fn host() -> Vec<(&'static str, Option<Digest>)> {
    let read = |path: &&'static str| (*path, std::fs::read(path).ok().map(|it| Digest::of(&it)));
    OF_THE_HOST.iter().map(read).collect()
}

async fn try_out(impostor: &Impostor, attack: &Attack) -> Result<()> {
    let Attack { id, what, script, ends, says } = attack;
    let arguments = json!({"argv": ["sh", "-c", format!("{TRY}{script}")]});
    let call = CallId::new();
    let (_, plan) = impostor.planned(call, "process.exec", &arguments).await?;
    let plan = receipt::plan_digest(&plan);
    let order = Order { call, tool: "process.exec", arguments: &arguments, plan, receipts: &[] };
    let finished = impostor.carry_out(&order, |_| ()).await?;
    let result: Value = match finished.result_json.as_slice() {
        [] => Value::Null,
        json => serde_json::from_slice(json)?,
    };
    let end = match (Outcome::read(finished), result["status"].as_str()) {
        (Outcome::Exited(code), _) => format!("exited {code}"),
        (_, Some(status)) => status.to_owned(),
        (other, None) => format!("{other:?}"),
    };
    ensure!(ends.contains(&end.as_str()), "{id} {what}: it ended as {end}: {result}");
    let said = result["stdout"].as_str().with_context(|| format!("{id} {what}: no output"))?;
    let fits = match says {
        Says::Refused(times) => said == "refused\n".repeat(*times),
        Says::Exactly(text) => said == *text,
        Says::AtMost(bytes) => said.len() <= *bytes,
    };
    ensure!(fits, "{id} {what}: it said {said:?}; {result}");
    Ok(())
}

/// Processes of this rig's containers: only there its first process is mounted where containers have it.
fn processes(rig: &Rig) -> Result<Vec<String>> {
    let ours = rig.dir().file_name().context("a name")?.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let Ok(mounts) = std::fs::read_to_string(path.join("mountinfo")) else { continue };
        let init = |line: &str| {
            let mut fields = line.split(' ').skip(3);
            fields.next().is_some_and(|root| root.contains(&ours)) && fields.next() == Some("/.sbx")
        };
        if mounts.lines().any(init) {
            found.push(std::fs::read_to_string(path.join("comm")).unwrap_or_default());
        }
    }
    Ok(found)
}

/// Volumes and networks that carry a label of ours: there is no such thing.
fn volumes_and_networks() -> Result<String> {
    let mut all = String::new();
    for kind in ["volume", "network"] {
        let asked = [kind, "ls", "-q", "--filter", "label=harness.owner"];
        let output = Command::new("docker").args(asked).output()?;
        ensure!(output.status.success(), "{output:?}");
        all.push_str(&String::from_utf8(output.stdout)?);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_from_inside_ends_as_its_row_says_and_nothing_outside_changes() -> Result<()> {
    let (rig, outside) = ground().await?;
    let impostor = Impostor::enter(&rig, "attacked")?;
    impostor.fence().await?;
    let roots = [outside.as_path(), rig.workspace.as_path()];
    let before = (seen(&roots)?, host());
    impostor.open().await?;
    let label = format!("harness.session={}", impostor.session);
    let mut failed = Vec::new();
    for attack in ATTACKS {
        if let Err(error) = try_out(&impostor, attack).await {
            failed.push(format!("{error:#}"));
        }
        let left = Engine::containers(&label)?;
        ensure!(left.is_empty(), "{} {} leaves {left:?}", attack.id, attack.what);
    }
    assert_eq!(failed, Vec::<String>::new());
    let Asked::Planned { result: Some(patch), .. } =
        impostor.plan(CallId::new(), "inspect_patch", &json!({})).await?
    else {
        anyhow::bail!("no patch")
    };
    assert_eq!(carried(&patch), CARRIED);
    assert_eq!(not_carried(&patch), NOT_CARRIED);
    assert_eq!(patch["setIdRemoved"], json!(["setid"]));
    assert_eq!((seen(&roots)?, host()), before, "something outside is another");

    // By a person who looks at nothing: the whole, which no rule allows, and then all the rest of it.
    let denied = ["odd/a\nb", "odd/esc\u{1b}]0;t\u{7}"];
    let (end, parts) = import(&impostor, &json!({})).await?;
    assert_eq!(
        (end, parts),
        (Outcome::Refused("POLICY_DENIED".to_owned()), denied.map(str::to_owned).to_vec())
    );
    assert_eq!((seen(&roots)?, host()), before, "something outside is another");
    let entries = patch["entries"].as_array().into_iter().flatten().map(|entry| &entry["path"]);
    let rest: Vec<&Value> =
        entries.filter(|path| **path != "odd" && !denied.contains(&&*text(path))).collect();
    let (end, parts) = import(&impostor, &json!({ "paths": rest })).await?;
    assert_eq!((end, parts), (Outcome::Done, Vec::<String>::new()));
    impostor.close().await?;
    let after = seen(&roots)?;
    for (path, was) in before.0.iter().filter(|(path, _)| **path != rig.workspace) {
        assert_eq!(after.get(path), Some(was), "{}", path.display());
    }
    let made: Vec<&PathBuf> = after.keys().filter(|path| !before.0.contains_key(*path)).collect();
    assert_eq!(made.len(), CARRIED.len() - denied.len(), "{made:?}");
    for path in made {
        let meta = std::fs::symlink_metadata(path)?;
        assert_eq!((meta.mode() & 0o6000, meta.nlink() > 2), (0, false), "{}", path.display());
    }
    assert_eq!(host(), before.1);
    assert_eq!(processes(&rig)?, Vec::<String>::new());
    assert_eq!(volumes_and_networks()?, "");
    Ok(())
}

/// Imports with somebody's yes; what the plan denies, and how it ended.
async fn import(impostor: &Impostor, arguments: &Value) -> Result<(Outcome, Vec<String>)> {
    let call = CallId::new();
    let (plan, bytes) = impostor.planned(call, "import_patch", arguments).await?;
    let denied = plan.parts.iter().filter(|part| part.effect == event::Effect::Deny);
    let subject = |part: &receipt::Part| serde_json::to_value(&part.subject);
    let denied: Vec<Value> = denied.map(subject).collect::<Result<_, _>>()?;
    let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, event::Scope::Once)?)?;
    let digest = receipt::plan_digest(&bytes);
    let end = impostor.execute(call, "import_patch", arguments, digest, Some(&receipt)).await?;
    Ok((end, denied.iter().map(text).collect()))
}

/// What of the attacks' leftovers a patch may hold: files of odd names, as bytes, and links that stay inside.
const CARRIED: [&str; 13] = [
    "loop",
    "m",
    "nested",
    "odd",
    "odd/-rf",
    "odd/a\nb",
    "odd/cafe\u{301}",
    "odd/caf\u{e9}",
    "odd/esc\u{1b}]0;t\u{7}",
    "odd/rtl\u{202e}cod",
    "{\"b64\":\"b2RkL//+\"}",
    "pipes",
    "setid",
];

const NOT_CARRIED: [&str; 14] = [
    ".GIT git_metadata",
    ".git git_metadata",
    ".git  git_metadata",
    ".git. git_metadata",
    "bad link_outside",
    "deep link_outside",
    "git~1 git_metadata",
    "m/.git git_metadata",
    "odd/back\\slash read_denied",
    "one linked",
    "p special_file",
    "pipes/q special_file",
    "two linked",
    "up link_outside",
];

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn carried(patch: &Value) -> Vec<String> {
    patch["entries"].as_array().into_iter().flatten().map(|it| text(&it["path"])).collect()
}

fn not_carried(patch: &Value) -> Vec<String> {
    let all = patch["notCarried"].as_array().into_iter().flatten();
    all.map(|it| format!("{} {}", text(&it["path"]), text(&it["reason"]))).collect()
}

fn row(id: &str, what: &str, by: &str) -> String {
    format!("| {id} | {what} | {by} |")
}

#[test]
fn the_page_of_attacks_is_what_is_tried() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let inside =
        ATTACKS.iter().map(|Attack { id, what, .. }| row(id, what, "a command, in the suite"));
    let elsewhere = ELSEWHERE
        .iter()
        .map(|Elsewhere { id, what, file, test }| row(id, what, &format!("`{test}` in `{file}`")));
    let rows: Vec<String> = inside.chain(elsewhere).collect();
    let page = std::fs::read_to_string(root.join("docs/attacks.md"))?;
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert_eq!(listed, rows, "docs/attacks.md is:\n{}", rows.join("\n"));
    for Elsewhere { file, test, .. } in ELSEWHERE {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| (*file).to_owned())?;
        assert!(text.contains(&format!("fn {test}(")), "{file} has no {test}");
    }
    Ok(())
}
