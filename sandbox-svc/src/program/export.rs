//! From an engine's export of an image, an archive of archives, to its names. Contents pass by; nothing of them is
//! kept but the list of layers.

use std::collections::HashMap;

use serde::Deserialize;

use super::index::{Index, Layer, TooMany};
use super::tar::{Entry, Item, Kind, NotTar, Reader};

const MANIFEST: &[u8] = b"manifest.json";
const MANIFEST_BYTES: usize = 1 << 20;
const EXPORT_BYTES: u64 = 64 << 30;
/// Entries of the outer archive: a few for each layer.
const PARTS: usize = 4_096;
const LINKS: usize = 8;

/// Why an export does not say what an image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadExport {
    #[error(transparent)]
    Tar(#[from] NotTar),
    #[error(transparent)]
    Names(#[from] TooMany),
    #[error("the export is larger than is read")]
    TooLarge,
    #[error("the export has no list of one image's layers")]
    Manifest,
    #[error("a layer is missing or compressed")]
    Layer,
}

/// What arrives, until it is all there.
#[derive(Debug, Default)]
pub(super) struct Export {
    outer: Reader,
    parts: Parts,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Parts {
    layers: HashMap<Vec<u8>, Layer>,
    /// The same layer under another name.
    links: HashMap<Vec<u8>, Vec<u8>>,
    manifest: Option<Vec<u8>>,
    open: Open,
}

#[derive(Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Manifest(Vec<u8>),
    /// A layer, if it turns out to be an archive.
    Layer {
        name: Vec<u8>,
        reader: Box<Reader>,
        layer: Layer,
    },
}

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

impl Export {
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), BadExport> {
        self.bytes += bytes.len() as u64;
        if self.bytes > EXPORT_BYTES {
            return Err(BadExport::TooLarge);
        }
        let parts = &mut self.parts;
        self.outer.feed(bytes, &mut |item| match item {
            Item::Begin(entry) => parts.begin(entry),
            Item::Bytes(bytes) => parts.take(bytes),
            Item::End => parts.end(),
        })
    }

    pub(super) fn finish(self) -> Result<Index, BadExport> {
        self.outer.end()?;
        let Parts { mut layers, links, manifest, open: _ } = self.parts;
        let listed: Vec<Listed> = manifest
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(BadExport::Manifest)?;
        let [Listed { layers: names }] = listed.as_slice() else { return Err(BadExport::Manifest) };
        let mut index = Index::default();
        for (at, name) in names.iter().enumerate() {
            let name = followed(name.as_bytes(), &links);
            // The same layer may lie under another one as well.
            let again =
                names[at + 1..].iter().any(|next| followed(next.as_bytes(), &links) == name);
            let layer = if again { layers.get(&name).cloned() } else { layers.remove(&name) };
            index.lay(layer.ok_or(BadExport::Layer)?)?;
        }
        Ok(index.without_plain_files())
    }
}

impl Parts {
    fn begin(&mut self, entry: Entry) -> Result<(), BadExport> {
        if self.layers.len() + self.links.len() > PARTS {
            return Err(BadExport::TooLarge);
        }
        self.open = match entry.kind {
            Kind::File if entry.path == MANIFEST => Open::Manifest(Vec::new()),
            Kind::File => {
                Open::Layer { name: entry.path, reader: Box::default(), layer: Layer::default() }
            }
            Kind::Link => {
                self.links.insert(entry.path.clone(), beside(&entry.path, &entry.link));
                Open::Nothing
            }
            Kind::HardLink => {
                self.links.insert(entry.path, entry.link);
                Open::Nothing
            }
            Kind::Directory | Kind::Special => Open::Nothing,
        };
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), BadExport> {
        match &mut self.open {
            Open::Nothing => Ok(()),
            Open::Manifest(held) => {
                if held.len() + bytes.len() > MANIFEST_BYTES {
                    return Err(BadExport::Manifest);
                }
                held.extend_from_slice(bytes);
                Ok(())
            }
            Open::Layer { reader, layer, .. } => {
                let read = reader.feed::<BadExport>(bytes, &mut |item| match item {
                    Item::Begin(entry) => Ok(layer.take(&entry)?),
                    Item::Bytes(_) | Item::End => Ok(()),
                });
                match read {
                    // A configuration, or a layer that is missed when it is looked for.
                    Err(BadExport::Tar(_)) if !reader.is_tar() => {
                        self.open = Open::Nothing;
                        Ok(())
                    }
                    read => read,
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), BadExport> {
        match std::mem::take(&mut self.open) {
            Open::Nothing => (),
            Open::Manifest(bytes) => self.manifest = Some(bytes),
            Open::Layer { name, reader, layer } if reader.is_tar() => {
                reader.end()?;
                self.layers.insert(name, layer);
            }
            Open::Layer { .. } => (),
        }
        Ok(())
    }
}

fn followed(name: &[u8], links: &HashMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut name = name.to_vec();
    for _ in 0..LINKS {
        match links.get(&name) {
            Some(target) => name.clone_from(target),
            None => break,
        }
    }
    name
}

/// What a link in the outer archive names, from where it stands.
fn beside(link: &[u8], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = link.split(|byte| *byte == b'/').collect();
    parts.pop();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => (),
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::{BadExport, Export};
    use crate::program::index::{Index, Node};
    use crate::program::testing::{Made, archive, file, link};

    fn read(parts: &[Made]) -> Result<Index, BadExport> {
        let mut export = Export::default();
        for bytes in archive(parts).chunks(700) {
            export.feed(bytes)?;
        }
        export.finish()
    }

    fn list(layers: &[&str]) -> Made {
        let list = serde_json::json!([{ "Config": "x.json", "RepoTags": null, "Layers": layers }]);
        file("manifest.json", 0o644, list.to_string().as_bytes())
    }

    #[test]
    fn an_export_that_lacks_something_is_refused() {
        let layer = archive(&[file("bin/sh", 0o755, b"x")]);
        let whole = || file("a/layer.tar", 0o644, &layer);
        assert_eq!(read(&[whole()]), Err(BadExport::Manifest));
        assert_eq!(read(&[list(&["b/layer.tar"]), whole()]), Err(BadExport::Layer));
        let two = file("manifest.json", 0o644, br#"[{"Layers":[]},{"Layers":[]}]"#);
        assert_eq!(read(&[two]), Err(BadExport::Manifest));
        let zipped = file("a/layer.tar", 0o644, &[0x1f; 2000]);
        assert_eq!(read(&[list(&["a/layer.tar"]), zipped]), Err(BadExport::Layer));
        let cut = file("a/layer.tar", 0o644, &layer[..700]);
        assert!(matches!(read(&[list(&["a/layer.tar"]), cut]), Err(BadExport::Tar(_))));
    }

    #[test]
    fn layers_are_laid_in_the_order_of_the_list_wherever_they_stand() {
        let base = archive(&[file("bin/a", 0o755, b"1"), file("bin/b", 0o755, b"1")]);
        let next = archive(&[file("bin/.wh.a", 0o600, b""), link("bin/c", "b")]);
        let parts = || {
            [
                file("2/layer.tar", 0o644, &next),
                file("x.json", 0o644, b"{}"),
                file("1/layer.tar", 0o644, &base),
                link("3/layer.tar", "../1/layer.tar"),
            ]
        };
        let names = |layers: &[&str]| {
            let mut parts = Vec::from(parts());
            parts.push(list(layers));
            let index = read(&parts).unwrap();
            ["bin/a", "bin/b", "bin/c"].map(|path| index.get(path).cloned())
        };
        let program = || Some(Node::Program { first: None });
        let there = Some(Node::Link("b".to_owned()));
        assert_eq!(names(&["1/layer.tar", "2/layer.tar"]), [None, program(), there.clone()]);
        assert_eq!(names(&["2/layer.tar", "3/layer.tar"]), [program(), program(), there]);
        assert_eq!(names(&["1/layer.tar", "3/layer.tar"]), [program(), program(), None]);
    }
}
