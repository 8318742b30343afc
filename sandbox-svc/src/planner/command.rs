//! The plan of a command: which program of the image it would start, and every decision about it and about the
//! commands inside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use manifest::{Action, Command, Decision, ResolvedProgram, exec_subject};
use receipt::{EffectClass, Network, Plan, Snapshot};

use super::mounted::{Direct, Mounted};
use super::parts::Parts;
use super::{Planner, Stop};
use crate::engine::{self, Image, ImageError};
use crate::environment::Present;
use crate::error::Error;
use crate::image::ImageName;
use crate::program::{Layout, Program, Unread};
use crate::refusal::{Reason, Refusal};
use crate::tool::Tool;
use crate::tool::command::Arguments;
use crate::tree;

/// What programs look at to find the broker; one that looks elsewhere connects to nobody.
const PROXIED: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"];

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    Exec,
}

impl Planner<'_> {
    pub(super) async fn command(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Exec { argv, timeout } => self.exec(tool, argv, timeout).await?,
        };
        Ok((plan, super::Prepared::Command(prepared)))
    }

    async fn exec(
        &self,
        tool: Tool,
        argv: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<(Plan, Prepared), Stop> {
        let execution = &self.manifest().execution;
        let name = argv.first().ok_or(Reason::ArgumentsInvalid)?;
        if !execution.allow_commands.contains(name) {
            let allowed = execution.allow_commands.join(", ");
            let detail = format!("the manifest allows only these programs: {allowed}");
            return Err(Refusal::new(Reason::CommandNotAllowed, detail).into());
        }
        let mounted = self.mounted().await?;
        let image = self.image().await?;
        let present = self.present().await?;
        let program = self.program(&image, name, &present).await?;
        let mut parts = Parts::of(self.decide_command(&argv, &program));
        self.decide_what_is_no_longer_readable(&present, &mut parts);
        let direct = match &mounted {
            Some(mounted) => self.decide_mounts(mounted, &present, &mut parts)?,
            None => Direct::No,
        };
        let limits = self.ceilings.lower(&execution.limits, timeout);
        let network = self.network(&mut parts)?;
        let env = environment_variables(&image, limits.cpus_milli, &network);
        let subject = exec_subject(&argv);
        let mut plan = Plan {
            effect_class: effect_class(&network, direct.effect_class()),
            network,
            scopes: direct.scopes(),
            mounts: mounted.iter().flat_map(Mounted::shown).collect(),
            argv: Some(argv),
            program: Some(shown(&program)),
            cwd: Some(engine::WORKSPACE.to_owned()),
            env: Some(env.keys().cloned().collect::<BTreeSet<_>>()),
            image: Some(image.id),
            limits: Some(limits),
            snapshot: Some(Snapshot {
                mounted: mounted.as_ref().map(|mounted| mounted.looked.digest),
                ..self.snapshot(&present)
            }),
            ..self.pure(tool, Action::ProcessExec, subject.into())
        };
        parts.put_into(&mut plan);
        Ok((plan, Prepared::Exec))
    }

    async fn image(&self) -> Result<Image, Stop> {
        let engine = self.engine.ok_or(Reason::ToolUnknown)?;
        let name = self.manifest().execution.image.as_deref().unwrap_or_default();
        let name = ImageName::parse(name).ok_or(Reason::ImageUnknown)?;
        match engine.image(&name).await {
            Ok(image) => Ok(image),
            Err(ImageError::Unknown) => Err(Reason::ImageUnknown.into()),
            Err(error @ ImageError::Refused(_)) => {
                Err(Refusal::new(Reason::ImageRefused, error).into())
            }
            Err(ImageError::Engine(error)) => {
                Err(Error::engine("the image cannot be inspected")(error).into())
            }
        }
    }

    async fn program(&self, image: &Image, name: &str, present: &Present) -> Result<Program, Stop> {
        let engine = self.engine.ok_or(Reason::ToolUnknown)?;
        let index = self.images.index(engine, image.id).await.map_err(|unread| match unread {
            Unread::Engine(error) => {
                Stop::from(Error::engine("the image cannot be exported")(error))
            }
            Unread::Export(bad) => Refusal::new(Reason::ImageUnreadable, bad).into(),
            Unread::Stopping => Error::Stopping.into(),
            Unread::Task(error) => Error::Task(error).into(),
        })?;
        let copy = &present.found.inventory;
        let layout = Layout { image: &index, copy, path: &image.path };
        layout.find(name).map_err(|error| Refusal::new(Reason::ProgramNotFound, error).into())
    }

    /// A file of several names is judged under each of them; the strictest counts.
    fn decide_command(&self, argv: &[String], program: &Program) -> Vec<Decision> {
        let resolved = |resolved: &String| ResolvedProgram {
            path: program.path.clone(),
            resolved: Some(resolved.clone()),
        };
        let mut names = vec![resolved(&program.resolved)];
        names.extend(program.others.iter().map(resolved));
        // Such a file looks at the name it is called by, and at no other.
        if let Some(many) = names.iter().find(|name| name.is_multi_call()) {
            names = vec![many.clone()];
        }
        let decide = |program: ResolvedProgram| {
            let command = Command { argv: argv.to_vec(), program: Some(program) };
            self.rulebook.decide_exec(&command)
        };
        let effect = |decisions: &Vec<Decision>| decisions.iter().map(|it| it.effect).max();
        let strictest = names.into_iter().map(decide).reduce(|strictest, next| {
            if effect(&next) > effect(&strictest) { next } else { strictest }
        });
        strictest.unwrap_or_default()
    }

    /// What a ceiling denies reading since the copy was taken is still in it: no command may see that.
    fn decide_what_is_no_longer_readable(&self, present: &Present, parts: &mut Parts) {
        for entry in &present.patch.not_carried {
            let taken = present.base.get(&entry.path).is_some();
            if taken && entry.reason == tree::Reason::ReadDenied {
                parts.add_at(&entry.path, &self.decide(Action::FsRead, &entry.path.to_subject()));
            }
        }
    }
}

fn shown(program: &Program) -> receipt::Program {
    let Program { path, resolved, workspace, others: _ } = program;
    receipt::Program {
        path: path.clone().into(),
        resolved: (resolved != path).then(|| resolved.clone().into()),
        workspace: *workspace,
    }
}

/// What is in the private copy can be thrown away; what went out over a network cannot be taken back.
fn effect_class(network: &Network, without: EffectClass) -> EffectClass {
    match network {
        Network::None => without,
        Network::Broker { .. } => EffectClass::Irreversible,
    }
}

/// Nothing of the service's own; the processors that there really are are told here.
pub(crate) fn environment_variables(
    image: &Image,
    cpus_milli: u64,
    network: &Network,
) -> BTreeMap<String, String> {
    let cpus = cpus_milli.div_ceil(1000).max(1);
    let proxied = match network {
        Network::None => &[][..],
        Network::Broker { .. } => &PROXIED,
    };
    let proxy = format!("http://127.0.0.1:{}", sandbox_init::PROXY_PORT);
    let proxied = proxied.iter().map(|name| (*name, proxy.clone()));
    [
        ("CI", "1".to_owned()),
        ("HOME", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("OMP_NUM_THREADS", cpus.to_string()),
        ("PATH", image.path.clone()),
    ]
    .into_iter()
    .chain(proxied)
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
