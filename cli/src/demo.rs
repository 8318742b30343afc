//! `demo`: a hostile repository, a scripted model, five real processes and a real container. Every field of its
//! document was observed; what could not be observed is false, and says why on stderr.
use std::{path::PathBuf, time::Instant};

use serde::Serialize;

use crate::{
    Error,
    audit::{self, Filter, Source},
    doctor::{self, Engine},
    error::{Exit, Explain},
    mesh::{self, Mesh, Options, PolicyFiles},
    output,
};

mod door;
mod evidence;
mod home;
mod host;
mod needles;
mod processes;
mod scene;
mod story;

use door::Door;
use evidence::Evidence;
use home::Home;
use processes::Processes;
use scene::Scene;
use story::{First, Second, Story};

const EXAMPLES: &str = "\
Examples:
  harness demo
  harness demo --keep
  harness demo --image harness/busybox:1 --engine-socket /var/run/docker.sock

The document goes to stdout, progress to stderr. 'make demo' builds the programs and the image first.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Keep the directory with everything in it, and say where it is
    #[arg(long)]
    keep: bool,

    /// Image of the container; it needs a shell and nc
    #[arg(long, value_name = "REF", default_value = "harness/busybox:1")]
    image: String,

    /// Socket of the container engine
    #[arg(long, value_name = "PATH", default_value = "/var/run/docker.sock")]
    engine_socket: PathBuf,

    /// How many started containers may wait, each for the next command of one run
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    warm_containers: u16,

    #[command(flatten)]
    policy: PolicyFiles,
}

/// The document `hostile-repository-demo`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    ok: bool,
    approvals: Vec<String>,
    secret_excluded: bool,
    network_denied: bool,
    host_unchanged_until_approved_import: bool,
    exactly_once_journal: bool,
    stale_host_import_blocked: bool,
    redacted_ledger: bool,
    ledger_verified: bool,
    ledger_matches_client: bool,
    service_restarts: usize,
    processes: usize,
    own_uids: bool,
    containers_left: usize,
    image_digest: String,
    ledger_entries: u64,
    ledger_head: String,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<PathBuf>,
}

/// Something that was looked at, and what was seen where it does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    what: &'static str,
    against: Option<String>,
}

impl Observed {
    pub(crate) fn that(what: &'static str, seen: Result<(), String>) -> Self {
        Self { what, against: seen.err() }
    }

    /// Whether it holds; where it does not, why is said.
    fn holds(&self) -> bool {
        match &self.against {
            None => output::progress(&format!("ok   {}", self.what)),
            Some(why) => output::progress(&format!("FAIL {}: {why}", self.what)),
        }
        self.against.is_none()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the demonstration shows a boundary that does not hold")]
struct Broken;

impl Explain for Broken {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "see the lines that begin with FAIL; 'harness demo --keep' keeps everything".to_owned()
    }
}

pub(crate) async fn demo(args: Args) -> Result<Exit, Error> {
    let Args { keep, image, engine_socket, warm_containers, policy } = args;
    let began = Instant::now();
    let engine = Engine::new(&engine_socket);
    let image = doctor::image_id(&engine, &image).await?;
    let home = Home::new(keep)?;
    output::progress(&format!("working in {}", home.path().display()));
    let door = Door::open()?;
    let scene = Scene::set(home.path(), &image, door.addr())?;
    let mut options =
        Options { policy, ..scene.mesh(&engine_socket, mesh::beside_this_program()?) };
    options.overrides.push(mesh::warm_containers(warm_containers));
    let mut mesh = Mesh::create(&scene.state(), &options)?;
    let shown = perform(&scene, &mut mesh, &door, &engine).await;
    let stopped = mesh.stop().await;
    let mut document = shown?;
    stopped?;

    let everywhere = evidence::secret_in_files(&scene);
    document.redacted_ledger &= everywhere.holds();
    document.ok &= document.redacted_ledger
        && document.processes == Mesh::SIZE
        && document.service_restarts == 2
        && document.image_digest == image;
    document.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    document.directory = keep.then(|| home.path().to_owned());
    drop(home);
    output::document("hostile-repository-demo", &document)?;
    if document.ok { Ok(Exit::Done) } else { Err(Broken.into()) }
}

async fn perform(
    scene: &Scene,
    mesh: &mut Mesh,
    door: &Door,
    engine: &Engine,
) -> Result<Document, Error> {
    mesh.start().await?;
    let mut story = Story::new(scene, mesh);
    let first = story.first().await?;
    let second = story.second().await?;
    let First { session, approvals, restarts, image, transcript, unchanged, imported } = first;
    let Second { session: stale, transcript: stale_transcript, kept } = second;

    let processes = Processes::of(mesh);
    let source = Source::of_state(scene.state())?;
    let ledger = source.open()?;
    let entries = ledger.all(&Filter::default()).await?;
    let evidence = Evidence::new(&entries)?;
    let verification = audit::verify(&ledger, &source.origin()?, None).await?;
    let sound = Observed::that(
        "ledger verified",
        verification.failure().map_or(Ok(()), |failure| Err(failure.to_string())),
    );

    let output = evidence.output(session);
    let names = evidence.containers();
    let mut left = 0;
    for name in &names {
        left += usize::from(engine.has_container(name).await?);
    }
    let seen = evidence
        .same_bytes(session, &transcript)
        .and_then(|()| evidence.same_bytes(stale, &stale_transcript));
    let checks = [
        scene.secret_excluded(&output),
        scene.network_denied(&output, door.knocks()),
        Observed::that("host unchanged until the approved import", unchanged.and(imported)),
        evidence.exactly_once(session),
        evidence.stale_import_blocked(stale, kept),
        evidence.redacted(scene, &output),
        sound,
        Observed::that("the ledger holds what the client saw", seen),
        Observed::that(
            "no container is left",
            if left == 0 { Ok(()) } else { Err(format!("{left} are")) },
        ),
    ];
    let [excluded, denied, unchanged, once, blocked, redacted, sound, same, gone] =
        checks.map(|check| check.holds());
    Ok(Document {
        ok: excluded
            && denied
            && unchanged
            && once
            && blocked
            && redacted
            && sound
            && same
            && gone
            && approvals == ["process.exec", "patch.import"],
        approvals,
        secret_excluded: excluded,
        network_denied: denied,
        host_unchanged_until_approved_import: unchanged,
        exactly_once_journal: once,
        stale_host_import_blocked: blocked,
        redacted_ledger: redacted,
        ledger_verified: sound,
        ledger_matches_client: same,
        service_restarts: restarts,
        processes: processes.count(),
        own_uids: processes.own_uids(),
        containers_left: left,
        image_digest: image,
        ledger_entries: verification.entries,
        ledger_head: verification.head.to_string(),
        duration_ms: 0,
        directory: None,
    })
}
