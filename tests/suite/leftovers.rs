//! What holds every other test of this suite: a rig whose services leave something behind fails its test.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Engine, Rig, Spec, Turn, manifest};

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_leaves_a_container_or_a_mount_fails_and_it_is_removed() -> Result<()> {
    let rig = Rig::start(Spec::new(manifest("left"), vec![Turn::Say("nothing")])).await?;
    let dir = rig.dir().to_owned();
    let label = format!("harness.suite={}", dir.file_name().context("a name")?.display());
    let made = Command::new("docker")
        .args(["create", "--network", "none", "--label", "harness.owner=sandbox-svc"])
        .args(["--label", &label, "--volume", &format!("{}:/x:ro", rig.workspace.display())])
        .args([&rig.image, "true"])
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    let [name] = &Engine::containers(&label)?[..] else { anyhow::bail!("one was made") };
    let point = dir.join("mounted");
    std::fs::create_dir(&point)?;
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("suite", &point, "tmpfs", flags, None)?;

    let failed = catch_unwind(AssertUnwindSafe(|| drop(rig))).err().context("it did not fail")?;
    let told = failed.downcast_ref::<String>().context("words")?;
    assert!(told.contains(&format!("{name} (created) outlives sandbox-svc's own end")), "{told}");
    assert!(told.contains(&format!("the container {name} (created) is left")), "{told}");
    assert!(told.contains(&format!("{} stays mounted", point.display())), "{told}");
    assert_eq!(Engine::containers(&label)?, Vec::<String>::new());
    assert!(!std::fs::read_to_string("/proc/self/mountinfo")?.contains(&*dir.to_string_lossy()));
    assert!(!dir.exists(), "the directory goes with it");
    Ok(())
}
