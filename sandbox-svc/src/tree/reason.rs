//! Why an entry of a tree is left out. One strange entry never fails the rest.

use crate::tree::RelPath;

/// An entry that stays where it is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotCarried {
    pub(crate) path: RelPath,
    pub(crate) reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// Named like something that holds credentials.
    SecretName,
    /// Begins like a private key.
    SecretContent,
    /// `.git` in any spelling.
    GitMetadata,
    /// The service's own files.
    ServiceState,
    /// The manifest denies reading it.
    ReadDenied,
    /// Withheld when the copy was taken, so nothing of that name goes back.
    WithheldBefore,
    /// A directory that holds something withheld stays.
    HoldsWithheld,
    /// More than one hard link.
    Linked,
    /// Neither file, directory nor symbolic link.
    Special,
    /// A file with holes.
    Sparse,
    /// Larger than the limit for one file.
    TooLarge,
    /// Changed between two looks.
    Raced,
    /// On another file system, or a mount point.
    OtherFileSystem,
    Unreadable,
    /// A symbolic link whose text leads outside.
    LinkOutside,
    /// A path too long to name.
    PathTooLong,
}

impl Reason {
    /// Stable, for callers and the record.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::SecretName => "secret_name",
            Self::SecretContent => "secret_content",
            Self::GitMetadata => "git_metadata",
            Self::ServiceState => "service_state",
            Self::ReadDenied => "read_denied",
            Self::WithheldBefore => "withheld_before",
            Self::HoldsWithheld => "holds_withheld",
            Self::Linked => "linked",
            Self::Special => "special_file",
            Self::Sparse => "sparse",
            Self::TooLarge => "too_large",
            Self::Raced => "changed_while_read",
            Self::OtherFileSystem => "other_file_system",
            Self::Unreadable => "unreadable",
            Self::LinkOutside => "link_outside",
            Self::PathTooLong => "path_too_long",
        }
    }

    const ALL: [Self; 16] = [
        Self::SecretName,
        Self::SecretContent,
        Self::GitMetadata,
        Self::ServiceState,
        Self::ReadDenied,
        Self::WithheldBefore,
        Self::HoldsWithheld,
        Self::Linked,
        Self::Special,
        Self::Sparse,
        Self::TooLarge,
        Self::Raced,
        Self::OtherFileSystem,
        Self::Unreadable,
        Self::LinkOutside,
        Self::PathTooLong,
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}
