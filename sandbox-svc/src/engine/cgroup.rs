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
        Self::seen_in(Path::new("/proc"), id, pid)
    }

    fn seen_in(proc: &Path, id: &ContainerId, pid: Option<i32>) -> Self {
        let hierarchies = hierarchies(&read(&proc.join("self/mountinfo")));
        let mut directories = BTreeSet::new();
        if let Some(pid) = pid {
            let text = read(&proc.join(pid.to_string()).join("cgroup"));
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
        self.counted_oom_kills().unwrap_or(0)
    }

    /// Nothing where no counter can be read any more.
    pub(crate) fn counted_oom_kills(&self) -> Option<u64> {
        let files = ["memory.oom_control", "memory.events"];
        let counts = self.0.iter().flat_map(|directory| {
            files.iter().filter_map(move |file| oom_kill(&read(&directory.join(file))))
        });
        counts.max()
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
        let Some(own) = named_after(path, id) else { continue };
        let mount = hierarchies.iter().find(|hierarchy| match controllers {
            "" => hierarchy.controllers.is_empty(),
            names => names
                .split(',')
                .all(|name| hierarchy.controllers.iter().any(|controller| controller == name)),
        });
        if let Some(hierarchy) = mount {
            // An engine may put the process into a group below the container's.
            for path in BTreeSet::from([own, path]) {
                directories.push(hierarchy.mount.join(path.trim_start_matches('/')));
            }
        }
    }
    directories
}

/// The path up to the component that names the container.
fn named_after<'p>(path: &'p str, id: &ContainerId) -> Option<&'p str> {
    let at = path.find(id.as_str())? + id.as_str().len();
    let end = path[at..].find('/').map_or(path.len(), |slash| at + slash);
    Some(&path[..end])
}

/// Docker with its two drivers, then Podman with its two.
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
mod tests;
