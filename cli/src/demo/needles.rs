//! The forms in which a secret could hide in bytes: as it is, as hex, and as base64 at every alignment.
use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

#[derive(Debug)]
pub(crate) struct Needles(Vec<Vec<u8>>);

impl Needles {
    pub(crate) fn of(secret: &str) -> Self {
        let bytes = secret.as_bytes();
        let mut all = vec![
            bytes.to_vec(),
            hex::encode(bytes).into_bytes(),
            hex::encode_upper(bytes).into_bytes(),
        ];
        for shift in 0..3 {
            let shifted = [&[0; 2][..shift], bytes].concat();
            // Whole characters of the secret only: its neighbours decide the others.
            let (start, end) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
            for text in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
                all.extend(text.get(start..end).map(|part| part.as_bytes().to_vec()));
            }
        }
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    pub(crate) fn in_bytes(&self, hay: &[u8]) -> bool {
        self.0.iter().any(|needle| holds(hay, needle))
    }

    /// The regular files below `root` that hold one; follows nothing.
    pub(crate) fn in_files(&self, root: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    dirs.push(entry.path());
                } else if kind.is_file() && self.in_bytes(&fs::read(entry.path())?) {
                    found.push(entry.path());
                }
            }
        }
        Ok(found)
    }
}

fn holds(hay: &[u8], needle: &[u8]) -> bool {
    let Some((first, rest)) = needle.split_first() else { return false };
    let mut from = hay;
    while let Some(at) = from.iter().position(|byte| byte == first) {
        from = &from[at + 1..];
        if from.starts_with(rest) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form_and_place() {
        let secret = "pw-Zx8/+Qk2";
        let needles = Needles::of(secret);
        for before in ["", "a", "ab", "abc"] {
            let around = format!("{before}{secret}tail");
            for hay in [
                around.clone(),
                hex::encode(&around),
                hex::encode_upper(&around),
                STANDARD_NO_PAD.encode(&around),
                URL_SAFE_NO_PAD.encode(&around),
            ] {
                assert!(needles.in_bytes(hay.as_bytes()), "{hay}");
            }
        }
        assert!(!needles.in_bytes(b"pw-Zx8/+Qk3 and pw-Zx8/+Qk"));
    }

    #[test]
    fn files_that_hold_it_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/with"), "x needle y").unwrap();
        fs::write(dir.path().join("without"), "x y").unwrap();
        assert_eq!(
            Needles::of("needle").in_files(dir.path()).unwrap(),
            [dir.path().join("sub/with")]
        );
    }
}
