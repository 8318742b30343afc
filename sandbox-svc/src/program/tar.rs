//! Reads the headers of a tar stream as its bytes arrive, and hands contents on. It keeps no content, and what is not
//! a tar it says so of.

const BLOCK: usize = 512;
/// Long names and other extensions of one entry.
const EXTENSION_BYTES: u64 = 1 << 20;

/// One entry: names as they stand in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    /// Of links of either kind.
    pub(super) link: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Link,
    Directory,
    /// Devices and pipes.
    Special,
}

/// What a stream is made of, in its order.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Begin(Entry),
    Bytes(&'a [u8]),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTar {
    #[error("a header of the archive is malformed")]
    Header,
    #[error("a header of the archive is too long")]
    TooLong,
    #[error("the archive holds an entry of a kind that is not known")]
    Kind,
    #[error("the archive ends in the middle")]
    Short,
}

#[derive(Debug)]
pub(super) struct Reader {
    header: Vec<u8>,
    at: At,
    extended: Extended,
    /// A header was understood: it is an archive, whatever comes.
    is_tar: bool,
}

#[derive(Debug)]
enum At {
    Header,
    Content {
        left: u64,
        padding: u64,
    },
    Extension {
        kind: u8,
        left: u64,
        padding: u64,
        bytes: Vec<u8>,
    },
    Padding {
        left: u64,
    },
    /// After the first empty block.
    Over,
}

/// What extensions say of the next entry.
#[derive(Debug, Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { header: Vec::new(), at: At::Header, extended: Extended::default(), is_tar: false }
    }
}

impl Reader {
    pub(super) fn is_tar(&self) -> bool {
        self.is_tar
    }

    pub(super) fn feed<E: From<NotTar>>(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let most = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            match &mut self.at {
                At::Over => return Ok(()),
                At::Header => {
                    let taken = (BLOCK - self.header.len()).min(bytes.len());
                    self.header.extend_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    if self.header.len() == BLOCK {
                        let block = std::mem::take(&mut self.header);
                        self.begin(&block, sink)?;
                    }
                }
                At::Content { left, padding } => {
                    let taken = most(*left);
                    sink(Item::Bytes(&bytes[..taken]))?;
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        let padding = *padding;
                        self.at = after(padding);
                        sink(Item::End)?;
                    }
                }
                At::Extension { kind, left, padding, bytes: held } => {
                    let taken = most(*left);
                    held.extend_from_slice(&bytes[..taken]);
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        let (kind, padding, held) = (*kind, *padding, std::mem::take(held));
                        self.extended.take(kind, &held)?;
                        self.at = after(padding);
                    }
                }
                At::Padding { left } => {
                    let taken = most(*left);
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        self.at = At::Header;
                    }
                }
            }
        }
        Ok(())
    }

    /// The stream is over; nothing may be left open.
    pub(super) fn end(&self) -> Result<(), NotTar> {
        match self.at {
            At::Over => Ok(()),
            At::Header if self.header.is_empty() => Ok(()),
            _ => Err(NotTar::Short),
        }
    }

    fn begin<E: From<NotTar>>(
        &mut self,
        block: &[u8],
        sink: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if block.iter().all(|byte| *byte == 0) {
            self.is_tar = true;
            self.at = At::Over;
            return Ok(());
        }
        if !sums_up(block) {
            return Err(NotTar::Header.into());
        }
        self.is_tar = true;
        let stated = number(&block[124..136]).ok_or(NotTar::Header)?;
        let flag = block[156];
        if matches!(flag, b'x' | b'g' | b'L' | b'K') {
            if stated > EXTENSION_BYTES {
                return Err(NotTar::TooLong.into());
            }
            let padding = padding_of(stated);
            self.at = match stated {
                0 => At::Header,
                left => At::Extension { kind: flag, left, padding, bytes: Vec::new() },
            };
            return Ok(());
        }
        let Extended { path, link, size } = std::mem::take(&mut self.extended);
        let kind = match flag {
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Link,
            b'3' | b'4' | b'6' => Kind::Special,
            b'5' => Kind::Directory,
            _ => return Err(NotTar::Kind.into()),
        };
        let mode = number(&block[100..108]).ok_or(NotTar::Header)?;
        let path = path.unwrap_or_else(|| name(block));
        // Old archives say it with a final slash.
        let kind = if kind == Kind::File && path.ends_with(b"/") { Kind::Directory } else { kind };
        let entry = Entry {
            path,
            kind,
            mode: u32::try_from(mode & 0o7777).unwrap_or(0),
            link: link.unwrap_or_else(|| text(&block[157..257]).to_vec()),
        };
        let left = if kind == Kind::File { size.unwrap_or(stated) } else { 0 };
        sink(Item::Begin(entry))?;
        if left == 0 {
            self.at = At::Header;
            sink(Item::End)?;
        } else {
            self.at = At::Content { left, padding: padding_of(left) };
        }
        Ok(())
    }
}

impl Extended {
    fn take(&mut self, kind: u8, bytes: &[u8]) -> Result<(), NotTar> {
        match kind {
            b'L' => self.path = Some(text(bytes).to_vec()),
            b'K' => self.link = Some(text(bytes).to_vec()),
            b'x' => self.records(bytes)?,
            // What holds for the whole archive is of no concern here.
            _ => (),
        }
        Ok(())
    }

    /// `length key=value` and a line feed each; the length counts itself.
    fn records(&mut self, mut bytes: &[u8]) -> Result<(), NotTar> {
        while !bytes.is_empty() {
            let blank = bytes.iter().position(|byte| *byte == b' ').ok_or(NotTar::Header)?;
            let length = std::str::from_utf8(&bytes[..blank]).ok();
            let length = length.and_then(|text| text.parse::<usize>().ok());
            let record = length.and_then(|length| bytes.get(blank + 1..length));
            let (record, length) = record.zip(length).ok_or(NotTar::Header)?;
            let record = record.strip_suffix(b"\n").ok_or(NotTar::Header)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(NotTar::Header)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or(NotTar::Header)?);
                }
                _ => (),
            }
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

fn after(padding: u64) -> At {
    if padding == 0 { At::Header } else { At::Padding { left: padding } }
}

fn padding_of(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// Up to the first zero byte.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn name(block: &[u8]) -> Vec<u8> {
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    // GNU archives keep other things where the prefix is.
    if prefix.is_empty() || block[257..263] != *b"ustar\0" {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

/// Octal digits, or a binary number behind a set first bit.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first & 0x80 != 0 {
        let first = u64::from(*first & 0x7f);
        return rest
            .iter()
            .try_fold(first, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0u64, |sum, byte| match byte {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// The checksum is over the header with blanks in its place.
fn sums_up(block: &[u8]) -> bool {
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
        .sum();
    number(&block[148..156]) == Some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Entry, Item, Kind, NotTar, Reader};
    use crate::program::testing::{archive, directory, file, hard, link};

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<(Entry, Vec<u8>)>, NotTar> {
        let (mut reader, mut found) = (Reader::default(), Vec::<(Entry, Vec<u8>)>::new());
        for bytes in bytes.chunks(piece.max(1)) {
            reader.feed::<NotTar>(bytes, &mut |item| {
                match item {
                    Item::Begin(entry) => found.push((entry, Vec::new())),
                    Item::Bytes(bytes) => found.last_mut().unwrap().1.extend_from_slice(bytes),
                    Item::End => (),
                }
                Ok(())
            })?;
        }
        reader.end()?;
        Ok(found)
    }

    #[test]
    fn what_is_no_archive_or_ends_in_the_middle_is_refused() {
        assert_eq!(read(&[b'x'; 600], 600), Err(NotTar::Header));
        let whole = archive(&[file("a", 0o644, b"hello")]);
        assert_eq!(read(&whole[..515], 515), Err(NotTar::Short));
        assert_eq!(read(&whole[..100], 100), Err(NotTar::Short));
        let mut long = whole.clone();
        long[156] = b'L';
        crate::program::testing::sum(&mut long[..512]);
        assert!(read(&long, 7).is_ok(), "a long name that nothing follows");
    }

    #[test]
    fn entries_come_with_their_names_in_whatever_pieces() {
        let long = "d/".repeat(90) + "end";
        let whole = archive(&[
            directory("bin/"),
            file("bin/tool", 0o755, &[7; 1000]),
            link("bin/sh", "busybox"),
            hard("bin/other", "bin/tool"),
            file(&long, 0o600, b""),
        ]);
        let entry = |path: &str, kind, mode, link: &str| Entry {
            path: path.into(),
            kind,
            mode,
            link: link.into(),
        };
        let expected = vec![
            (entry("bin/", Kind::Directory, 0o755, ""), vec![]),
            (entry("bin/tool", Kind::File, 0o755, ""), vec![7; 1000]),
            (entry("bin/sh", Kind::Link, 0o777, "busybox"), vec![]),
            (entry("bin/other", Kind::HardLink, 0o755, "bin/tool"), vec![]),
            (entry(&long, Kind::File, 0o600, ""), vec![]),
        ];
        for piece in [1, 13, 512, 513, 100_000] {
            assert_eq!(read(&whole, piece), Ok(expected.clone()), "{piece}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), at in 0usize..1000, byte: u8) {
            // The answer is of no interest, that there is one is.
            drop(read(&bytes, 100));
            let mut whole = archive(&[file("a", 0o644, b"hello"), link("b", "a")]);
            let at = at % whole.len();
            whole[at] = byte;
            drop(read(&whole, 100));
        }
    }
}
