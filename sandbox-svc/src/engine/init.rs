//! What every container gets from this service: its first process, carried in this program and never taken from an
//! image, and an empty list of resolvers instead of the host's. Both are written once a start, and read-only inside.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandbox-init"));
const DIRECTORY: &str = "init";
const NAME: &str = "sbx-init";
const RESOLVERS: &str = "resolv.conf";

/// Where the engine finds them.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// With the first process, and nothing else.
    pub(crate) directory: PathBuf,
    /// An engine shows a container the host's own otherwise, which is nobody's business there.
    pub(crate) resolvers: PathBuf,
}

/// Writes both below `state_dir`. Containers that run keep the files they have.
pub(crate) fn install(state_dir: &Path) -> io::Result<Installed> {
    let directory = state_dir.join(DIRECTORY);
    fs::create_dir_all(&directory)?;
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
    let resolvers = state_dir.join(RESOLVERS);
    let part = directory.join("part");
    put(&part, &directory.join(NAME), PROGRAM, 0o555)?;
    put(&part, &resolvers, b"", 0o444)?;
    Ok(Installed { directory, resolvers })
}

/// Whole or not at all.
fn put(part: &Path, place: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => (),
    }
    fs::write(part, bytes)?;
    fs::set_permissions(part, fs::Permissions::from_mode(mode))?;
    fs::rename(part, place)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use super::install;

    #[test]
    fn it_needs_nothing_of_an_image_and_runs_nothing_without_a_frame() {
        let dir = tempfile::tempdir().unwrap();
        let directory = install(dir.path()).unwrap().directory;
        let again = install(dir.path()).unwrap();
        assert_eq!(
            (&again.directory, fs::read(&again.resolvers).unwrap()),
            (&directory, Vec::new())
        );
        let program = directory.join("sbx-init");
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o555);
        let names: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(sandbox_init::PROGRAM, format!("{}/sbx-init", sandbox_init::DIRECTORY));
        // A program that asks for a loader names it in a segment of type 3.
        assert!(!segments(&fs::read(&program).unwrap()).contains(&3));
        let ended = Command::new(&program).stdin(Stdio::null()).env_clear().output().unwrap();
        assert_eq!(ended.status.code(), Some(i32::from(sandbox_init::status::NOTHING_RAN)));
        assert_eq!((ended.stdout, ended.stderr), (Vec::new(), Vec::new()));
    }

    /// Types of the program headers of a 64-bit little-endian ELF file.
    fn segments(file: &[u8]) -> Vec<u32> {
        assert_eq!(&file[..6], b"\x7fELF\x02\x01");
        let word = |at: usize| u16::from_le_bytes([file[at], file[at + 1]]);
        let (size, count) = (usize::from(word(54)), usize::from(word(56)));
        let table = usize::try_from(u64::from_le_bytes(file[32..40].try_into().unwrap())).unwrap();
        let header = |index: usize| table + index * size;
        (0..count)
            .map(|index| u32::from_le_bytes(file[header(index)..][..4].try_into().unwrap()))
            .collect()
    }
}
