//! A part of a patch by name: what is named, what is below it, and what neither can go without. It decides what
//! belongs together, never whether it may be imported.

use std::collections::BTreeSet;

use crate::patch::{Change, Entry, Patch};
use crate::tree::RelPath;

/// Names that no entry of the patch has or is below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown(pub(crate) Vec<RelPath>);

impl Patch {
    /// The entries at and below `names`, with all that they need: the directories that are made for them, and
    /// everything that goes with a directory that goes. The rest stays a patch of its own.
    pub(crate) fn select(&self, names: &BTreeSet<RelPath>) -> Result<Self, Unknown> {
        let all: BTreeSet<&RelPath> = self.entries.iter().map(|entry| &entry.path).collect();
        let unknown: Vec<_> =
            names.iter().filter(|name| !self.has_at_or_below(name)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Unknown(unknown));
        }
        let named = |path: &RelPath| path.ancestors().any(|path| names.contains(&path));
        let mut chosen: BTreeSet<&RelPath> =
            all.iter().copied().filter(|path| named(path)).collect();
        let made: BTreeSet<&RelPath> = self
            .paths_of(|change| matches!(change, Change::Create { after } if after.is_directory()));
        let needed: Vec<&RelPath> = chosen
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter_map(|path| made.get(&path).copied())
            .collect();
        chosen.extend(needed);
        // A directory that was needed and is made in the place of something else takes that along: both entries
        // have one path. One that goes takes its contents along.
        let gone: BTreeSet<&RelPath> = self.paths_of(
            |change| matches!(change, Change::Delete { before } if before.is_directory()),
        );
        let contents: Vec<&RelPath> = all
            .iter()
            .copied()
            .filter(|path| {
                let mut above = path.ancestors().skip(1);
                above.any(|path| gone.contains(&path) && chosen.contains(&path))
            })
            .collect();
        chosen.extend(contents);
        let keeps = |path: &RelPath| chosen.contains(path);
        Ok(Self {
            entries: self.entries.iter().filter(|entry| keeps(&entry.path)).cloned().collect(),
            not_carried: self.not_carried.clone(),
            stripped: self.stripped.iter().filter(|path| keeps(path)).cloned().collect(),
        })
    }

    fn paths_of(&self, wanted: impl Fn(&Change) -> bool) -> BTreeSet<&RelPath> {
        let wanted = |entry: &&Entry| wanted(&entry.change);
        self.entries.iter().filter(wanted).map(|entry| &entry.path).collect()
    }

    fn has_at_or_below(&self, name: &RelPath) -> bool {
        self.entries.iter().any(|entry| entry.path == *name || entry.path.is_below(name))
    }

    /// What takes this patch back: every entry the other way round.
    pub(crate) fn reversed(&self) -> Self {
        let reverse = |entry: &Entry| Entry {
            path: entry.path.clone(),
            change: match entry.change.clone() {
                Change::Create { after } => Change::Delete { before: after },
                Change::Update { before, after } => Change::Update { before: after, after: before },
                Change::Delete { before } => Change::Create { after: before },
            },
        };
        let mut entries: Vec<_> = self.entries.iter().map(reverse).collect();
        sort(&mut entries);
        Self { entries, ..Self::default() }
    }
}

/// In path order, a delete before a create of the same path.
pub(crate) fn sort(entries: &mut [Entry]) {
    let is_made = |entry: &Entry| matches!(entry.change, Change::Create { .. });
    entries.sort_by(|one, other| one.path.cmp(&other.path).then(is_made(one).cmp(&is_made(other))));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use event::Digest;

    use super::Unknown;
    use crate::patch::{Change, Entry, Patch};
    use crate::tree::{Node, RelPath};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn file(text: &str) -> Node {
        Node::File { mode: 0o644, size: 1, digest: Digest::of(text.as_bytes()) }
    }

    const DIR: Node = Node::Directory { mode: 0o755 };

    fn patch() -> Patch {
        let made = |name: &str, after| Entry { path: path(name), change: Change::Create { after } };
        let gone =
            |name: &str, before| Entry { path: path(name), change: Change::Delete { before } };
        let entries = vec![
            gone("a", file("1")),
            made("a", DIR),
            made("a/b", DIR),
            made("a/b/c", file("2")),
            made("a/x", file("3")),
            made("ab", file("4")),
            gone("d", DIR),
            made("d", file("5")),
            gone("d/x", file("6")),
            gone("d/y", DIR),
            gone("d/y/z", file("7")),
            Entry {
                path: path("u"),
                change: Change::Update { before: file("8"), after: file("9") },
            },
        ];
        Patch { entries, ..Patch::default() }
    }

    fn selected(names: &[&str]) -> Vec<String> {
        let names: BTreeSet<_> = names.iter().map(|name| path(name)).collect();
        let patch = patch().select(&names).unwrap();
        let op = |entry: &Entry| match entry.change {
            Change::Create { .. } => '+',
            Change::Update { .. } => '~',
            Change::Delete { .. } => '-',
        };
        patch.entries.iter().map(|entry| format!("{}{}", op(entry), entry.path)).collect()
    }

    #[test]
    fn a_name_that_the_patch_does_not_know_is_told() {
        let names = ["u", "a/b/c/d", "nope", "b"].map(path).into_iter().collect();
        let unknown = ["a/b/c/d", "b", "nope"].map(path).to_vec();
        assert_eq!(patch().select(&names), Err(Unknown(unknown)));
    }

    #[test]
    fn a_name_takes_what_is_below_it_and_no_neighbour() {
        assert_eq!(selected(&["u"]), ["~u"]);
        assert_eq!(selected(&["a"]), ["-a", "+a", "+a/b", "+a/b/c", "+a/x"]);
        assert_eq!(selected(&["d/y"]), ["-d/y", "-d/y/z"]);
    }

    #[test]
    fn what_is_made_comes_with_the_directories_made_for_it() {
        assert_eq!(selected(&["a/b/c"]), ["-a", "+a", "+a/b", "+a/b/c"]);
        assert_eq!(selected(&["a/x"]), ["-a", "+a", "+a/x"]);
    }

    #[test]
    fn a_directory_that_goes_takes_its_contents_and_a_change_of_kind_stays_whole() {
        assert_eq!(selected(&["d"]), ["-d", "+d", "-d/x", "-d/y", "-d/y/z"]);
        assert_eq!(selected(&["d/x"]), ["-d/x"]);
    }

    #[test]
    fn a_patch_that_is_reversed_twice_is_the_same_patch() {
        let patch = patch();
        assert_eq!(patch.reversed().reversed(), patch);
        assert_ne!(patch.reversed().digest(), patch.digest());
    }
}
