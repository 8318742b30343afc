//! What a tree holds, by path: kinds, modes, sizes and digests, with one encoding and one digest. It holds
//! no contents.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;

use event::Digest;

use crate::tree::RelPath;

const DOMAIN: &str = "harness.tree.v1";
/// Permission bits that are carried; set-id and sticky bits stay behind.
pub(crate) const CARRIED_MODE: u32 = 0o777;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory { mode: u32 },
    File { mode: u32, size: u64, digest: Digest },
    Link { target: Vec<u8> },
}

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// The same but for bits that are never carried.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.carried() == other.carried()
    }

    /// As it arrives in a copy: without set-id and sticky bits.
    pub(crate) fn carried(&self) -> Self {
        match self {
            Self::Directory { mode } => Self::Directory { mode: mode & CARRIED_MODE },
            Self::File { mode, size, digest } => {
                Self::File { mode: mode & CARRIED_MODE, size: *size, digest: *digest }
            }
            Self::Link { target } => Self::Link { target: target.clone() },
        }
    }

    /// Permission bits for a file; with its type for everything else.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Directory { mode } => 0o040_000 | mode,
            Self::File { mode, .. } => *mode,
            Self::Link { .. } => 0o120_777,
        }
    }

    /// Octal: four digits for a file, six with the type for everything else.
    pub(crate) fn mode_text(&self) -> String {
        match self {
            Self::File { mode, .. } => format!("{mode:04o}"),
            Self::Directory { .. } | Self::Link { .. } => format!("{:06o}", self.mode()),
        }
    }

    /// Digest of the bytes: a file's contents, a link's text, nothing of a directory.
    pub(crate) fn digest(&self) -> Digest {
        match self {
            Self::Directory { .. } => Digest::of(b""),
            Self::File { digest, .. } => *digest,
            Self::Link { target } => Digest::of(target),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Directory { .. } => 0,
            Self::File { size, .. } => *size,
            Self::Link { target } => target.len() as u64,
        }
    }
}

/// Everything below the root, in path order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inventory {
    nodes: BTreeMap<RelPath, Node>,
    /// Made when first asked for, of large trees more than once.
    digest: OnceLock<Digest>,
}

impl PartialEq for Inventory {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl Eq for Inventory {}

impl FromIterator<(RelPath, Node)> for Inventory {
    fn from_iter<I: IntoIterator<Item = (RelPath, Node)>>(nodes: I) -> Self {
        Self { nodes: nodes.into_iter().collect(), digest: OnceLock::new() }
    }
}

impl Inventory {
    pub(crate) fn insert(&mut self, path: RelPath, node: Node) {
        self.digest = OnceLock::new();
        self.nodes.insert(path, node);
    }

    pub(crate) fn remove(&mut self, path: &RelPath) {
        self.digest = OnceLock::new();
        self.nodes.remove(path);
    }

    pub(crate) fn get(&self, path: &RelPath) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&RelPath, &Node)> {
        self.nodes.iter()
    }

    /// Everything in the directory, at any depth, in path order.
    pub(crate) fn below<'a>(
        &'a self,
        directory: &'a RelPath,
    ) -> impl Iterator<Item = (&'a RelPath, &'a Node)> {
        // Names that begin like the directory's sort between it and its entries, so skip until they end.
        self.nodes
            .range((Bound::Excluded(directory), Bound::Unbounded))
            .take_while(move |(path, _)| path.as_bytes().starts_with(directory.as_bytes()))
            .filter(move |(path, _)| path.is_below(directory))
    }

    pub(crate) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of_parts(DOMAIN, &self.to_bytes()))
    }

    /// Each entry with its lengths first, so that no two inventories share bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, node) in &self.nodes {
            put(&mut bytes, path.as_bytes());
            node.encode(&mut bytes);
        }
        bytes
    }

    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let mut nodes = BTreeMap::new();
        while !bytes.is_empty() {
            let path = RelPath::parse(take(&mut bytes)?).map_err(|_| Malformed)?;
            nodes.insert(path, Node::decode(&mut bytes)?);
        }
        Ok(Self { nodes, digest: OnceLock::new() })
    }
}

impl Node {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Directory { mode } => {
                bytes.push(b'd');
                bytes.extend_from_slice(&mode.to_be_bytes());
            }
            Self::File { mode, size, digest } => {
                bytes.push(b'f');
                bytes.extend_from_slice(&mode.to_be_bytes());
                bytes.extend_from_slice(&size.to_be_bytes());
                bytes.extend_from_slice(digest.as_bytes());
            }
            Self::Link { target } => {
                bytes.push(b'l');
                put(bytes, target);
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Self, Malformed> {
        match take_array::<1>(bytes)? {
            [b'd'] => Ok(Self::Directory { mode: u32::from_be_bytes(take_array(bytes)?) }),
            [b'f'] => Ok(Self::File {
                mode: u32::from_be_bytes(take_array(bytes)?),
                size: u64::from_be_bytes(take_array(bytes)?),
                digest: Digest::from_bytes(&take_array::<32>(bytes)?).map_err(|_| Malformed)?,
            }),
            [b'l'] => Ok(Self::Link { target: take(bytes)?.to_vec() }),
            _ => Err(Malformed),
        }
    }
}

/// Stored bytes that this service did not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored inventory is malformed")]
pub(crate) struct Malformed;

pub(crate) fn put(bytes: &mut Vec<u8>, item: &[u8]) {
    bytes.extend_from_slice(&(item.len() as u64).to_be_bytes());
    bytes.extend_from_slice(item);
}

pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(u64::from_be_bytes(take_array(bytes)?)).map_err(|_| Malformed)?;
    let (item, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    Ok(item)
}

pub(crate) fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (item, rest) = bytes.split_first_chunk::<N>().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*item)
}

#[cfg(test)]
mod tests {
    use event::Digest;

    use super::{Inventory, Node};
    use crate::tree::RelPath;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn sample() -> Inventory {
        let mut inventory = Inventory::default();
        inventory.insert(path("a"), Node::Directory { mode: 0o755 });
        inventory
            .insert(path("a/b"), Node::File { mode: 0o4644, size: 3, digest: Digest::of(b"abc") });
        inventory.insert(path("a.txt"), Node::Link { target: b"a/b".to_vec() });
        inventory.insert(path("a-b"), Node::Directory { mode: 0o700 });
        inventory
    }

    #[test]
    fn an_inventory_survives_its_encoding() {
        let inventory = sample();
        assert_eq!(Inventory::parse(&inventory.to_bytes()), Ok(inventory.clone()));
        assert!(Inventory::parse(&inventory.to_bytes()[1..]).is_err());
    }

    #[test]
    fn any_difference_changes_the_digest() {
        let mut other = sample();
        other.insert(path("a"), Node::Directory { mode: 0o750 });
        assert_ne!(other.digest(), sample().digest());
    }

    #[test]
    fn below_lists_a_directory_and_not_its_neighbours() {
        let inventory = sample();
        let directory = path("a");
        let below: Vec<_> = inventory.below(&directory).map(|(path, _)| path.clone()).collect();
        assert_eq!(below, [path("a/b")]);
        let root = RelPath::root();
        assert_eq!(inventory.below(&root).count(), 4);
    }
}
