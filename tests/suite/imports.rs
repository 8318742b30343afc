//! The real sandbox-svc, killed at each place that it passes while it imports or runs a command, and a disk that is full
//! at each file: the workspace is as before or as reviewed, each effect happens once, and nothing is left.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::{Asked, Engine, Impostor, Outcome, Rig, Spec, Turn, manifest, until};
use event::Digest;
use event::id::CallId;
use serde_json::{Value, json};
use transport::Service;

const IMPORT: &str = "import_patch";

async fn rig() -> Result<Rig> {
    let rules = manifest("killed")
        .rule("process.exec", json!("allow"))
        .rule("patch.import", json!("allow"));
    Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await
}

async fn enter(rig: &Rig) -> Result<Impostor> {
    let impostor = Impostor::enter(rig, "killed")?;
    impostor.fence().await?;
    impostor.open().await?;
    Ok(impostor)
}

/// A call that was planned.
struct Call {
    id: CallId,
    tool: &'static str,
    arguments: Value,
    plan: Digest,
}

async fn planned(impostor: &Impostor, tool: &'static str, arguments: Value) -> Result<Call> {
    let id = CallId::new();
    let (_, bytes) = impostor.planned(id, tool, &arguments).await?;
    Ok(Call { id, tool, arguments, plan: receipt::plan_digest(&bytes) })
}

async fn command(impostor: &Impostor, script: &str) -> Result<Call> {
    planned(impostor, "process.exec", json!({"argv": ["sh", "-c", script]})).await
}

impl Call {
    async fn execute(&self, impostor: &Impostor) -> Result<Outcome, transport::Fault> {
        let Self { id, tool, arguments, plan } = self;
        impostor.execute(*id, tool, arguments, *plan, None).await
    }

    /// As agent-svc asks: again, as long as the end is not proven.
    async fn settled(&self, impostor: &Impostor) -> Outcome {
        until("the end of a call", || async { self.execute(impostor).await.ok() }).await
    }
}

fn fail_at(rig: &Rig, place: Option<usize>) -> Result<()> {
    let path = rig.mesh.layout().config(Service::SandboxSvc);
    let mut table: toml::Table = std::fs::read_to_string(&path)?.parse()?;
    match place {
        Some(place) => table.insert("failpoint".to_owned(), format!("place:{place}").into()),
        None => table.remove("failpoint"),
    };
    Ok(std::fs::write(&path, table.to_string())?)
}

/// Executes the call in a process that is killed at `place`, and asks the next one what became of it. Whether the first
/// one lived.
async fn killed_at(
    rig: &mut Rig,
    impostor: &Impostor,
    call: &Call,
    place: usize,
) -> Result<(bool, Outcome)> {
    fail_at(rig, Some(place))?;
    rig.mesh.restart(Service::SandboxSvc).await?;
    let first = call.execute(impostor).await;
    let lived = first.is_ok();
    fail_at(rig, None)?;
    if !lived {
        let status = rig.mesh.wait(Service::SandboxSvc).await?.context("it was there")?;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        ensure!(signal == Some(9), "it ended by itself: {status} {first:?}");
    }
    rig.mesh.restart(Service::SandboxSvc).await?;
    Ok((lived, call.settled(impostor).await))
}

/// Names and bytes of everything in a directory.
fn tree(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.display().to_string();
            if path.is_dir() {
                left.push(path);
                all.insert(format!("{name}/"), Vec::new());
            } else {
                all.insert(name, std::fs::read(&path)?);
            }
        }
    }
    Ok(all)
}

fn nothing_is_left(impostor: &Impostor) -> Result<()> {
    let label = format!("harness.session={}", impostor.session);
    assert_eq!(Engine::containers(&label)?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_svc_killed_at_every_step_of_an_import_writes_all_of_it_once() -> Result<()> {
    let mut rig = rig().await?;
    let host = rig.workspace.clone();
    for place in 0.. {
        std::fs::remove_dir_all(&host)?;
        std::fs::create_dir_all(host.join("d"))?;
        for (name, text) in [("a", "one"), ("d/x", "x"), ("gone", "x")] {
            std::fs::write(host.join(name), text)?;
        }
        let impostor = enter(&rig).await?;
        let script = "echo two > a; rm gone; rm -r d; echo file > d; mkdir n; echo deep > n/m";
        let made = command(&impostor, script).await?;
        assert_eq!(made.settled(&impostor).await, Outcome::Exited(0));
        let call = planned(&impostor, IMPORT, json!({})).await?;
        let (lived, end) = killed_at(&mut rig, &impostor, &call, place).await?;
        assert_eq!(end, Outcome::Done, "killed at place {place}");
        let after = [("a", "two\n"), ("d", "file\n"), ("n/", ""), ("n/m", "deep\n")];
        let after = after.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        assert_eq!(tree(&host)?, after.into(), "killed at place {place}");
        let again = impostor.plan(CallId::new(), IMPORT, &json!({})).await?;
        assert_eq!(again, Asked::Refused("PATCH_EMPTY".to_owned()), "place {place}");
        impostor.close().await?;
        nothing_is_left(&impostor)?;
        if lived {
            ensure!(place >= 18, "only {place} places were tried");
            return Ok(());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_svc_killed_at_every_step_of_a_command_leaves_nothing_and_repeats_nothing()
-> Result<()> {
    let mut rig = rig().await?;
    for place in 0.. {
        let impostor = enter(&rig).await?;
        let call = command(&impostor, "echo x >> count").await?;
        let (lived, end) = killed_at(&mut rig, &impostor, &call, place).await?;
        assert_eq!(end, Outcome::Exited(0), "killed at place {place}");
        let count = command(&impostor, "[ $(wc -l < count) = 1 ]").await?;
        assert_eq!(count.settled(&impostor).await, Outcome::Exited(0), "place {place}");
        nothing_is_left(&impostor)?;
        impostor.close().await?;
        if lived {
            ensure!(place >= 7, "only {place} places were tried");
            return Ok(());
        }
    }
    Ok(())
}

/// A small file system for a workspace; gone with it.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Result<Self> {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("suite", at, "tmpfs", flags, Some(c"size=2m,mode=0755"))?;
        Ok(Self(at))
    }

    /// Until only so many bytes are left.
    fn fill(&self, left: u64) -> Result<()> {
        let stat = rustix::fs::statvfs(self.0)?;
        let free = stat.f_bavail * stat.f_frsize;
        let filler = usize::try_from(free.checked_sub(left).context("it is full")?)?;
        Ok(std::fs::write(self.0.join("filler"), vec![0; filler])?)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

const FILES: usize = 5;
const EACH: u64 = 64 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_at_any_file_leaves_all_or_nothing() -> Result<()> {
    let mut rig = rig().await?;
    let host = rig.workspace.clone();
    let small = Small::mount(&host)?;
    std::fs::write(host.join("f0"), "old 0")?;
    std::fs::write(host.join("f3"), "old 3")?;
    std::fs::write(host.join("gone"), "old")?;
    let impostor = enter(&rig).await?;
    let script = "for i in 0 1 2 3 4; do dd if=/dev/zero bs=64k count=1 2>/dev/null | tr '\\0' $i > f$i; done; rm gone";
    let made = command(&impostor, script).await?;
    assert_eq!(made.settled(&impostor).await, Outcome::Exited(0));
    for whole in 0..FILES {
        small.fill(whole as u64 * EACH + EACH / 2)?;
        let before = tree(&host)?;
        let call = planned(&impostor, IMPORT, json!({})).await?;
        let end = call.settled(&impostor).await;
        assert_eq!(end, Outcome::Refused("IMPORT_FAILED".to_owned()), "full at file {whole}");
        assert_eq!(tree(&host)?, before, "full at file {whole}");
        rig.kill_and_restart(Service::SandboxSvc).await?;
        assert_eq!(call.settled(&impostor).await, end, "the same is told of the same call");
        assert_eq!(tree(&host)?, before, "full at file {whole}, after a kill");
        std::fs::remove_file(host.join("filler"))?;
    }
    let call = planned(&impostor, IMPORT, json!({})).await?;
    assert_eq!(call.settled(&impostor).await, Outcome::Done);
    let wanted = (0..FILES).map(|at| {
        let digit = u8::try_from(at).unwrap_or_default() + b'0';
        (format!("f{at}"), vec![digit; usize::try_from(EACH).unwrap_or_default()])
    });
    assert_eq!(tree(&host)?, wanted.collect());
    impostor.close().await?;
    nothing_is_left(&impostor)
}
