//! What the operating system says about the services: that each is a process of its own, and under whose uid.
use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::mesh::{Mesh, Service};

/// The services that run, each as its own program in its own process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pids: BTreeSet<u32>,
    uids: BTreeSet<u32>,
}

impl Processes {
    pub(crate) fn of(mesh: &Mesh) -> Self {
        let mut seen = Self::default();
        for service in Service::ALL {
            if let Some((pid, uid)) = mesh.pid(service).and_then(|pid| look(service, pid)) {
                seen.pids.insert(pid);
                seen.uids.insert(uid);
            }
        }
        seen
    }

    pub(crate) fn count(&self) -> usize {
        self.pids.len()
    }

    /// No two share a uid, and none is root.
    pub(crate) fn own_uids(&self) -> bool {
        self.uids.len() == Mesh::SIZE && !self.uids.contains(&0)
    }
}

fn look(service: Service, pid: u32) -> Option<(u32, u32)> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let program = fs::read_link(proc.join("exe")).ok()?;
    let status = fs::read_to_string(proc.join("status")).ok()?;
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    (program.file_name()? == service.as_str()).then_some((pid, uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_services_own_program_counts() {
        assert_eq!(look(Service::Gateway, std::process::id()), None);
        assert_eq!(look(Service::Gateway, u32::MAX), None);
    }

    #[test]
    fn shared_uids_and_root_are_not_own_uids() {
        let with = |uids: [u32; 5]| Processes { pids: BTreeSet::new(), uids: uids.into() };
        assert!(with([1, 2, 3, 4, 5]).own_uids());
        assert!(!with([1, 2, 3, 4, 4]).own_uids());
        assert!(!with([0, 2, 3, 4, 5]).own_uids());
    }
}
