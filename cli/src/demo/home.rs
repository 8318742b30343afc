//! The throw-away directory: gone afterwards, however the demonstration ends, unless it is to be kept.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use rustix::mount::{UnmountFlags, unmount};

use crate::{file, output};

pub(crate) struct Home {
    path: PathBuf,
    keep: bool,
}

impl Home {
    pub(crate) fn new(keep: bool) -> Result<Self, file::Error> {
        let base = std::env::temp_dir();
        let dir = tempfile::Builder::new().prefix("harness-demo-").tempdir();
        let path = dir.map_err(file::failed("create a directory in", &base))?.keep();
        // Services with their own uids pass through it.
        let mode = fs::Permissions::from_mode(0o711);
        fs::set_permissions(&path, mode).map_err(file::failed("change the mode of", &path))?;
        Ok(Self { path, keep })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.keep {
            output::progress(&format!("kept {}", self.path.display()));
            return;
        }
        // A run that was broken off leaves its private copy mounted.
        for mount in mounts_below(&self.path) {
            if let Err(errno) = unmount(&mount, UnmountFlags::DETACH) {
                output::progress(&format!("{} stays mounted: {errno}", mount.display()));
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::progress(&format!("{} stays: {error}", self.path.display()));
        }
    }
}

/// The innermost first.
fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(root)).collect();
    below.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    below
}
