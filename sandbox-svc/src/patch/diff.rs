//! Base against copy. A path is deleted only when the base had it and the copy has nothing of that name.

use std::collections::BTreeMap;

use crate::patch::select::sort;
use crate::patch::{Before, Change, Entry, Patch};
use crate::tree::scan::Found;
use crate::tree::{Inventory, Node, NotCarried, Reason, RelPath};

/// Set-id and sticky bits of a directory concern the host and stay as they are there.
const HOST_DIRECTORY_BITS: u32 = 0o7000;

pub(crate) fn diff(base: &Inventory, before: &Before, found: &Found) -> Patch {
    let refused: BTreeMap<&RelPath, Reason> =
        found.not_carried.iter().map(|entry| (&entry.path, entry.reason)).collect();
    let mut patch = Patch { stripped: found.stripped.clone(), ..Patch::default() };
    let mut kept = Vec::new();

    // Both are in path order, so that each is walked once.
    let mut there = found.inventory.iter().peekable();
    for (path, was) in base.iter() {
        while let Some((new, now)) = there.next_if(|(other, _)| *other < path) {
            push(&mut patch, new, Change::Create { after: now.carried() });
        }
        let now = there.next_if(|(other, _)| *other == path).map(|(_, now)| now);
        let goes = match now {
            None => !is_refused(&refused, path),
            Some(now) => was.is_directory() != now.is_directory(),
        };
        if goes && was.is_directory() && holds_withheld(before, path) {
            kept.push(path);
        } else if goes {
            push(&mut patch, path, Change::Delete { before: was.clone() });
        }
        if let Some(now) = now {
            compare(&mut patch, path, was, now);
        }
    }
    for (new, now) in there {
        push(&mut patch, new, Change::Create { after: now.carried() });
    }

    // What a kept directory would have become has no place to go.
    patch.entries.retain(|entry| {
        let replaces = matches!(entry.change, Change::Create { .. });
        !(replaces && kept.contains(&&entry.path))
    });
    sort(&mut patch.entries);
    patch.not_carried = found.not_carried.clone();
    patch.not_carried.extend(
        kept.into_iter()
            .map(|path| NotCarried { path: path.clone(), reason: Reason::HoldsWithheld }),
    );
    patch.not_carried.sort_by(|one, other| one.path.cmp(&other.path));
    patch
}

fn push(patch: &mut Patch, path: &RelPath, change: Change) {
    patch.entries.push(Entry { path: path.clone(), change });
}

/// Two entries of one path: the same, changed, or of another kind (whose delete is already in the patch).
fn compare(patch: &mut Patch, path: &RelPath, was: &Node, now: &Node) {
    if was.is_same_as(now) {
        return;
    }
    let after = match (was, now) {
        (Node::Directory { mode: host }, Node::Directory { mode }) => {
            Node::Directory { mode: host & HOST_DIRECTORY_BITS | mode & !HOST_DIRECTORY_BITS }
        }
        (_, now) => now.carried(),
    };
    let change = if was.is_directory() == now.is_directory() {
        Change::Update { before: was.clone(), after }
    } else {
        Change::Create { after }
    };
    push(patch, path, change);
}

/// The path, or a directory on the way to it, is there in a form that is not carried.
fn is_refused(refused: &BTreeMap<&RelPath, Reason>, path: &RelPath) -> bool {
    path.ancestors().any(|path| refused.contains_key(&path))
}

fn holds_withheld(before: &Before, directory: &RelPath) -> bool {
    before
        .range(directory.clone()..)
        .take_while(|(path, _)| path.as_bytes().starts_with(directory.as_bytes()))
        .any(|(path, _)| path.is_below(directory))
}

#[cfg(test)]
mod tests {
    use event::Digest;

    use super::diff;
    use crate::import_call::advanced;
    use crate::patch::{Before, Change, Entry};
    use crate::tree::scan::Found;
    use crate::tree::testing::{edits, look, trees};
    use crate::tree::{Inventory, Node, NotCarried, Reason, RelPath};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn file(text: &str) -> Node {
        let bytes = text.as_bytes();
        Node::File { mode: 0o644, size: bytes.len() as u64, digest: Digest::of(bytes) }
    }

    fn tree(entries: &[(&str, Node)]) -> Inventory {
        let mut inventory = Inventory::default();
        for (name, node) in entries {
            inventory.insert(path(name), node.clone());
        }
        inventory
    }

    fn found(entries: &[(&str, Node)], refused: &[(&str, Reason)]) -> Found {
        let not_carried = refused
            .iter()
            .map(|(name, reason)| NotCarried { path: path(name), reason: *reason })
            .collect();
        Found { inventory: tree(entries), not_carried, ..Found::default() }
    }

    fn entry(name: &str, change: Change) -> Entry {
        Entry { path: path(name), change }
    }

    const DIR: Node = Node::Directory { mode: 0o755 };

    #[test]
    fn a_file_becomes_a_directory_and_back_in_two_entries_each() {
        let base = tree(&[("a", file("1")), ("d", DIR), ("d/x", file("2"))]);
        let after = found(&[("a", DIR), ("a/b", file("3")), ("d", file("4"))], &[]);
        let patch = diff(&base, &Before::new(), &after);
        assert_eq!(
            patch.entries,
            [
                entry("a", Change::Delete { before: file("1") }),
                entry("a", Change::Create { after: DIR }),
                entry("a/b", Change::Create { after: file("3") }),
                entry("d", Change::Delete { before: DIR }),
                entry("d", Change::Create { after: file("4") }),
                entry("d/x", Change::Delete { before: file("2") }),
            ]
        );
        assert_eq!(patch.deletions(), [&path("d/x")]);
    }

    #[test]
    fn what_is_there_in_a_strange_form_is_not_deleted() {
        let base = tree(&[("a", file("1")), ("d", DIR), ("d/x", file("2"))]);
        let after = found(&[], &[("a", Reason::Linked), ("d", Reason::Special)]);
        let patch = diff(&base, &Before::new(), &after);
        assert_eq!(patch.entries, []);
        assert_eq!(patch.not_carried, after.not_carried);
    }

    #[test]
    fn a_directory_that_holds_something_withheld_stays() {
        let base = tree(&[("a", DIR), ("a/x", file("1"))]);
        let before = Before::from([(path("a/.env"), Reason::SecretName)]);
        let patch = diff(&base, &before, &found(&[("a", file("2"))], &[]));
        assert_eq!(patch.entries, [entry("a/x", Change::Delete { before: file("1") })]);
        assert_eq!(
            patch.not_carried,
            [NotCarried { path: path("a"), reason: Reason::HoldsWithheld }]
        );
    }

    #[test]
    fn set_id_bits_are_no_change_and_do_not_come_along() {
        let was = Node::File { mode: 0o4755, size: 1, digest: Digest::of(b"x") };
        let same = Node::File { mode: 0o755, size: 1, digest: Digest::of(b"x") };
        let base = tree(&[("a", was.clone()), ("d", Node::Directory { mode: 0o2775 })]);
        let after = found(&[("a", same), ("d", Node::Directory { mode: 0o775 })], &[]);
        assert_eq!(diff(&base, &Before::new(), &after).entries, []);

        let wider = Node::Directory { mode: 0o777 };
        let patch = diff(&base, &Before::new(), &found(&[("a", file("y")), ("d", wider)], &[]));
        assert_eq!(
            patch.entries,
            [
                entry("a", Change::Update { before: was, after: file("y") }),
                entry(
                    "d",
                    Change::Update {
                        before: Node::Directory { mode: 0o2775 },
                        after: Node::Directory { mode: 0o2777 },
                    }
                ),
            ]
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn a_patch_of_any_edits_makes_the_base_what_the_copy_is(tree in trees(), edits in edits()) {
            let dir = tempfile::tempdir().unwrap();
            tree.make(dir.path());
            let base = look(dir.path());
            proptest::prop_assert_eq!(&base.not_carried, &[]);
            let after = tree.edited(&edits);
            tree.turn_into(&after, dir.path());
            let found = look(dir.path());
            let patch = diff(&base.inventory, &Before::new(), &found);
            proptest::prop_assert_eq!(advanced(&base.inventory, &patch.entries), found.inventory);
            proptest::prop_assert_eq!(patch.entries.is_empty(), tree == after);
        }
    }
}
