//! A patch in full: every entry, then the diff for people, in pieces. It reads base and copy and changes
//! nothing.

use std::sync::Arc;

use event::Digest;
use futures::stream::{self, BoxStream, StreamExt as _};
use manifest::{Protected, Rulebook};
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::get_patch_response::Part;

use crate::answer::{diff_of, op};
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::patch::{Entry, is_protected};
use crate::planner::Stop;
use crate::tree::NotCarried;

const PIECE_BYTES: usize = 64 * 1024;
const DIFF_BYTES: usize = 8 * 1024 * 1024;

type Parts = BoxStream<'static, Result<wire::GetPatchResponse, Error>>;

/// The present patch, which must be the one that is asked for.
pub(crate) async fn open(
    environment: Arc<Environment>,
    rulebook: Arc<Rulebook>,
    digest: Option<Digest>,
) -> Result<Parts, Error> {
    let (read, rules) = (environment.clone(), rulebook.clone());
    let present = tokio::task::spawn_blocking(move || read.present(&rules)).await??;
    if digest.is_some_and(|digest| digest != present.digest) {
        return Err(Error::PatchUnknown);
    }
    let entries: Vec<_> = present
        .patch
        .entries
        .iter()
        .map(|entry| Ok(entry_part(entry, rulebook.protected())))
        .collect();
    let stays = pieces(&not_carried(&present.patch.not_carried));
    let diff = Diff { environment, present, at: 0, written: 0 };
    let pieces = stream::try_unfold(diff, Diff::next).flat_map(|piece| match piece {
        Ok(text) => stream::iter(pieces(&text)).boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    });
    Ok(stream::iter(entries).chain(stream::iter(stays)).chain(pieces).boxed())
}

/// Everything that stays in the copy, a line each, before the diff of what does not.
fn not_carried(entries: &[NotCarried]) -> String {
    let line =
        |entry: &NotCarried| format!("not carried {} ({})\n", entry.path, entry.reason.as_str());
    entries.iter().map(line).collect()
}

/// One entry's diff at a time, so that a reader who leaves saves the rest.
struct Diff {
    environment: Arc<Environment>,
    present: Present,
    at: usize,
    written: usize,
}

impl Diff {
    async fn next(mut self) -> Result<Option<(String, Self)>, Error> {
        let Some(entry) = self.present.patch.entries.get(self.at).cloned() else { return Ok(None) };
        if self.written > DIFF_BYTES {
            let left = self.present.patch.entries.len() - self.at;
            self.at = self.present.patch.entries.len();
            return Ok(Some((format!("[{left} entries are not shown]\n"), self)));
        }
        let environment = self.environment.clone();
        let rendered = tokio::task::spawn_blocking(move || diff_of(&environment, &entry)).await?;
        let text = match rendered {
            Ok(text) => text,
            Err(Stop::Refused(_)) => return Err(Error::PatchUnknown),
            Err(Stop::Failed(error)) => return Err(error),
        };
        self.at += 1;
        self.written += text.len();
        Ok(Some((text, self)))
    }
}

fn pieces(text: &str) -> Vec<Result<wire::GetPatchResponse, Error>> {
    let piece = |bytes: &[u8]| Ok(response(Part::Diff(bytes.to_vec())));
    text.as_bytes().chunks(PIECE_BYTES).map(piece).collect()
}

fn entry_part(entry: &Entry, protected: &Protected) -> wire::GetPatchResponse {
    let (before, after) = (entry.change.before(), entry.change.after());
    let digest = |node: Option<&crate::tree::Node>| {
        node.map(|node| node.digest().to_string()).unwrap_or_default()
    };
    response(Part::Entry(wire::PatchEntry {
        path: entry.path.as_bytes().to_vec(),
        change: op(entry).to_owned(),
        before_digest: digest(before),
        after_digest: digest(after),
        before_mode: before.map_or(0, crate::tree::Node::mode),
        after_mode: after.map_or(0, crate::tree::Node::mode),
        protected: is_protected(protected, &entry.path),
    }))
}

fn response(part: Part) -> wire::GetPatchResponse {
    wire::GetPatchResponse { part: Some(part) }
}
