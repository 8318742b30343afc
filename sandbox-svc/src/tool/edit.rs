//! The tools that change the private copy file by file: their names, texts and arguments. It parses; it decides
//! nothing.

use event::Digest;
use event::id::CallId;
use serde::{Deserialize, Deserializer};

use super::{Texts, decode, invalid, place};
use crate::edit::text::TextEdit;
use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Propose,
    Apply,
    Move,
    Quarantine,
    Restore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Propose { changes: Vec<Change> },
    Apply { changes: Vec<Change>, proposal: Option<Digest> },
    Move { source: RelPath, destination: RelPath, expected: Digest },
    Quarantine { path: RelPath, expected: Digest },
    Restore { id: CallId, destination: Option<RelPath>, expected: Option<Digest> },
}

/// What one file is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: RelPath,
    /// Of the file as it is; nothing for one that must not be there.
    pub(crate) expected: Option<Digest>,
    pub(crate) new: New,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum New {
    Whole(String),
    Edits(Vec<TextEdit>),
}

const CHANGES: usize = 50;
const EDITS: usize = 200;
const PREFIX: &str = "q-";

/// The schema of `changes`, for the two tools that take them.
macro_rules! with_changes {
    ($rest:literal) => {
        concat!(
            r#"{"additionalProperties":false,"properties":{"changes":{"items":{"additionalProperties":false,"properties":{"content":{"description":"the whole new file, exactly; instead of edits","type":"string"},"edits":{"description":"instead of content, on a UTF-8 file that is there; all of them are about the file as it was read and may not overlap. Either {startLine,endLine,text} or {find,replace}","items":{"additionalProperties":false,"properties":{"all":{"description":"replace every place where find is; otherwise it must be there exactly once","type":"boolean"},"endLine":{"description":"last line to replace; startLine-1 inserts before startLine","minimum":0,"type":"integer"},"find":{"description":"exact text; may span lines","minLength":1,"type":"string"},"replace":{"type":"string"},"startLine":{"description":"first line to replace, from 1; one more than the last line appends","minimum":1,"type":"integer"},"text":{"description":"the new lines; empty deletes","type":"string"}},"type":"object"},"maxItems":200,"minItems":1,"type":"array"},"expectedDigest":{"description":"digest of the file as it was read; null when it must not be there yet","type":["string","null"]},"path":{"type":"string"}},"required":["expectedDigest","path"],"type":"object"},"maxItems":50,"minItems":1,"type":"array"}"#,
            $rest,
            r#"},"required":["changes"],"type":"object"}"#
        )
    };
}

impl Tool {
    pub(super) const ALL: &[Self] =
        &[Self::Propose, Self::Apply, Self::Move, Self::Quarantine, Self::Restore];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Propose => "propose_edits",
            Self::Apply => "apply_edits",
            Self::Move => "move_file",
            Self::Quarantine => "quarantine_file",
            Self::Restore => "restore_file",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Propose => Texts {
                description: "Work out edits of up to 50 files without writing anything: the states before and after, a diff, whether the rules would allow the writes, and a proposalId for apply_edits. Prefer edits over content: they keep line endings, byte order mark and final line as they are.",
                schema: with_changes!(""),
            },
            Self::Apply => Texts {
                description: "Write edits of up to 50 files into the private copy, all or none. Takes the same changes as propose_edits; with proposalId they must come to exactly what was proposed. A file whose digest is not expectedDigest is EDIT_STALE: read it again. Missing directories are made. The workspace itself changes only by import_patch.",
                schema: with_changes!(
                    r#","proposalId":{"description":"of propose_edits","type":"string"}"#
                ),
            },
            Self::Move => Texts {
                description: "Move or rename one file of the private copy. It never overwrites: the destination must be free. Missing directories are made.",
                schema: r#"{"additionalProperties":false,"properties":{"destination":{"type":"string"},"expectedDigest":{"description":"digest of the file as it was read","type":"string"},"source":{"type":"string"}},"required":["destination","expectedDigest","source"],"type":"object"}"#,
            },
            Self::Quarantine => Texts {
                description: "Take one file out of the private copy in a way that can be undone: it is kept outside, under the quarantineId of the result, until the run ends. This is how a file is deleted.",
                schema: r#"{"additionalProperties":false,"properties":{"expectedDigest":{"description":"digest of the file as it was read","type":"string"},"path":{"type":"string"}},"required":["expectedDigest","path"],"type":"object"}"#,
            },
            Self::Restore => Texts {
                description: "Bring a quarantined file back, byte for byte and with its mode, to where it was or to destination. The place must be free.",
                schema: r#"{"additionalProperties":false,"properties":{"destination":{"description":"where it was, if absent","type":"string"},"expectedDigest":{"description":"digest that the kept file must have","type":"string"},"quarantineId":{"type":"string"}},"required":["quarantineId"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Propose => {
                let Propose { changes } = decode(bytes)?;
                Ok(Arguments::Propose { changes: self::changes(changes)? })
            }
            Self::Apply => {
                let Apply { changes, proposal_id } = decode(bytes)?;
                Ok(Arguments::Apply { changes: self::changes(changes)?, proposal: proposal_id })
            }
            Self::Move => {
                let Move { source, destination, expected_digest: expected } = decode(bytes)?;
                let (source, destination) = (file(&source)?, file(&destination)?);
                if source == destination || related(&source, &destination) {
                    return Err(invalid("source and destination must be different places"));
                }
                Ok(Arguments::Move { source, destination, expected })
            }
            Self::Quarantine => {
                let Quarantine { path, expected_digest: expected } = decode(bytes)?;
                Ok(Arguments::Quarantine { path: file(&path)?, expected })
            }
            Self::Restore => {
                let Restore { quarantine_id, destination, expected_digest: expected } =
                    decode(bytes)?;
                let id = parse_id(&quarantine_id).ok_or(Reason::QuarantineUnknown)?;
                let destination = destination.as_deref().map(file).transpose()?;
                Ok(Arguments::Restore { id, destination, expected })
            }
        }
    }
}

/// A kept file is named after the call that took it out.
pub(crate) fn id_text(call: CallId) -> String {
    format!("{PREFIX}{}", call.as_uuid().simple())
}

/// The call whose file that is.
pub(crate) fn parse_id(text: &str) -> Option<CallId> {
    let uuid = uuid::Uuid::parse_str(text.strip_prefix(PREFIX)?).ok()?;
    uuid.hyphenated().to_string().parse().ok()
}

/// A place for a file: not the tree itself.
fn file(text: &str) -> Result<RelPath, Refusal> {
    let path = place(text)?;
    if path.is_root() {
        return Err(Refusal::new(Reason::PathInvalid, "the path names no file"));
    }
    Ok(path)
}

fn related(one: &RelPath, other: &RelPath) -> bool {
    one.is_below(other) || other.is_below(one)
}

/// In path order, no file twice, and none below another.
fn changes(asked: Vec<AskedChange>) -> Result<Vec<Change>, Refusal> {
    if !(1..=CHANGES).contains(&asked.len()) {
        return Err(invalid(format!("there must be 1 to {CHANGES} changes")));
    }
    let mut changes: Vec<Change> = asked.into_iter().map(change).collect::<Result<_, _>>()?;
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    for (at, change) in changes.iter().enumerate() {
        for other in &changes[at + 1..] {
            if change.path == other.path {
                return Err(invalid(format!("{} is there twice", change.path)));
            }
            if related(&change.path, &other.path) {
                let detail = format!("{} cannot be a file and hold {}", change.path, other.path);
                return Err(invalid(detail));
            }
        }
    }
    Ok(changes)
}

fn change(asked: AskedChange) -> Result<Change, Refusal> {
    let AskedChange { path, expected_digest: expected, content, edits } = asked;
    let path = file(&path)?;
    let new = match (content, edits) {
        (Some(content), None) => New::Whole(content),
        (None, Some(_)) if expected.is_none() => {
            return Err(invalid(format!("{path}: a file that is not there has nothing to edit")));
        }
        (None, Some(edits)) if (1..=EDITS).contains(&edits.len()) => {
            New::Edits(edits.into_iter().map(edit).collect::<Result<_, _>>()?)
        }
        (None, Some(_)) => {
            return Err(invalid(format!("{path}: there must be 1 to {EDITS} edits")));
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(invalid(format!("{path}: give either content or edits")));
        }
    };
    Ok(Change { path, expected, new })
}

fn edit(asked: AskedEdit) -> Result<TextEdit, Refusal> {
    match asked {
        AskedEdit {
            start_line: Some(start),
            end_line: Some(end),
            text: Some(text),
            find: None,
            replace: None,
            all: None,
        } => Ok(TextEdit::Lines { start, end, text }),
        AskedEdit {
            start_line: None,
            end_line: None,
            text: None,
            find: Some(find),
            replace: Some(replace),
            all,
        } if !find.is_empty() => Ok(TextEdit::Find { find, replace, every: all.unwrap_or(false) }),
        _ => Err(invalid("an edit is {startLine, endLine, text} or {find, replace, all?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Propose {
    changes: Vec<AskedChange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Apply {
    changes: Vec<AskedChange>,
    proposal_id: Option<Digest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AskedChange {
    path: String,
    /// Null says something; absence says nothing.
    #[serde(deserialize_with = "there")]
    expected_digest: Option<Digest>,
    content: Option<String>,
    edits: Option<Vec<AskedEdit>>,
}

fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Digest>, D::Error> {
    Option::deserialize(deserializer)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AskedEdit {
    start_line: Option<u64>,
    end_line: Option<u64>,
    text: Option<String>,
    find: Option<String>,
    replace: Option<String>,
    all: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Move {
    source: String,
    destination: String,
    expected_digest: Digest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Quarantine {
    path: String,
    expected_digest: Digest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Restore {
    quarantine_id: String,
    destination: Option<String>,
    expected_digest: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use event::Digest;
    use event::id::CallId;
    use serde_json::json;

    use super::{Arguments, Change, New, Tool, id_text, parse_id};
    use crate::refusal::Reason;
    use crate::tree::RelPath;

    #[test]
    fn changes_say_what_they_expect_and_never_meet() {
        let digest = Digest::of(b"x").to_string();
        let whole = |path: &str| json!({ "path": path, "expectedDigest": null, "content": "x" });
        let edits = |edits| json!([{ "path": "a", "expectedDigest": digest, "edits": edits }]);
        let mut many = Vec::new();
        many.resize(51, whole("a"));
        for (changes, reason) in [
            (json!([]), Reason::ArgumentsInvalid),
            (json!(many), Reason::ArgumentsInvalid),
            (json!([whole("a"), whole("./a")]), Reason::ArgumentsInvalid),
            (json!([whole("a/b"), whole("a"), whole("a-b")]), Reason::ArgumentsInvalid),
            (json!([whole(".")]), Reason::PathInvalid),
            (json!([whole("../a")]), Reason::PathInvalid),
            (json!([{ "path": "a", "content": "x" }]), Reason::ArgumentsInvalid),
            (json!([{ "path": "a", "expectedDigest": null }]), Reason::ArgumentsInvalid),
            (
                json!([{ "path": "a", "expectedDigest": "x", "content": "" }]),
                Reason::ArgumentsInvalid,
            ),
            (
                json!([{ "path": "a", "expectedDigest": null, "edits": [{ "find": "a", "replace": "b" }] }]),
                Reason::ArgumentsInvalid,
            ),
            (edits(json!([])), Reason::ArgumentsInvalid),
            (edits(json!([{ "find": "", "replace": "" }])), Reason::ArgumentsInvalid),
            (edits(json!([{ "find": "a" }])), Reason::ArgumentsInvalid),
            (edits(json!([{ "startLine": 1, "text": "" }])), Reason::ArgumentsInvalid),
            (
                edits(json!([{ "startLine": 1, "endLine": 1, "text": "", "find": "a" }])),
                Reason::ArgumentsInvalid,
            ),
            (
                edits(json!([{ "startLine": 1, "endLine": 1, "text": "", "all": true }])),
                Reason::ArgumentsInvalid,
            ),
        ] {
            let text = json!({ "changes": changes }).to_string();
            let refused = Tool::Apply.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, reason, "{text}");
        }
        let text = json!({ "changes": [whole("b"), whole("a")] }).to_string();
        let change = |path: &[u8]| Change {
            path: RelPath::parse(path).unwrap(),
            expected: None,
            new: New::Whole("x".to_owned()),
        };
        assert_eq!(
            Tool::Propose.arguments(text.as_bytes()).unwrap(),
            Arguments::Propose { changes: vec![change(b"a"), change(b"b")] }
        );
    }

    #[test]
    fn a_kept_file_has_one_name() {
        let call = CallId::new();
        assert_eq!(parse_id(&id_text(call)), Some(call));
        for text in ["", "q-", "q-x", &call.to_string()] {
            let text = json!({ "quarantineId": text }).to_string();
            let refused = Tool::Restore.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::QuarantineUnknown, "{text}");
        }
    }
}
