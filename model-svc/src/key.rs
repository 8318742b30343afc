//! A provider's key: read once from a file that only its owner can read, shown to nobody but the provider.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

const MAX_BYTES: usize = 4 * 1024;
const OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

pub(crate) struct ProviderKey(SecretString);

/// Why a file is not taken as a key. Never says what is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("key file {}: cannot be opened; name a regular file that this user may read, not a link", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("key file {}: not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("key file {}: belongs to another user; chown it to this one", path.display())]
    Owner { path: PathBuf },
    #[error("key file {}: others may read or write it; chmod it to 0600", path.display())]
    Mode { path: PathBuf },
    #[error("key file {}: not 1 to {MAX_BYTES} printable ASCII characters on one line", path.display())]
    Content { path: PathBuf },
}

impl ProviderKey {
    pub(crate) fn read(path: &Path) -> Result<Self, Unusable> {
        let path = path.to_owned();
        let opened = |source: io::Error| Unusable::Open { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| opened(errno.into()))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| opened(errno.into()))?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(Unusable::NotAFile { path });
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(Unusable::Mode { path });
        }
        if stat.st_uid != ROOT && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Unusable::Owner { path });
        }
        // Room for the whole from the start: a buffer that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 2));
        let limit = u64::try_from(MAX_BYTES + 2).unwrap_or(u64::MAX);
        File::from(fd).take(limit).read_to_end(&mut bytes).map_err(opened)?;
        match text(&bytes) {
            Some(text) => Ok(Self(SecretString::from(text))),
            None => Err(Unusable::Content { path }),
        }
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let sound = (1..=MAX_BYTES).contains(&line.len())
        && line.iter().all(|byte| (0x21..0x7f).contains(byte));
    if sound { std::str::from_utf8(line).ok() } else { None }
}

impl std::fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProviderKey")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::{ProviderKey, Unusable};

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
            let path = self.0.path().join(format!("key-{mode:o}"));
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    #[test]
    fn one_line_of_a_private_file_is_a_key() {
        let dir = Dir::new();
        let key = ProviderKey::read(&dir.file("sk-canary\n", 0o600)).unwrap();
        assert_eq!(key.expose(), "sk-canary");
        assert_eq!(format!("{key:?}"), "ProviderKey");
        assert_eq!(ProviderKey::read(&dir.file("a", 0o400)).unwrap().expose(), "a");
    }

    #[test]
    fn a_file_that_others_can_read_or_write_is_refused() {
        let dir = Dir::new();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o610] {
            let refused = ProviderKey::read(&dir.file("sk-canary", mode)).unwrap_err();
            assert!(matches!(refused, Unusable::Mode { .. }), "{mode:o}");
            assert!(!refused.to_string().contains("canary"));
        }
    }

    #[test]
    fn links_directories_and_what_is_absent_are_refused() {
        let dir = Dir::new();
        let link = dir.0.path().join("link");
        symlink(dir.file("sk-canary", 0o600), &link).unwrap();
        assert!(matches!(ProviderKey::read(&link), Err(Unusable::Open { .. })));
        assert!(matches!(ProviderKey::read(dir.0.path()), Err(Unusable::NotAFile { .. })));
        let absent = dir.0.path().join("absent");
        assert!(matches!(ProviderKey::read(&absent), Err(Unusable::Open { .. })));
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_refused() {
        let dir = Dir::new();
        let long = "a".repeat(4_097);
        for content in ["", "\n", "two\nlines\n", "a b", "\u{e4}", "a\r\n", "a\0", &long] {
            let refused = ProviderKey::read(&dir.file(content, 0o600));
            assert!(matches!(refused, Err(Unusable::Content { .. })), "{content:?}");
        }
    }
}
