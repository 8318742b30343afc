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

The patch of an open ask is read, or that of a run that has ended, as long as its import is kept. 'show' makes every character visible: backslashes are doubled. 'export'
writes exactly what 'git apply --binary' takes, in a repository; of modes git keeps only whether a file may be executed.
Both exit 0 when all of it was written, 1 when there is none or it can not be read, 2 when the command line is wrong.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Patch {
    /// Print what an open ask would import or a run has imported: every entry, then the diff
    Show {
        #[command(flatten)]
        target: Target,
        /// The run that waits or has ended; with --state also the permission that it waits for
        #[arg(value_name = "RUN|PERMISSION")]
        id: String,
        #[command(flatten)]
        which: Which,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take back what a run imported: the paths are as before it, or nothing changes
    Undo(undo::Args),
    /// Write what an open ask would import or a run has imported as a patch for 'git apply --binary'
    Export {
        #[command(flatten)]
        target: Target,
        /// The run that waits or has ended; with --state also the permission that it waits for
        #[arg(value_name = "RUN|PERMISSION")]
        id: String,
        #[command(flatten)]
        which: Which,
        /// A new file for it; without it stdout, which must not be a terminal
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Another patch than that of the open ask. Each needs a run's id.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// Of the run's patches the one with this digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<Digest>,
    /// Only this path of the run's patch, with what is below it and what it needs; may be given several times
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("'{0}' is not an id")]
    NotAnId(String),
    #[error("no run and no open permission has the id {0}")]
    Unknown(String),
    #[error("nothing waits that would import a patch")]
    Nothing,
    #[error("nothing is kept of what the run imported, and its private copy is gone")]
    Gone(#[source] session::Error),
    #[error("the run has no such patch")]
    NoSuch(#[source] session::Error),
    #[error("'{0}' is no path of a patch")]
    NotAPath(String),
    #[error("--digest and --path are about a run, and a permission is named")]
    OfAsk,
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
            Self::NotAnId(_)
            | Self::NotAPath(_)
            | Self::OfAsk
            | Self::NoSuch(_)
            | Self::Several
            | Self::Terminal => Exit::Usage,
            Self::Unknown(_) | Self::Nothing | Self::Gone(_) | Self::Write(_) | Self::File(..) => {
                Exit::Failed
            }
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::NotAnId(_) | Self::Unknown(_) => "give the run id that 'harness run' printed",
            Self::Nothing => "a patch can be read while the run asks for patch.import",
            Self::Gone(_) => {
                "what was imported stands in the workspace; sandbox-svc's --keep-undo says for how long it is kept"
            }
            Self::NoSuch(_) => "leave --digest and --path out to see what there is",
            Self::OfAsk => "give the run's id",
            Self::NotAPath(_) => "give a path as 'patch show' prints it",
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
    /// Of the ask, if one is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_id: Option<PermissionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_digest: Option<Digest>,
    patch_digest: Digest,
    /// As `patch/read` describes it.
    format: acp::PatchFormat,
    text: &'a str,
}

pub(crate) async fn patch(command: Patch) -> Result<Exit, Error> {
    match command {
        Patch::Show { target, id, which, json } => {
            let (mut session, only) = find(&target, &id).await?;
            let shown = show(&mut session, only, which, json).await;
            session.leave().await;
            shown
        }
        Patch::Undo(args) => undo::undo(args).await,
        Patch::Export { target, id, which, output } => {
            if output.is_none() && io::stdout().is_terminal() {
                return Err(Failure::Terminal.into());
            }
            let (mut session, only) = find(&target, &id).await?;
            let exported = export(&mut session, only, which, output).await;
            session.leave().await;
            exported
        }
    }
}

/// Whose patch is read.
enum Of {
    Ask(Box<Ask>),
    Run(Option<Digest>, Vec<acp::WorkspaceName>),
}

/// The open asks that would import; otherwise what the run is asked for by name, or has imported when it is over.
async fn meant(
    session: &mut Session,
    only: Option<PermissionId>,
    which: Which,
) -> Result<Vec<Of>, Error> {
    let Which { digest, paths } = which;
    let named = digest.is_some() || !paths.is_empty();
    let wanted = |ask: &Ask| only.is_none_or(|only| only == ask.permission_id);
    let mut asks = session.open_asks();
    asks.retain(|ask| ask.patch().is_some() && wanted(ask));
    if named && only.is_some() {
        return Err(Failure::OfAsk.into());
    }
    if !named && !asks.is_empty() {
        return Ok(asks.into_iter().map(|ask| Of::Ask(Box::new(ask))).collect());
    }
    // Also where it does not matter: the events that were before say which run it is.
    let over = session.was_over().await?;
    if named || (only.is_none() && over) {
        let path = |path: String| {
            acp::WorkspaceName::new(path.clone()).map_err(|_| Failure::NotAPath(path))
        };
        let paths = paths.into_iter().map(path).collect::<Result<_, _>>()?;
        return Ok(vec![Of::Run(digest, paths)]);
    }
    Err(Failure::Nothing.into())
}

async fn page(
    session: &Session,
    of: &Of,
    format: acp::PatchFormat,
    offset: u64,
) -> Result<acp::PatchPage, Error> {
    let (digest, paths) = match of {
        Of::Ask(ask) => return Ok(session.patch_page(ask, format, offset).await?),
        Of::Run(digest, paths) => (*digest, paths.clone()),
    };
    session.run_patch_page((digest, paths), format, offset).await.map_err(|error| {
        let says = |reason| error.says(reason);
        if says("PATCH_GONE") {
            Failure::Gone(error).into()
        } else if says("PATCH_UNKNOWN") || says("PATCH_PATH_UNKNOWN") {
            Failure::NoSuch(error).into()
        } else {
            error.into()
        }
    })
}

async fn export(
    session: &mut Session,
    only: Option<PermissionId>,
    which: Which,
    output: Option<PathBuf>,
) -> Result<Exit, Error> {
    let meant = meant(session, only, which).await?;
    let [of] = meant.as_slice() else { return Err(Failure::Several.into()) };
    let (_, text) = whole(session, of, acp::PatchFormat::GitV1).await?;
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
    which: Which,
    json: bool,
) -> Result<Exit, Error> {
    for of in meant(session, only, which).await? {
        if json {
            let (patch_digest, text) = whole(session, &of, acp::PatchFormat::V1).await?;
            output::document("patch", &document(session, &of, patch_digest, &text))?;
        } else {
            print(session, of).await?;
        }
    }
    Ok(Exit::Done)
}

fn document<'a>(session: &Session, of: &Of, patch_digest: Digest, text: &'a str) -> Document<'a> {
    let ask = match of {
        Of::Ask(ask) => Some(ask),
        Of::Run(..) => None,
    };
    Document {
        permission_id: ask.map(|ask| ask.permission_id),
        run_id: ask.map_or_else(|| session.run(), |ask| ask.run_id),
        plan_digest: ask.map(|ask| ask.plan_digest),
        patch_digest,
        format: acp::PatchFormat::V1,
        text,
    }
}

/// What follows is of the same patch, also where it is the newest and another import comes meanwhile.
fn pinned(of: Of, found: Digest) -> Of {
    match of {
        Of::Ask(ask) => Of::Ask(ask),
        Of::Run(_, paths) => Of::Run(Some(found), paths),
    }
}

async fn whole(
    session: &Session,
    of: &Of,
    format: acp::PatchFormat,
) -> Result<(Digest, String), Error> {
    let first = page(session, of, format, 0).await?;
    let (digest, mut next) = (first.patch_digest, first.next_offset());
    let mut text = first.text().to_owned();
    let of = match of {
        Of::Ask(ask) => Of::Ask(ask.clone()),
        Of::Run(_, paths) => pinned(Of::Run(None, paths.clone()), digest),
    };
    while let Some(offset) = next {
        let page = page(session, &of, format, offset).await?;
        text.push_str(page.text());
        next = page.next_offset();
    }
    Ok((digest, text))
}

/// Page by page: a patch may be larger than what should be held.
async fn print(session: &Session, of: Of) -> Result<(), Error> {
    let mut page = page(session, &of, acp::PatchFormat::V1, 0).await?;
    let digest = page.patch_digest;
    output::progress(&match &of {
        Of::Ask(ask) => format!("permission {}, patch {digest}", ask.permission_id),
        Of::Run(..) => format!("patch {digest}"),
    });
    output::progress(LEGEND);
    let of = pinned(of, digest);
    let mut ended = true;
    loop {
        write(&escape::block(page.text())).map_err(Failure::Write)?;
        ended = page.text().ends_with('\n') || (ended && page.text().is_empty());
        let Some(offset) = page.next_offset() else { break };
        page = self::page(session, &of, acp::PatchFormat::V1, offset).await?;
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
