//! What is in a directory of the host, entry by entry: kind, mode, owner and content.
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use event::Digest;

use crate::file;

/// A tree by its relative paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Directory,
    File(Digest),
    Link(PathBuf),
    Other,
}

impl Tree {
    /// Looks at everything below `root`; follows nothing.
    pub(crate) fn of(root: &Path) -> Result<Self, file::Error> {
        let mut entries = BTreeMap::new();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for found in fs::read_dir(&dir).map_err(file::failed("read", &dir))? {
                let path = found.map_err(file::failed("read", &dir))?.path();
                let meta = fs::symlink_metadata(&path).map_err(file::failed("read", &path))?;
                let content = match meta.file_type() {
                    kind if kind.is_dir() => {
                        dirs.push(path.clone());
                        Content::Directory
                    }
                    kind if kind.is_file() => Content::File(Digest::of(&file::read(&path)?)),
                    kind if kind.is_symlink() => {
                        Content::Link(fs::read_link(&path).map_err(file::failed("read", &path))?)
                    }
                    _ => Content::Other,
                };
                let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
                entries.insert(
                    name,
                    Entry { mode: meta.mode(), owner: (meta.uid(), meta.gid()), content },
                );
            }
        }
        Ok(Self(entries))
    }

    /// Holds if nothing differs.
    pub(crate) fn same_as(&self, other: &Self) -> Result<(), String> {
        match self.differing(other).as_slice() {
            [] => Ok(()),
            names => Err(format!("changed: {}", listed(names))),
        }
    }

    /// Holds if the content of this one file differs and nothing else.
    pub(crate) fn differs_in_content_of(&self, name: &Path, other: &Self) -> Result<(), String> {
        let names = self.differing(other);
        let [only] = names.as_slice() else { return Err(format!("changed: {}", listed(&names))) };
        let same_but_content = match (self.0.get(name), other.0.get(name)) {
            (Some(a), Some(b)) => a.mode == b.mode && a.owner == b.owner,
            _ => false,
        };
        match only == name && same_but_content {
            true => Ok(()),
            false => Err(format!("changed otherwise: {}", listed(&names))),
        }
    }

    fn differing(&self, other: &Self) -> Vec<PathBuf> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name)).cloned().collect()
    }
}

fn listed(names: &[PathBuf]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let app = dir.path().join("app.txt");
        fs::write(&app, "one").unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        std::os::unix::fs::symlink("app.txt", dir.path().join("link")).unwrap();
        let before = Tree::of(dir.path()).unwrap();
        assert_eq!(before.same_as(&Tree::of(dir.path()).unwrap()), Ok(()));

        fs::write(&app, "two").unwrap();
        let after = Tree::of(dir.path()).unwrap();
        assert_eq!(before.same_as(&after), Err("changed: app.txt".to_owned()));
        assert_eq!(before.differs_in_content_of(Path::new("app.txt"), &after), Ok(()));

        fs::write(dir.path().join("src/new"), "").unwrap();
        let more = Tree::of(dir.path()).unwrap();
        assert!(before.differs_in_content_of(Path::new("app.txt"), &more).is_err());
        fs::remove_file(dir.path().join("src/new")).unwrap();
        fs::remove_file(&app).unwrap();
        let gone = Tree::of(dir.path()).unwrap();
        assert!(before.differs_in_content_of(Path::new("app.txt"), &gone).is_err());
    }
}
