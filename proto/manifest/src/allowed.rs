//! What an entry of `allowed_paths` may be. It compares text only; whether the path exists is the executor's to
//! find out.

use crate::execution::Mode;
use crate::fields::{Field, Reader};

pub(crate) const MAX_PATTERN: usize = 1_024;

/// Why an entry of `allowed_paths` is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadAllowedPath {
    #[error("is empty")]
    Empty,
    #[error("is absolute; write it relative to the workspace")]
    Absolute,
    #[error("has an empty, . or .. segment; write the path itself")]
    Segment,
    #[error("holds a backslash; use /")]
    Backslash,
    #[error("holds a control character")]
    Control,
    #[error("holds a comma; write one path an entry")]
    Comma,
    #[error("is longer than {MAX_PATTERN} characters")]
    TooLong,
    #[error("is the whole workspace, which mode mount does not hand out; name directories")]
    WholeWorkspace,
    #[error("cannot be mounted; with mode mount write a file, dir/ or dir/**")]
    NotMountable,
}

/// A workspace-relative path or pattern. With [`Mode::Mount`] only what a mount can express: a file, `dir/` or
/// `dir/**`.
pub fn check_allowed_path(pattern: &str, mode: Mode) -> Result<(), BadAllowedPath> {
    if pattern.is_empty() {
        return Err(BadAllowedPath::Empty);
    }
    if pattern.starts_with('/') {
        return Err(BadAllowedPath::Absolute);
    }
    if pattern.contains('\\') {
        return Err(BadAllowedPath::Backslash);
    }
    if pattern.chars().any(char::is_control) {
        return Err(BadAllowedPath::Control);
    }
    if pattern.contains(',') {
        return Err(BadAllowedPath::Comma);
    }
    if pattern.chars().count() > MAX_PATTERN {
        return Err(BadAllowedPath::TooLong);
    }
    // A final slash means the directory.
    let plain = pattern.strip_suffix('/').unwrap_or(pattern);
    if plain.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(BadAllowedPath::Segment);
    }
    match mode {
        Mode::Snapshot => Ok(()),
        Mode::Mount => mountable(pattern),
    }
}

/// A list of them, each fault told.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    mode: Mode,
    may_be_empty: bool,
) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for (item, path) in reader.each_text(field, may_be_empty)? {
        let Some(path) = path else { continue };
        if let Err(why) = check_allowed_path(&path, mode) {
            reader.fault(item.node.place, format!("{} {why}", item.path));
        }
        paths.push(path);
    }
    Some(paths)
}

fn mountable(pattern: &str) -> Result<(), BadAllowedPath> {
    let root = pattern.strip_suffix("/**").or_else(|| pattern.strip_suffix('/')).unwrap_or(pattern);
    if matches!(root, "*" | "**") {
        return Err(BadAllowedPath::WholeWorkspace);
    }
    if root.contains(['*', '?']) { Err(BadAllowedPath::NotMountable) } else { Ok(()) }
}

/// Whether an entry covers a workspace-relative path: by pattern, or `dir/` whatever is below it.
pub(crate) fn covers(entry: &str, path: &str) -> bool {
    crate::glob::matches(entry, path) || entry.ends_with('/') && path.starts_with(entry)
}
