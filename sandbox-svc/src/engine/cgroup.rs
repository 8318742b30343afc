//! A container's control groups: recorded while it runs, so that their end can be proven, and read for kills
//! by the kernel. It changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::ContainerId;

/// The directories of one container, one for each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cgroups(BTreeSet<PathBuf>);

impl Cgroups {
    /// Of the process `pid` while it is there, and where engines usually put the container otherwise.
    pub(crate) fn of(id: &ContainerId, pid: Option<i32>) -> Self {
        let hierarchies = hierarchies(&read(Path::new("/proc/self/mountinfo")));
        let mut directories = BTreeSet::new();
        if let Some(pid) = pid {
            let text = read(Path::new(&format!("/proc/{pid}/cgroup")));
            directories.extend(recorded(&hierarchies, &text, id));
        }
        for hierarchy in &hierarchies {
            let usual = usual_places(&hierarchy.mount, id).into_iter();
            directories.extend(usual.filter(|place| place.is_dir()));
        }
        Self(directories)
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
    }

    /// One path a line.
    pub(crate) fn to_text(&self) -> String {
        let lines: Vec<_> = self.0.iter().map(|path| path.to_string_lossy()).collect();
        lines.join("\n")
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether every directory is gone, and with it every process that was in it.
    pub(crate) fn are_gone(&self) -> bool {
        self.0.iter().all(|directory| !directory.exists())
    }

    /// How many processes the kernel killed for memory; nothing when nobody counted.
    pub(crate) fn oom_kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let counts = self.0.iter().flat_map(|directory| {
            files.iter().filter_map(move |file| oom_kill(&read(&directory.join(file))))
        });
        counts.max().unwrap_or(0)
    }
}

fn oom_kill(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// A file that is gone says nothing.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

struct Hierarchy {
    mount: PathBuf,
    /// Version 1 controllers; empty for version 2.
    controllers: Vec<String>,
}

fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(hierarchy).collect()
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mount = PathBuf::from(before.split(' ').nth(4)?);
    let mut fields = after.split(' ');
    match (fields.next()?, fields.nth(1)) {
        ("cgroup2", _) => Some(Hierarchy { mount, controllers: Vec::new() }),
        ("cgroup", Some(options)) => {
            Some(Hierarchy { mount, controllers: options.split(',').map(str::to_owned).collect() })
        }
        _ => None,
    }
}

/// Lines `id:controllers:path`. Only paths that name the container are its own.
fn recorded(hierarchies: &[Hierarchy], text: &str, id: &ContainerId) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if !path.contains(id.as_str()) {
            continue;
        }
        let mount = hierarchies.iter().find(|hierarchy| match controllers {
            "" => hierarchy.controllers.is_empty(),
            names => names
                .split(',')
                .all(|name| hierarchy.controllers.iter().any(|controller| controller == name)),
        });
        if let Some(hierarchy) = mount {
            directories.push(hierarchy.mount.join(path.trim_start_matches('/')));
        }
    }
    directories
}

fn usual_places(mount: &Path, id: &ContainerId) -> [PathBuf; 4] {
    let id = id.as_str();
    [
        mount.join("docker").join(id),
        mount.join(format!("system.slice/docker-{id}.scope")),
        mount.join(format!("libpod_parent/libpod-{id}")),
        mount.join(format!("machine.slice/libpod-{id}.scope")),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{hierarchies, oom_kill, recorded};
    use crate::engine::ContainerId;

    #[test]
    fn directories_are_found_on_both_versions() {
        let id = ContainerId::parse(&"a".repeat(64)).unwrap();
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
                      32 25 0:28 / / rw - ext4 /dev/vda rw";
        let text =
            format!("4:memory:/docker/{0}\n0::/docker/{0}\n1:cpu:/docker/{0}\n", id.as_str());
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
}
