//! `patch show` and `patch export`: what an open ask would import, for people to read and for `git apply` to take. They
//! answer no ask; `patch undo` answers its own alone.
use std::{
    fs::File,
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use acp::{AttachParams, Code};
use clap::Subcommand;
use event::{
    Data, Digest,
    id::{PermissionId, RunId, SessionId},
};
use serde::Serialize;

use crate::{
    Error,
    audit::{Filter, Source},
    error::{Exit, Explain},
    escape, output,
    session::{self, Ask, Part, Session},
    target::Target,
    terminal::LEGEND,
};

mod undo;

const EXAMPLES: &str = "\
Examples:
  harness patch show --state ./mesh 0198f000-0000-7000-8000-000000000002
  harness patch show --state ./mesh --json 0198f000-0000-7000-8000-000000000002
  harness patch export --state ./mesh --output change.patch 0198f000-0000-7000-8000-000000000002

The patch is read as long as its ask is open. 'show' makes every character visible: backslashes are doubled. 'export'
writes exactly what 'git apply --binary' takes, in a repository; of modes git keeps only whether a file may be executed.
Both exit 0 when all of it was written, 1 when there is none or it can not be read, 2 when the command line is wrong.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Patch {
    /// Print what an open ask would import: every entry, then the diff
    Show {
        #[command(flatten)]
        target: Target,
        /// The run that waits; with --state also the permission that it waits for
        #[arg(value_name = "RUN|PERMISSION")]
        id: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take back what a run imported: the paths are as before it, or nothing changes
    Undo(undo::Args),
    /// Write what an open ask would import as a patch for 'git apply --binary'
    Export {
        #[command(flatten)]
        target: Target,
        /// The run that waits; with --state also the permission that it waits for
        #[arg(value_name = "RUN|PERMISSION")]
        id: String,
        /// A new file for it; without it stdout, which must not be a terminal
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("'{0}' is not an id")]
    NotAnId(String),
    #[error("no run and no open permission has the id {0}")]
    Unknown(String),
    #[error("nothing waits that would import a patch")]
    Nothing,
    #[error("can not write the diff to stdout")]
    Write(#[source] io::Error),
    #[error("several asks would import a patch")]
    Several,
    #[error("a patch is for programs, and stdout is a terminal")]
    Terminal,
    #[error("can not write {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::NotAnId(_) | Self::Several | Self::Terminal => Exit::Usage,
            Self::Unknown(_) | Self::Nothing | Self::Write(_) | Self::File(..) => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::NotAnId(_) | Self::Unknown(_) => "give the run id that 'harness run' printed",
            Self::Nothing => "a patch can be read while the run asks for patch.import",
            Self::Write(_) => "check what stdout is connected to",
            Self::Several => "give the permission's id",
            Self::Terminal => "give --output FILE, or send stdout elsewhere",
            Self::File(..) => "name a file that does not exist, in a directory that does",
        }
        .to_owned()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    permission_id: PermissionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    plan_digest: Digest,
    patch_digest: Digest,
    /// As `patch/read` describes it.
    format: acp::PatchFormat,
    text: &'a str,
}

pub(crate) async fn patch(command: Patch) -> Result<Exit, Error> {
    match command {
        Patch::Show { target, id, json } => {
            let (mut session, only) = find(&target, &id).await?;
            let shown = show(&mut session, only, json).await;
            session.leave().await;
            shown
        }
        Patch::Undo(args) => undo::undo(args).await,
        Patch::Export { target, id, output } => {
            if output.is_none() && io::stdout().is_terminal() {
                return Err(Failure::Terminal.into());
            }
            let (mut session, only) = find(&target, &id).await?;
            let exported = export(&mut session, only, output).await;
            session.leave().await;
            exported
        }
    }
}

async fn export(
    session: &mut Session,
    only: Option<PermissionId>,
    output: Option<PathBuf>,
) -> Result<Exit, Error> {
    let wanted = |ask: &Ask| only.is_none_or(|only| only == ask.permission_id);
    let mut asks = session.open_asks();
    asks.retain(|ask| ask.patch().is_some() && wanted(ask));
    let ask = match asks.as_slice() {
        [ask] => ask,
        [] => return Err(Failure::Nothing.into()),
        _ => return Err(Failure::Several.into()),
    };
    let text = whole(session, ask, acp::PatchFormat::GitV1).await?;
    match output {
        None => write(&text).map_err(Failure::Write)?,
        Some(path) => {
            let made = File::create_new(&path).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
            made.map_err(|source| Failure::File(path, source))?;
        }
    }
    Ok(Exit::Done)
}

async fn show(
    session: &mut Session,
    only: Option<PermissionId>,
    json: bool,
) -> Result<Exit, Error> {
    let wanted = |ask: &Ask| only.is_none_or(|only| only == ask.permission_id);
    let open = session.open_asks();
    let mut some = false;
    for ask in open.iter().filter(|ask| wanted(ask)) {
        let Some(patch_digest) = ask.patch() else { continue };
        some = true;
        if json {
            let text = whole(session, ask, acp::PatchFormat::V1).await?;
            output::document("patch", &document(ask, patch_digest, &text))?;
        } else {
            output::progress(&format!("permission {}, patch {patch_digest}", ask.permission_id));
            output::progress(LEGEND);
            print(session, ask).await?;
        }
    }
    if some { Ok(Exit::Done) } else { Err(Failure::Nothing.into()) }
}

fn document<'a>(ask: &Ask, patch_digest: Digest, text: &'a str) -> Document<'a> {
    Document {
        permission_id: ask.permission_id,
        run_id: ask.run_id,
        plan_digest: ask.plan_digest,
        patch_digest,
        format: acp::PatchFormat::V1,
        text,
    }
}

async fn whole(session: &Session, ask: &Ask, format: acp::PatchFormat) -> Result<String, Error> {
    let mut text = String::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = session.patch_page(ask, format, offset).await?;
        text.push_str(page.text());
        next = page.next_offset();
    }
    Ok(text)
}

/// Page by page: a patch may be larger than what should be held.
async fn print(session: &Session, ask: &Ask) -> Result<(), Error> {
    let mut next = Some(0);
    let mut ended = true;
    while let Some(offset) = next {
        let page = session.patch_page(ask, acp::PatchFormat::V1, offset).await?;
        write(&escape::block(page.text())).map_err(Failure::Write)?;
        ended = page.text().ends_with('\n') || (ended && page.text().is_empty());
        next = page.next_offset();
    }
    if !ended {
        write("\n").map_err(Failure::Write)?;
    }
    Ok(())
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The session of a run, or of a permission, which is then the only one that is looked at.
async fn find(target: &Target, id: &str) -> Result<(Session, Option<PermissionId>), Error> {
    let run = RunId::parse(id).map_err(|_| Failure::NotAnId(id.to_owned()))?;
    match Session::attach(target.connect().await?, AttachParams::run(run), Part::Watches).await {
        Ok(session) => return Ok((session, None)),
        Err(session::Error::Refused { source, .. }) if source.code == Code::SessionNotFound => {}
        Err(error) => return Err(error.into()),
    }
    let unknown = || Failure::Unknown(id.to_owned());
    let permission = PermissionId::parse(id).map_err(|_| unknown())?;
    // The gateway knows sessions and runs; who asked for what, the ledger knows.
    let of = match target.state() {
        Some(state) => asked_in(state, permission).await?,
        None => None,
    };
    let to = AttachParams::session(of.ok_or_else(unknown)?);
    Ok((Session::attach(target.connect().await?, to, Part::Watches).await?, Some(permission)))
}

async fn asked_in(state: &Path, permission: PermissionId) -> Result<Option<SessionId>, Error> {
    let ledger = Source::of_state(state.to_owned())?.open()?;
    let kind = Some("permission.requested".to_owned());
    let filter = Filter { kind, ..Filter::default() };
    let asked = ledger.all(&filter).await?;
    let found = asked.iter().rev().find(|entry| {
        let event = event::open(&entry.event).map(|event| event.data);
        matches!(event, Ok(Data::PermissionRequested(asked)) if asked.permission_id == permission)
    });
    Ok(found.and_then(|entry| SessionId::parse(&entry.session_id).ok()))
}
