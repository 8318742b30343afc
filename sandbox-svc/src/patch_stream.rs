//! A patch in full, in pieces: every entry and a diff for people, or what `git apply` takes. It is the run's present
//! patch, or one that was imported and is kept; this reads and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use event::Digest;
use event::id::RunId;
use futures::stream::{self, BoxStream, StreamExt as _};
use manifest::{Protected, Rulebook};
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::get_patch_response::Part;

use crate::answer::{diff_with, op, read_copy};
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::patch::git::Export;
use crate::patch::{Change, Entry, Patch, is_protected};
use crate::planner::Stop;
use crate::sandbox::Sandbox;
use crate::session::Session;
use crate::store::{StoreError, UndoRow};
use crate::tool::{Arguments, Tool, patch};
use crate::tree::{Blobs, Node, NotCarried, RelPath};

const PIECE_BYTES: usize = 64 * 1024;
const DIFF_BYTES: usize = 8 * 1024 * 1024;

type Parts = BoxStream<'static, Result<wire::GetPatchResponse, Error>>;

/// Which patch of a run, which part of it, and how it is written.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) run: RunId,
    pub(crate) digest: Option<Digest>,
    pub(crate) paths: BTreeSet<RelPath>,
    pub(crate) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every entry, then a diff for people.
    Shown,
    /// What `git apply` takes, and nothing else.
    Git,
}

/// Where the bytes of a patch are.
#[derive(Debug, Clone)]
enum Bytes {
    Environment(Arc<Environment>),
    /// Of an import that was kept.
    Record(PathBuf),
}

struct Found {
    patch: Patch,
    bytes: Bytes,
}

/// The patch that is asked for: the present one or a part that was planned, or one that was imported and is kept.
pub(crate) async fn open(
    sandbox: &Sandbox,
    session: &Session,
    wanted: Wanted,
) -> Result<Parts, Error> {
    let rulebook = sandbox.sessions.rulebook(session)?;
    let Found { patch, bytes } = find(sandbox, session, &rulebook, &wanted).await?;
    let digest = patch.digest().to_string();
    let patch = match wanted.paths.is_empty() {
        true => patch,
        false => patch.select(&wanted.paths).map_err(|_| Error::PatchPathUnknown)?,
    };
    let patch = Arc::new(patch);
    let parts = match wanted.form {
        Form::Shown => shown(patch, bytes, &rulebook),
        Form::Git => exported(patch, bytes),
    };
    // Where there is nothing to say, it is still said of which patch.
    let parts = parts.chain(stream::iter([Ok(response(Part::Diff(Vec::new())))]));
    let of = move |part| wire::GetPatchResponse { patch_digest: digest.clone(), ..part };
    Ok(parts.map(move |part| part.map(&of)).boxed())
}

async fn find(
    sandbox: &Sandbox,
    session: &Session,
    rulebook: &Arc<Rulebook>,
    wanted: &Wanted,
) -> Result<Found, Error> {
    let open = sandbox.environment(session.id, wanted.run);
    if let Some(environment) = &open {
        let (read, rules) = (environment.clone(), rulebook.clone());
        let present = tokio::task::spawn_blocking(move || read.present(&rules)).await??;
        let bytes = Bytes::Environment(environment.clone());
        if wanted.digest.is_none_or(|digest| digest == present.digest) {
            return Ok(Found { patch: (*present.patch).clone(), bytes });
        }
        if let Some(found) = planned(sandbox, session, wanted, &present, bytes).await? {
            return Ok(found);
        }
    }
    let rows = sandbox.store.undo_rows(wanted.run, wanted.digest).await?;
    match rows.into_iter().find(|row| row.session == session.id) {
        Some(row) => Ok(of_record(sandbox, &row, row.patch.clone())),
        None if open.is_some() => Err(Error::PatchUnknown),
        None => Err(Error::PatchGone),
    }
}

/// What a plan of the run names by that digest: a part of the present patch, or an import that is taken back.
async fn planned(
    sandbox: &Sandbox,
    session: &Session,
    wanted: &Wanted,
    present: &Present,
    bytes: Bytes,
) -> Result<Option<Found>, Error> {
    for row in sandbox.store.plans(wanted.run).await? {
        let names = |plan: &receipt::Plan| plan.patch.as_ref().map(|patch| patch.digest);
        let plan = receipt::Plan::parse(&row.bytes)
            .map_err(|_| Error::Store(StoreError::Malformed("plan")))?;
        if row.session != session.id || names(&plan) != wanted.digest {
            continue;
        }
        let tool = Tool::parse(&row.tool, &session.manifest.execution);
        match tool.and_then(|tool| tool.arguments(&row.arguments)) {
            Ok(Arguments::Patch(patch::Arguments::Import(choice))) => {
                let part = present.patch.select(&choice.paths).ok();
                if let Some(patch) = part.filter(|part| Some(part.digest()) == wanted.digest) {
                    return Ok(Some(Found { patch, bytes }));
                }
            }
            Ok(Arguments::Patch(patch::Arguments::Undo { run, digest })) => {
                let rows = sandbox.store.undo_rows(run, digest).await?;
                let reversed = rows.iter().map(|row| (row, row.patch.reversed()));
                let mut meant = reversed.filter(|(_, patch)| Some(patch.digest()) == wanted.digest);
                if let Some((row, patch)) = meant.next()
                    && row.tenant == session.grant.tenant
                {
                    return Ok(Some(of_record(sandbox, row, patch)));
                }
            }
            Ok(_) | Err(_) => (),
        }
    }
    Ok(None)
}

fn of_record(sandbox: &Sandbox, row: &UndoRow, patch: Patch) -> Found {
    Found { patch, bytes: Bytes::Record(sandbox.undo.place(row.call)) }
}

fn shown(patch: Arc<Patch>, bytes: Bytes, rulebook: &Rulebook) -> Parts {
    let entries: Vec<_> =
        patch.entries.iter().map(|entry| Ok(entry_part(entry, rulebook.protected()))).collect();
    let stays = pieces(&not_carried(&patch.not_carried));
    let diff = Diff { bytes, moved: moved(&patch), patch, at: 0, written: 0 };
    let pieces = stream::try_unfold(diff, Diff::next).flat_map(flat);
    stream::iter(entries).chain(stream::iter(stays)).chain(pieces).boxed()
}

fn exported(patch: Arc<Patch>, bytes: Bytes) -> Parts {
    let preamble = pieces(&Export::of(&patch.entries).preamble());
    let next = |(patch, bytes, at): (Arc<Patch>, Bytes, usize)| async move {
        let rendered = tokio::task::spawn_blocking(move || {
            let mut read = |path: &RelPath, node: &Node| bytes.read(path, node);
            let text = Export::of(&patch.entries).render(at, &mut read);
            text.map(|text| text.map(|text| (text, (patch, bytes, at + 1))))
        });
        rendered.await?
    };
    let diffs = stream::try_unfold((patch, bytes, 0), next).flat_map(flat);
    stream::iter(preamble).chain(diffs).boxed()
}

fn flat(piece: Result<String, Error>) -> BoxStream<'static, Result<wire::GetPatchResponse, Error>> {
    match piece {
        Ok(text) => stream::iter(pieces(&text)).boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    }
}

impl Bytes {
    /// Exactly what the entry says, or nothing. Blocks.
    fn read(&self, path: &RelPath, node: &Node) -> Result<Vec<u8>, Error> {
        let blobs = |place: &Path| {
            let failed = Error::file("the kept bytes cannot be opened below", place);
            let blobs = Blobs::open(place).map_err(failed)?;
            Ok(blobs.read(node.digest(), node.size())?)
        };
        match self {
            Self::Record(place) => blobs(place),
            Self::Environment(environment) => match environment.base().get(path) {
                Some(was) if was.digest() == node.digest() && was.size() == node.size() => {
                    blobs(&environment.place.blobs())
                }
                Some(_) | None => read_copy(environment, path, node).map_err(told),
            },
        }
    }
}

fn told(stop: Stop) -> Error {
    match stop {
        Stop::Refused(_) => Error::PatchUnknown,
        Stop::Failed(error) => error,
    }
}

/// Everything that stays in the copy, a line each, before the diff of what does not.
fn not_carried(entries: &[NotCarried]) -> String {
    let line =
        |entry: &NotCarried| format!("not carried {} ({})\n", entry.path, entry.reason.as_str());
    entries.iter().map(line).collect()
}

/// One entry's diff at a time, so that a reader who leaves saves the rest.
struct Diff {
    bytes: Bytes,
    /// Where what is gone went, and that nothing is to be read at its new place.
    moved: BTreeMap<RelPath, Moved>,
    patch: Arc<Patch>,
    at: usize,
    written: usize,
}

enum Moved {
    To(RelPath),
    Here,
}

/// What is the very same in another place, for people: the patch has it as gone and made.
fn moved(patch: &Patch) -> BTreeMap<RelPath, Moved> {
    let node = |path: &RelPath, of: fn(&Change) -> Option<&Node>| {
        patch.entries.iter().filter(|entry| entry.path == *path).find_map(|entry| of(&entry.change))
    };
    let export = Export::of(&patch.entries);
    let same =
        export.renamed().filter(|(from, to)| node(from, Change::before) == node(to, Change::after));
    let both = same
        .flat_map(|(from, to)| [(from.clone(), Moved::To(to.clone())), (to.clone(), Moved::Here)]);
    both.collect()
}

impl Diff {
    async fn next(mut self) -> Result<Option<(String, Self)>, Error> {
        let Some(entry) = self.patch.entries.get(self.at).cloned() else { return Ok(None) };
        if self.written > DIFF_BYTES {
            let left = self.patch.entries.len() - self.at;
            self.at = self.patch.entries.len();
            return Ok(Some((format!("[{left} entries are not shown]\n"), self)));
        }
        let text = match self.moved.get(&entry.path) {
            Some(Moved::To(to)) => {
                let from = &entry.path;
                format!("diff a/{from} b/{to}\nrename from {from}\nrename to {to}\n")
            }
            Some(Moved::Here) => String::new(),
            None => {
                let bytes = self.bytes.clone();
                let rendered = tokio::task::spawn_blocking(move || {
                    diff_with(&entry, &mut |path, node| bytes.read(path, node))
                });
                rendered.await??
            }
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
    let digest =
        |node: Option<&Node>| node.map(|node| node.digest().to_string()).unwrap_or_default();
    response(Part::Entry(wire::PatchEntry {
        path: entry.path.as_bytes().to_vec(),
        change: op(entry).to_owned(),
        before_digest: digest(before),
        after_digest: digest(after),
        before_mode: before.map_or(0, Node::mode),
        after_mode: after.map_or(0, Node::mode),
        protected: is_protected(protected, &entry.path),
    }))
}

fn response(part: Part) -> wire::GetPatchResponse {
    wire::GetPatchResponse { part: Some(part), patch_digest: String::new() }
}
