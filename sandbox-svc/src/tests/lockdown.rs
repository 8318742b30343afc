//! What the kernel refuses to a command, asked from inside of a real container: a probe that is granted fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::run::Run;
use super::world::{World, open_manifest};

const EPERM: u32 = 1;
const EACCES: u32 = 13;
const ENOSYS: u32 = 38;

/// A static program from `source`, in the copy.
fn build(run: &Run<'_>, source: &str, name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-static", "-O1", "-w", "-o"]).arg(run.copy().join(name)).arg(source);
    let built = cc.output().expect("cc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Each probe's error number; 0 is granted.
async fn probed(run: &Run<'_>) -> BTreeMap<String, u32> {
    build(run, "probe.c", "probe");
    let told = run.sh("./probe").await;
    assert_eq!(told.end(), "exited 0", "{}", told.result());
    let line = |line: &str| {
        let (name, errno) = line.split_once(' ').unwrap();
        (name.to_owned(), errno.parse().unwrap())
    };
    told.text().lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_refuses_whatever_a_command_has_no_use_for() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let found = probed(&run).await;
    let granted: Vec<_> = found.iter().filter(|(_, errno)| **errno == 0).collect();
    let granted: Vec<_> = granted.into_iter().map(|(name, _)| name.as_str()).collect();
    // What kill(2) cannot do to the first process it is silent about; the probe went on after it.
    let expected = [
        "clone",
        "kill-1",
        "mknod-fifo",
        "socket-1-0",
        "socket-10-0",
        "socket-16-0",
        "socket-2-0",
        "socketpair-1",
    ];
    assert_eq!(granted, expected);
    let other: BTreeMap<_, _> = found
        .iter()
        .filter(|(_, errno)| !matches!(**errno, 0 | EPERM))
        .map(|(name, errno)| (name.as_str(), *errno))
        .collect();
    assert_eq!(other, BTreeMap::from([("clone3", ENOSYS), ("ptrace-1", EACCES)]));
    assert!(found.len() > 140, "only {} were asked for", found.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_told_nothing_of_the_hosts_names() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let told =
        run.sh("cat /etc/resolv.conf; echo x 2>/dev/null >> /etc/resolv.conf || echo kept").await;
    assert_eq!(told.text(), "kept\n");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let names = run.sh("cat /etc/hosts /etc/hostname; hostname").await.text();
    assert!(!names.contains(host.trim()), "{names}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_cannot_end_its_container_otherwise_than_by_ending() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let told = run.sh("kill -9 1; echo still here; kill -15 1; sleep 60").await;
    // Nobody canceled it: it asked for its own end.
    assert_eq!((told.end().as_str(), told.text().as_str()), ("exited 143", "still here\n"));
    let told = run.sh("cat /proc/1/environ /proc/1/maps; ls /proc/1/fd; true").await;
    assert_eq!(told.result()["stdout"], json!(""));
}

#[test]
fn every_rule_has_a_reason_and_no_name_two() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/seccomp/sandbox.json");
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(profile["defaultAction"], json!("SCMP_ACT_ERRNO"));
    let mut seen = BTreeMap::<&str, usize>::new();
    for rule in profile["syscalls"].as_array().unwrap() {
        assert!(rule["comment"].as_str().unwrap().len() > 20, "{rule}");
        let names = rule["names"].as_array().unwrap();
        assert!(names.is_sorted_by_key(|name| name.as_str()), "{rule}");
        for name in names {
            let conditional = rule["args"].is_array();
            *seen.entry(name.as_str().unwrap()).or_default() += if conditional { 1 } else { 100 };
        }
    }
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 100).collect();
    assert_eq!(twice, Vec::<(&&str, &usize)>::new());
}
