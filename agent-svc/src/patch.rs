//! What an open ask to import would write, and what a run would import or has imported, as text and a page at a time,
//! from the one executor that knows. It keeps nothing of it and changes nothing.

use event::Digest;
use event::id::{PermissionId, RunId};
use proto::sandbox::v1 as sandbox;
use proto::sandbox::v1::get_patch_response::Part;
use receipt::PathText;
use serde_json::{Value, json};
use tracing::warn;
use transport::{Code, Fault};

use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::Session;

/// A page at most; in a client's message each of its bytes may become six.
const PAGE: usize = 128 * 1024;
/// A page and the longest character, by which it is known that there is more.
const ENOUGH: usize = PAGE + 4;

/// Which patch is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// That of an open ask.
    Asked(PermissionId),
    /// One of the session's run: the present one or the newest that was imported, where no digest says which.
    OfRun { digest: Option<Digest>, paths: Vec<Vec<u8>> },
}

/// What sandbox-svc is asked for.
struct Wanted {
    run: RunId,
    digest: Option<Digest>,
    paths: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Of the whole patch.
    pub(crate) digest: Digest,
    pub(crate) text: String,
    pub(crate) more: bool,
}

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The complete list, then a diff for people.
    Shown,
    /// What `git apply` takes, and no list.
    Git,
}

/// The page that begins at `offset`, which must be 0 or where another ended.
pub(crate) async fn page(
    runtime: &Runtime,
    session: &Session,
    which: Which,
    form: Form,
    offset: u64,
) -> Result<Page, Refusal> {
    let Wanted { run, digest, paths } = wanted(runtime, session, which).await?;
    let written = match form {
        Form::Shown => sandbox::PatchForm::Shown,
        Form::Git => sandbox::PatchForm::Git,
    };
    let mut parts = runtime
        .peers
        .sandbox
        .patch(session.owner, run, digest, paths, written)
        .await
        .map_err(|fault| refused(session, fault))?;
    let (mut text, mut of) = (Text::from(form, offset), None);
    while !text.is_enough() {
        match parts.message().await.map_err(|status| refused(session, Fault::from(status)))? {
            Some(sandbox::GetPatchResponse { part: Some(part), patch_digest }) => {
                let found: Digest = patch_digest.parse().map_err(|_| Refusal::PatchUnreadable)?;
                if digest.or(of).is_some_and(|wanted| wanted != found) {
                    return Err(Refusal::PatchUnreadable);
                }
                of = Some(found);
                text.add(part)?;
            }
            Some(sandbox::GetPatchResponse { part: None, .. }) => {
                return Err(Refusal::PatchUnreadable);
            }
            None => {
                text.end();
                break;
            }
        }
    }
    let digest = of.ok_or(Refusal::PatchUnreadable)?;
    let (text, more) = text.into_page()?;
    Ok(Page { digest, text, more })
}

async fn wanted(runtime: &Runtime, session: &Session, which: Which) -> Result<Wanted, Refusal> {
    match which {
        Which::Asked(permission) => {
            let found = runtime.store.permission(session.owner.session, permission).await?;
            let found = found.ok_or(Refusal::PermissionNotFound)?;
            if found.standing.is_settled() {
                return Err(Refusal::PermissionResolved);
            }
            let digest = found.ask.plan.patch.ok_or(Refusal::PlanWithoutPatch)?.digest;
            Ok(Wanted { run: found.ask.run, digest: Some(digest), paths: Vec::new() })
        }
        Which::OfRun { digest, paths } => {
            let run = session.run.ok_or(Refusal::SessionWithoutRun)?;
            Ok(Wanted { run, digest, paths })
        }
    }
}

fn refused(session: &Session, fault: Fault) -> Refusal {
    warn!(session = %session.owner.session, reason = fault.reason, "the patch is not shown");
    match (fault.code, fault.reason.as_str()) {
        // The session's driver raises the fence, or gives the session up; where it is over, there is none.
        (_, "FENCE_STALE" | "SESSION_UNKNOWN") if session.outcome.is_none() => Refusal::Recovering,
        (Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted, _) => {
            Refusal::ExecutorUnavailable { executor: "sandbox-svc", fault }
        }
        (Code::Internal | Code::Unauthenticated, _) => Refusal::PatchUnreadable,
        _ => Refusal::Patch(fault),
    }
}

/// The text as it goes by; only a page of it is kept.
struct Text {
    /// Still before the page.
    skip: u64,
    kept: Vec<u8>,
    begins: u64,
    is_list_over: bool,
}

impl Text {
    fn from(form: Form, offset: u64) -> Self {
        // In git's form there is none, and so no line between it and the diff.
        let is_list_over = form == Form::Git;
        Self { skip: offset, kept: Vec::new(), begins: offset, is_list_over }
    }

    fn is_enough(&self) -> bool {
        self.kept.len() >= ENOUGH
    }

    fn add(&mut self, part: Part) -> Result<(), Refusal> {
        match part {
            Part::Entry(_) if self.is_list_over => return Err(Refusal::PatchUnreadable),
            Part::Entry(entry) => {
                let line = event::canon::to_bytes(&line(&entry));
                self.push(&line.map_err(|_| Refusal::PatchUnreadable)?);
                self.push(b"\n");
            }
            Part::Diff(bytes) => {
                self.end();
                self.push(&bytes);
            }
        }
        Ok(())
    }

    /// The list is over, whether or not a diff follows.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_list_over, true) {
            self.push(b"\n");
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= u64::try_from(skipped).unwrap_or(self.skip);
        let room = ENOUGH - self.kept.len();
        self.kept.extend(bytes[skipped..].iter().take(room));
    }

    /// The page, cut between characters, and whether anything follows it.
    fn into_page(self) -> Result<(String, bool), Refusal> {
        let Self { skip, mut kept, begins, .. } = self;
        let nowhere = Refusal::Invalid { field: "offset", expected: "must be where a page ended" };
        let more = kept.len() > PAGE;
        kept.truncate(PAGE);
        if skip > 0 || (kept.is_empty() && begins > 0) {
            return Err(nowhere);
        }
        let whole = match std::str::from_utf8(&kept) {
            Ok(_) => kept.len(),
            Err(cut) if more && cut.error_len().is_none() => cut.valid_up_to(),
            Err(_) if begins > 0 => return Err(nowhere),
            Err(_) => return Err(Refusal::PatchUnreadable),
        };
        kept.truncate(whole);
        let text = String::from_utf8(kept).map_err(|_| Refusal::PatchUnreadable)?;
        Ok((text, more))
    }
}

fn line(entry: &sandbox::PatchEntry) -> Value {
    let sandbox::PatchEntry {
        path,
        change,
        before_digest,
        after_digest,
        before_mode,
        after_mode,
        protected,
    } = entry;
    let mut line = json!({ "op": change, "path": PathText::from_bytes(path) });
    for (name, digest, mode) in
        [("before", before_digest, before_mode), ("after", after_digest, after_mode)]
    {
        if !digest.is_empty() {
            line[name] = json!({ "mode": format!("{mode:04o}"), "sha256": digest });
        }
    }
    if *protected {
        line["protected"] = true.into();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(offset: u64, parts: &[Part]) -> Result<(String, bool), Refusal> {
        let mut text = Text::from(Form::Shown, offset);
        for part in parts {
            if text.is_enough() {
                break;
            }
            text.add(part.clone())?;
        }
        if !text.is_enough() {
            text.end();
        }
        text.into_page()
    }

    fn entry(path: &[u8]) -> Part {
        Part::Entry(sandbox::PatchEntry {
            path: path.to_vec(),
            change: "create".to_owned(),
            after_digest: "sha256:00".to_owned(),
            after_mode: 0o644,
            protected: path.starts_with(b".git"),
            ..sandbox::PatchEntry::default()
        })
    }

    #[test]
    fn the_list_comes_whole_then_an_empty_line_then_the_diff() {
        let parts = [entry(b".github/a"), entry(b"\xff"), Part::Diff(b"+one\n".to_vec())];
        let expected = concat!(
            r#"{"after":{"mode":"0644","sha256":"sha256:00"},"op":"create","path":".github/a","protected":true}"#,
            "\n",
            r#"{"after":{"mode":"0644","sha256":"sha256:00"},"op":"create","path":{"b64":"/w=="}}"#,
            "\n\n+one\n"
        );
        assert_eq!(page(0, &parts).unwrap(), (expected.to_owned(), false));
        assert_eq!(page(0, &[]).unwrap(), ("\n".to_owned(), false));
    }

    #[test]
    fn pages_add_up_to_the_text_and_no_character_is_cut() {
        let piece = "é€𝄞x".repeat(60_000);
        let parts: Vec<Part> = std::iter::once(entry(b"a"))
            .chain(piece.as_bytes().chunks(65_536).map(|bytes| Part::Diff(bytes.to_vec())))
            .collect();
        let (mut read, mut pages) = (String::new(), 0);
        loop {
            let (text, more) = page(u64::try_from(read.len()).unwrap(), &parts).unwrap();
            assert!(text.len() <= PAGE && text.len() > PAGE - 4 || !more);
            read.push_str(&text);
            pages += 1;
            if !more {
                break;
            }
        }
        assert!(read.ends_with(&piece));
        assert_eq!(pages, read.len().div_ceil(PAGE));
    }

    #[test]
    fn in_gits_form_there_is_no_list() {
        let mut text = Text::from(Form::Git, 0);
        text.add(Part::Diff(b"diff --git a/a b/a\n".to_vec())).unwrap();
        assert!(matches!(text.add(entry(b"a")), Err(Refusal::PatchUnreadable)));
        text.end();
        assert_eq!(text.into_page().unwrap(), ("diff --git a/a b/a\n".to_owned(), false));
    }

    #[test]
    fn an_offset_where_no_page_ended_is_refused() {
        let parts = [Part::Diff("é".as_bytes().to_vec())];
        for offset in [2, 3, 4, u64::MAX] {
            let refused = page(offset, &parts);
            assert!(matches!(refused, Err(Refusal::Invalid { field: "offset", .. })), "{offset}");
        }
        assert_eq!(page(1, &parts).unwrap(), ("é".to_owned(), false));
    }

    #[test]
    fn what_is_out_of_order_or_no_text_is_not_shown() {
        let late = [Part::Diff(b"+".to_vec()), entry(b"a")];
        assert!(matches!(page(0, &late), Err(Refusal::PatchUnreadable)));
        assert!(matches!(page(0, &[Part::Diff(vec![0xff])]), Err(Refusal::PatchUnreadable)));
    }
}
