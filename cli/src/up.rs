//! `up`: a mesh in the foreground. One line on stdout says that it is ready; a signal ends all of it.
use std::path::PathBuf;

use crate::{
    Error,
    error::Exit,
    escape,
    mesh::{self, Isolation, Mesh, Options, PolicyFiles},
    output,
    run::Interrupts,
};

const EXAMPLES: &str = "\
Examples:
  harness up --state ./mesh --script turns.yaml --workspace demo=./project --manifest task.yaml
  harness up --state ./mesh --models models.toml --workspace app=/srv/app --manifest task.yaml
  harness up --state ./mesh --ceiling /etc/harness/ceiling.yaml --approver-keys /etc/harness/approvers.yaml
  harness up --state ./mesh

The last one starts again what the directory remembers. As root, each service has its own uid.
Ceilings and approver keys are read where they are, and again when they change. A manifest is copied, so that nothing
that a run may change is one: edit the copy, STATE/gateway/manifests/ID.yaml, which each new session reads, or start again.
Stop it with Ctrl-C or SIGTERM.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of everything that is kept; made when it is not there
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// Offer a model that plays this script, under NAME or as 'scripted'
    #[arg(long, value_name = "[NAME=]FILE", value_parser = script)]
    script: Vec<(String, PathBuf)>,

    /// Offer the models of this file
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,

    /// Let sessions work on the directory DIR under NAME
    #[arg(long, value_name = "NAME=DIR", value_parser = workspace)]
    workspace: Vec<(String, PathBuf)>,

    /// Let commands read the directory DIR at /dependencies/NAME where their manifest names it
    #[arg(long, value_name = "NAME=DIR", value_parser = workspace)]
    dependency: Vec<(String, PathBuf)>,

    /// Offer a copy of a reviewed manifest, STATE/gateway/manifests/ID.yaml; the first is the default
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,

    #[command(flatten)]
    policy: PolicyFiles,

    /// Drop the ceilings and approver keys of the last start, except those that are named now
    #[arg(long)]
    forget_policy: bool,

    /// Socket of the container engine
    #[arg(long, value_name = "PATH")]
    engine_socket: Option<PathBuf>,

    /// How many started containers may wait, each for the next command of one run
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    warm_containers: u16,

    /// Run all services under your own uid, also as root
    #[arg(long)]
    one_uid: bool,
}

pub(crate) async fn up(args: Args) -> Result<Exit, Error> {
    let Args {
        state,
        script,
        models,
        workspace,
        dependency,
        manifest,
        policy,
        forget_policy,
        engine_socket,
        warm_containers,
        one_uid,
    } = args;
    let options = Options {
        engine: engine_socket,
        isolation: one_uid.then_some(Isolation::OneUid),
        workspaces: workspace,
        dependencies: dependency,
        manifests: manifest,
        scripts: script,
        models,
        policy,
        forget_policy,
        overrides: vec![mesh::warm_containers(warm_containers)],
        progress: output::progress,
        ..Options::new(mesh::beside_this_program()?)
    };
    let mut interrupts = Interrupts::listen()?;
    let mut mesh = Mesh::create(&state, &options)?;
    if !options.manifests.is_empty() {
        output::progress(&format!(
            "manifests are copied and the files that were named are not read again: edit {}/ID.yaml, which the next \
             session reads, or start again",
            mesh.layout().manifests().display()
        ));
    }
    if mesh.isolation() == Isolation::OneUid {
        output::progress("warning: all services run under one uid; run as root to keep them apart");
    }
    for lack in mesh.lacks().await? {
        output::progress(&format!("warning: {lack}"));
    }
    let ready = tokio::select! {
        ready = mesh.start() => ready?,
        () = interrupts.next() => return end(mesh, interrupts).await,
    };
    output::document("ready", &ready)?;
    let mut notices = mesh.notices();
    loop {
        tokio::select! {
            died = mesh.died() => {
                mesh.stop().await?;
                held(&mesh)?;
                return Err(died.into());
            }
            () = interrupts.next() => return end(mesh, interrupts).await,
            said = notices.next() => {
                for line in said {
                    output::say(&format!("error: {}", escape::line(&line)));
                }
            }
        }
    }
}

/// In order; a second signal ends it at once, because dropping a mesh does.
async fn end(mut mesh: Mesh, mut interrupts: Interrupts) -> Result<Exit, Error> {
    output::progress("stopping");
    tokio::select! {
        stopped = mesh.stop() => {
            stopped?;
            held(&mesh)?;
        }
        () = interrupts.next() => output::progress("stopping at once"),
    }
    Ok(Exit::Done)
}

/// A held run outlives its services; whoever wants the machine back is told how.
fn held(mesh: &Mesh) -> Result<(), Error> {
    let runs = match mesh.held()? {
        0 => return Ok(()),
        1 => "1 run is held and keeps its".to_owned(),
        more => format!("{more} runs are held and keep their"),
    };
    let state = mesh.layout().root().display().to_string();
    let command = |words: &[&str]| {
        let words = [&["harness"], words, &["--state", &state]].concat();
        manifest::exec_subject(&words.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    output::progress(&format!(
        "{runs} private copy; '{}' goes on, '{}' ends it",
        command(&["up"]),
        command(&["runs", "cleanup"])
    ));
    Ok(())
}

fn workspace(text: &str) -> Result<(String, PathBuf), mesh::Argument> {
    match text.split_once('=') {
        Some((name, dir)) if !dir.is_empty() => Ok((name.to_owned(), dir.into())),
        Some(_) | None => Err(mesh::Argument::NotNamed(text.to_owned())),
    }
}

/// A file whose path holds an equals sign is not taken apart: a name has no slash.
#[expect(clippy::unnecessary_wraps, reason = "the signature is clap's")]
fn script(text: &str) -> Result<(String, PathBuf), mesh::Argument> {
    Ok(match text.split_once('=') {
        Some((name, file)) if !name.contains('/') => (name.to_owned(), file.into()),
        Some(_) | None => ("scripted".to_owned(), text.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_the_first_equals_sign() {
        assert_eq!(workspace("demo=/a=b").unwrap(), ("demo".to_owned(), "/a=b".into()));
        assert_eq!(script("fast=x.yaml").unwrap(), ("fast".to_owned(), "x.yaml".into()));
        assert_eq!(script("./a=b.yaml").unwrap(), ("scripted".to_owned(), "./a=b.yaml".into()));
        assert!(workspace("demo").is_err());
        assert!(workspace("demo=").is_err());
    }
}
