//! Hosts as files: version 1, version 2 and both at once, as the kernel documentation and the engines lay them out.

use std::fs;
use std::path::PathBuf;

use super::{Cgroups, hierarchies, oom_kill, recorded};
use crate::engine::ContainerId;

const PID: i32 = 4321;

fn id() -> ContainerId {
    ContainerId::parse(&"a".repeat(64)).unwrap()
}

/// A host's `/proc` and control groups as files.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// `mounts` are lines of mountinfo behind the mount point, with the point first; `membership` is what the kernel
    /// says of the container's first process.
    fn new(mounts: &[(&str, &str)], membership: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("cgroup");
        let line = |(at, (point, rest)): (usize, &(&str, &str))| {
            let point = root.join(point);
            fs::create_dir_all(&point).unwrap();
            format!("{} 25 0:{at} / {} rw,nosuid shared:9 - {rest}\n", 30 + at, point.display())
        };
        let mounts: String = mounts.iter().enumerate().map(line).collect();
        let proc = dir.path().join("proc");
        for (name, text) in [("self/mountinfo", mounts.as_str()), ("4321/cgroup", membership)] {
            let path = proc.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("ID", id().as_str())).unwrap();
        }
        Self { dir }
    }

    fn at(&self, group: &str) -> PathBuf {
        self.dir.path().join("cgroup").join(group.replace("ID", id().as_str()))
    }

    fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.at(file).parent().unwrap()).unwrap();
        fs::write(self.at(file), text).unwrap();
    }

    fn seen(&self, pid: Option<i32>) -> Cgroups {
        Cgroups::seen_in(&self.dir.path().join("proc"), &id(), pid)
    }

    fn expect(&self, groups: &[&str]) -> Cgroups {
        Cgroups(groups.iter().map(|group| self.at(group)).collect())
    }
}

const V1: [(&str, &str); 4] = [
    ("memory", "cgroup cgroup rw,memory"),
    ("cpu,cpuacct", "cgroup cgroup rw,cpu,cpuacct"),
    ("pids", "cgroup cgroup rw,pids"),
    ("systemd", "cgroup cgroup rw,xattr,name=systemd"),
];
const V2: [(&str, &str); 1] = [("", "cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot")];
const V1_KILLS: &str = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
const V2_KILLS: &str = "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n";

#[test]
fn version_1_has_a_group_for_each_hierarchy_and_counts_in_the_one_for_memory() {
    let membership = "11:memory:/docker/ID\n5:cpu,cpuacct:/docker/ID\n4:pids:/docker/ID\n1:name=systemd:/docker/ID\n";
    let host = Host::new(&V1, membership);
    let seen = host.seen(Some(PID));
    let groups =
        ["memory/docker/ID", "cpu,cpuacct/docker/ID", "pids/docker/ID", "systemd/docker/ID"];
    assert_eq!(seen, host.expect(&groups));
    assert_eq!(seen.oom_kills(), 0);
    host.write("memory/docker/ID/memory.oom_control", V1_KILLS);
    assert_eq!((seen.oom_kills(), seen.are_gone()), (2, false));
    fs::remove_dir_all(host.at("memory/docker/ID")).unwrap();
    assert!(seen.are_gone());
}

#[test]
fn version_2_has_one_group_under_either_driver_of_either_engine() {
    for group in [
        "docker/ID",
        "system.slice/docker-ID.scope",
        "libpod_parent/libpod-ID",
        "machine.slice/libpod-ID.scope",
        "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
    ] {
        let host = Host::new(&V2, &format!("0::/{group}\n"));
        let seen = host.seen(Some(PID));
        assert_eq!(seen, host.expect(&[group]));
        host.write(&format!("{group}/memory.events"), V2_KILLS);
        assert_eq!((seen.oom_kills(), seen.are_gone()), (2, false), "{group}");
    }
}

#[test]
fn a_group_below_the_containers_own_is_recorded_with_it_and_both_must_go() {
    let own = "machine.slice/libpod-ID.scope";
    let host = Host::new(&V2, &format!("0::/{own}/container\n"));
    let seen = host.seen(Some(PID));
    assert_eq!(seen, host.expect(&[own, &format!("{own}/container")]));
    host.write(&format!("{own}/memory.events"), V2_KILLS);
    host.write(&format!("{own}/container/memory.events"), "oom_kill 1\n");
    assert_eq!(seen.oom_kills(), 2);
    fs::remove_dir_all(host.at(&format!("{own}/container"))).unwrap();
    assert!(!seen.are_gone());
}

#[test]
fn a_hybrid_host_counts_on_version_1_and_is_proven_on_both() {
    let mut mounts = V1.to_vec();
    mounts.push(("unified", "cgroup2 cgroup2 rw,nsdelegate"));
    let host = Host::new(&mounts, "11:memory:/docker/ID\n4:pids:/docker/ID\n0::/docker/ID\n");
    let seen = host.seen(Some(PID));
    assert_eq!(seen, host.expect(&["memory/docker/ID", "pids/docker/ID", "unified/docker/ID"]));
    host.write("memory/docker/ID/memory.oom_control", V1_KILLS);
    host.write("unified/docker/ID/cgroup.procs", "");
    assert_eq!(seen.oom_kills(), 2);
    fs::remove_dir_all(host.at("memory/docker/ID")).unwrap();
    assert!(!seen.are_gone(), "the group of version 2 is still there");
}

#[test]
fn without_a_process_the_usual_places_are_looked_at_and_strangers_are_never_recorded() {
    for (mounts, group) in [
        (&V1[..], "memory/docker/ID"),
        (&V1[..], "memory/system.slice/docker-ID.scope"),
        (&V1[..], "pids/libpod_parent/libpod-ID"),
        (&V2[..], "system.slice/docker-ID.scope"),
        (&V2[..], "machine.slice/libpod-ID.scope"),
    ] {
        let host = Host::new(mounts, "");
        assert_eq!(host.seen(None), Cgroups::default());
        fs::create_dir_all(host.at(group)).unwrap();
        assert_eq!(host.seen(None), host.expect(&[group]), "{group}");
    }
    let other = "b".repeat(64);
    let host = Host::new(&V2, &format!("0::/docker/{other}\n"));
    assert_eq!(host.seen(Some(PID)), Cgroups::default());
}

#[test]
fn directories_are_found_on_both_versions() {
    let id = id();
    let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                  31 25 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
                  32 25 0:28 / / rw - ext4 /dev/vda rw";
    let text = format!("4:memory:/docker/{0}\n0::/docker/{0}\n1:cpu:/docker/{0}\n", id.as_str());
    assert_eq!(
        recorded(&hierarchies(mounts), &text, &id),
        [
            PathBuf::from(format!("/sys/fs/cgroup/memory/docker/{}", id.as_str())),
            PathBuf::from(format!("/sys/fs/cgroup/unified/docker/{}", id.as_str())),
        ]
    );
    assert_eq!(recorded(&hierarchies(mounts), "4:memory:/\n0::/user.slice\n", &id).len(), 0);
}

#[test]
fn the_counter_of_kills_is_read_on_both_versions() {
    assert_eq!(oom_kill("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
    assert_eq!(oom_kill("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n"), Some(1));
    assert_eq!(oom_kill(""), None);
}
