//! Archives for tests, written by hand.

pub(crate) struct Made {
    path: String,
    flag: u8,
    mode: u32,
    link: String,
    bytes: Vec<u8>,
}

pub(crate) fn file(path: &str, mode: u32, bytes: &[u8]) -> Made {
    Made { path: path.into(), flag: b'0', mode, link: String::new(), bytes: bytes.to_vec() }
}

pub(crate) fn directory(path: &str) -> Made {
    Made { flag: b'5', ..file(path, 0o755, b"") }
}

pub(crate) fn link(path: &str, target: &str) -> Made {
    Made { flag: b'2', link: target.into(), ..file(path, 0o777, b"") }
}

pub(crate) fn hard(path: &str, target: &str) -> Made {
    Made { flag: b'1', link: target.into(), ..file(path, 0o755, b"") }
}

pub(crate) fn archive(entries: &[Made]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Made { path, flag, mode, link, bytes: content } in entries {
        if path.len() > 100 {
            put(&mut bytes, "././@LongLink", b'L', 0, "", format!("{path}\0").as_bytes());
        }
        put(&mut bytes, path, *flag, *mode, link, content);
    }
    bytes.extend_from_slice(&[0; 1024]);
    bytes
}

fn put(bytes: &mut Vec<u8>, path: &str, flag: u8, mode: u32, link: &str, content: &[u8]) {
    let mut block = [0u8; 512];
    let path = &path.as_bytes()[..path.len().min(100)];
    block[..path.len()].copy_from_slice(path);
    block[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[156] = flag;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    sum(&mut block);
    bytes.extend_from_slice(&block);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
}

pub(crate) fn sum(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}
