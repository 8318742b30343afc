//! One page of what an ask to import would write. Its place in the text is right by construction; it says nothing about
//! what the text means.
use event::Digest;
use serde::{Deserialize, Serialize};

use crate::number::Seq;
use crate::strict;
use crate::text::PatchText;

/// How the text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PatchFormat {
    /// One line of canonical JSON per entry, all of them: `{op, path, before?, after?, protected?}`, a state being
    /// `{mode, sha256}` and a path that is not UTF-8 `{"b64": …}`; an empty line; then the unified diff.
    #[serde(rename = "harness.patch-text.v1")]
    V1,
    /// What `git apply --binary` takes, after comments about what git does not carry. It lists no entries.
    #[serde(rename = "harness.patch-git.v1")]
    GitV1,
}

/// Bytes `offset..` of a patch's text, cut between characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Members", into = "Members")]
pub struct PatchPage {
    /// The digest that the ask's plan names, or that of the run's whole patch.
    pub patch_digest: Digest,
    pub format: PatchFormat,
    offset: u64,
    text: PatchText,
    more: bool,
}

impl PatchPage {
    /// `None` when the page ends where no number can tell, or promises more without having said anything.
    #[must_use]
    pub fn new(
        patch_digest: Digest,
        format: PatchFormat,
        offset: u64,
        text: PatchText,
        more: bool,
    ) -> Option<Self> {
        let page = Self { patch_digest, format, offset, text, more };
        let sound = Seq::try_from(page.end()?).is_ok() && !(more && page.text.as_str().is_empty());
        sound.then_some(page)
    }

    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Where the next page begins, if there is one.
    #[must_use]
    pub fn next_offset(&self) -> Option<u64> {
        self.end().filter(|_| self.more)
    }

    fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::try_from(self.text.as_str().len()).ok()?)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Members {
    patch_digest: Digest,
    format: PatchFormat,
    offset: u64,
    text: PatchText,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    next_offset: Option<u64>,
}

impl TryFrom<Members> for PatchPage {
    type Error = &'static str;
    fn try_from(members: Members) -> Result<Self, Self::Error> {
        let Members { patch_digest, format, offset, text, next_offset } = members;
        Self::new(patch_digest, format, offset, text, next_offset.is_some())
            .filter(|page| page.next_offset() == next_offset)
            .ok_or("nextOffset must be offset plus the bytes of a text that is not empty")
    }
}

impl From<PatchPage> for Members {
    fn from(page: PatchPage) -> Self {
        let next_offset = page.next_offset();
        let PatchPage { patch_digest, format, offset, text, more: _ } = page;
        Self { patch_digest, format, offset, text, next_offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PatchPage, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_says_where_the_next_begins_and_nothing_else_is_a_page() {
        let digest = Digest::of(b"patch");
        let members = |rest: &str| {
            format!(r#"{{"patchDigest":"{digest}","format":"harness.patch-text.v1",{rest}}}"#)
        };
        let good = members(r#""offset":3,"text":"é\n","nextOffset":6"#);
        let page = read(&good).expect("a page");
        assert_eq!((page.offset(), page.text(), page.next_offset()), (3, "é\n", Some(6)));
        assert_eq!(serde_json::to_string(&page).expect("JSON"), good);
        let last = read(&members(r#""offset":0,"text":"""#)).expect("a page");
        assert_eq!(last.next_offset(), None);
        for bad in [
            r#""offset":3,"text":"ab","nextOffset":4"#,
            r#""offset":3,"text":"ab","nextOffset":null"#,
            r#""offset":3,"text":"","nextOffset":3"#,
            r#""offset":9007199254740991,"text":"a""#,
            r#""offset":-1,"text":"a""#,
            r#""offset":0,"text":"a","more":true"#,
        ] {
            assert!(read(&members(bad)).is_err(), "{bad}");
        }
        assert!(read(&good.replace("v1", "v2")).is_err());
        let git = read(&good.replace("patch-text", "patch-git")).expect("a page");
        assert_eq!(git.format, PatchFormat::GitV1);
    }

    #[test]
    fn the_worst_page_fits_a_message() {
        let text = PatchText::new("\u{1}".repeat(crate::MAX_PATCH_TEXT)).expect("fits");
        let page = PatchPage::new(Digest::of(b"patch"), PatchFormat::GitV1, 0, text, true)
            .expect("a page");
        let message =
            crate::encode_success(&crate::RequestId::Number(i64::MAX), &page).expect("JSON");
        assert!(message.len() <= crate::MAX_DELIVERY);
        assert!(PatchText::new("a".repeat(crate::MAX_PATCH_TEXT + 1)).is_err());
    }
}
