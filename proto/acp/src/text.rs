//! Strings whose length in bytes is part of their type. They are never trimmed, folded or cut.
use std::fmt;

use serde::{Deserialize, Serialize};

/// A string of `MIN` to `MAX` bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<const MIN: usize, const MAX: usize>(
    #[serde(deserialize_with = "bounded::<_, MIN, MAX>")] String,
);

/// An id as a client writes it. Whether it names anything is found out later, and an id that cannot exist is
/// answered like one that does not.
pub type Id = Text<1, { crate::limit::MAX_ID }>;
pub type ProtocolVersion = Text<1, 128>;
pub type ClientName = Text<1, 128>;
pub type Version = Text<0, 64>;
pub type WorkspaceName = Text<1, 4096>;
pub type ModelName = Text<1, 256>;
pub type Content = Text<1, { crate::limit::MAX_CONTENT }>;
pub type Note = Text<0, 4096>;
pub type ActionName = Text<1, 64>;
/// What a standing allow is about, for people.
pub type SubjectText = Text<0, 512>;
pub type Person = Text<1, 256>;
pub type PatchText = Text<0, { crate::limit::MAX_PATCH_TEXT }>;
pub type FinalText = Text<0, { crate::limit::MAX_FINAL_TEXT }>;

/// The text is shorter or longer than its place allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have {min} to {max} bytes, has {found}")]
pub struct Length {
    pub min: usize,
    pub max: usize,
    pub found: usize,
}

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    pub fn new(text: impl Into<String>) -> Result<Self, Length> {
        let text = text.into();
        match (MIN..=MAX).contains(&text.len()) {
            true => Ok(Self(text)),
            false => Err(Length { min: MIN, max: MAX, found: text.len() }),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

fn bounded<'de, D, const MIN: usize, const MAX: usize>(source: D) -> Result<String, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let text = String::deserialize(source)?;
    Text::<MIN, MAX>::new(text).map(Text::into_string).map_err(serde::de::Error::custom)
}

/// Texts hold prompts and notes: their length may be logged, their content may not.
impl<const MIN: usize, const MAX: usize> fmt::Debug for Text<MIN, MAX> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Text({} bytes)", self.0.len())
    }
}

impl From<event::id::SessionId> for Id {
    fn from(id: event::id::SessionId) -> Self {
        Self(id.to_string())
    }
}
impl From<event::id::RunId> for Id {
    fn from(id: event::id::RunId) -> Self {
        Self(id.to_string())
    }
}
impl From<event::id::ReceiptId> for Id {
    fn from(id: event::id::ReceiptId) -> Self {
        Self(id.to_string())
    }
}
impl From<event::id::PermissionId> for Id {
    fn from(id: event::id::PermissionId) -> Self {
        Self(id.to_string())
    }
}

/// The id of a reviewed manifest: lower-case words of letters and digits, joined by single hyphens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TaskId(String);

/// The text is not a task id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be at most 128 bytes of lower-case letters and digits in words joined by single hyphens"
)]
pub struct NotKebab;

impl TaskId {
    pub fn new(text: impl Into<String>) -> Result<Self, NotKebab> {
        let text = text.into();
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match text.len() <= 128 && text.split('-').all(word) {
            true => Ok(Self(text)),
            false => Err(NotKebab),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_counts_bytes_not_characters() {
        assert_eq!(Text::<1, 4>::new("éé").map(Text::into_string), Ok("éé".to_owned()));
        assert_eq!(
            Text::<1, 4>::new("ééx").map(Text::into_string),
            Err(Length { min: 1, max: 4, found: 5 })
        );
        assert_eq!(
            Text::<1, 4>::new("").map(Text::into_string),
            Err(Length { min: 1, max: 4, found: 0 })
        );
    }

    #[test]
    fn a_task_id_is_kebab_case() {
        for good in ["a", "a1", "fix-tests", "7-of-9"] {
            assert_eq!(TaskId::new(good).as_ref().map(TaskId::as_str), Ok(good));
        }
        for bad in ["", "-", "a-", "-a", "a--b", "A", "a_b", "a/b", "..", "a b", "é"] {
            assert_eq!(TaskId::new(bad), Err(NotKebab), "{bad:?}");
        }
        assert_eq!(TaskId::new("a".repeat(129)), Err(NotKebab));
    }

    #[test]
    fn debug_output_never_shows_the_text() {
        let text = Content::new("the prompt").expect("fits");
        assert_eq!(format!("{text:?}"), "Text(10 bytes)");
    }
}
