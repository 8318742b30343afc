//! The plan of a command: which program of the image it would start, and every decision about it and about the
//! commands inside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use manifest::{Action, Command, Decision, ResolvedProgram, exec_subject};
use receipt::{EffectClass, Network, Plan, Snapshot, Stdin, Step};

use super::mounted::{Direct, Mounted};
use super::parts::Parts;
use super::{Planner, Stop};
use crate::engine::{self, Image, ImageError};
use crate::environment::Present;
use crate::error::Error;
use crate::image::ImageName;
use crate::program::{Layout, Program, Unread};
use crate::refusal::{Reason, Refusal, named};
use crate::tool::Tool;
use crate::tool::command::Arguments;
use crate::tree;

/// What programs look at to find the broker; one that looks elsewhere connects to nobody.
const PROXIED: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"];
/// How many checks a refusal names.
const SHOWN_CHECKS: usize = 50;

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
        let plan = match arguments {
            Arguments::Exec { argv, stdin, timeout } => {
                let plan = self.one(tool, argv, timeout).await?;
                Plan { stdin: stdin.as_deref().map(Stdin::of), ..plan }
            }
            Arguments::Batch { commands, timeout } => {
                let (plan, steps) = self.steps(tool, commands, timeout).await?;
                Plan { steps, ..plan }
            }
            Arguments::Check { name, expected, timeout } => {
                let argv = self.check(&name, expected.as_deref())?;
                Plan { check: Some(name), ..self.one(tool, argv, timeout).await? }
            }
        };
        Ok((plan, super::Prepared::Command(Prepared::Exec)))
    }

    /// The argument list of a check that the manifest names.
    fn check(&self, name: &str, expected: Option<&[String]>) -> Result<Vec<String>, Stop> {
        let checks = &self.manifest().execution.checks;
        let Some(argv) = checks.get(name) else {
            let shown: Vec<_> = checks.keys().take(SHOWN_CHECKS).cloned().collect();
            let detail = match shown.as_slice() {
                [] => "the manifest names no checks".to_owned(),
                shown => {
                    format!("the manifest names these checks: {}", named(shown, checks.len()))
                }
            };
            return Err(Refusal::new(Reason::CheckUnknown, detail).into());
        };
        if expected.is_some_and(|expected| expected != argv) {
            let detail = format!("the check is {}", exec_subject(argv));
            return Err(Refusal::new(Reason::CheckChanged, detail).into());
        }
        Ok(argv.clone())
    }

    async fn one(
        &self,
        tool: Tool,
        argv: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<Plan, Stop> {
        let (plan, mut steps) = self.steps(tool, vec![argv], timeout).await?;
        let Step { argv, program } = steps.pop().ok_or(Reason::ArgumentsInvalid)?;
        Ok(Plan { argv: Some(argv), program: Some(program), ..plan })
    }

    /// The plan without its commands, and these: each is decided as if it were alone, and the strictest effect is
    /// that of all.
    async fn steps(
        &self,
        tool: Tool,
        commands: Vec<Vec<String>>,
        timeout: Option<Duration>,
    ) -> Result<(Plan, Vec<Step>), Stop> {
        let execution = &self.manifest().execution;
        self.all_allowed(&commands)?;
        let subjects: Vec<_> = commands.iter().map(|argv| exec_subject(argv)).collect();
        let mounted = self.mounted().await?;
        let image = self.image().await?;
        let present = self.present().await?;
        let (mut decisions, mut steps) = (Vec::new(), Vec::new());
        for argv in commands {
            let name = argv.first().ok_or(Reason::ArgumentsInvalid)?;
            let program = self.program(&image, name, &present).await?;
            if program.workspace && !steps.is_empty() {
                let detail = format!(
                    "{name} is in the private copy, where the commands before it may put another: run it on its own"
                );
                return Err(Refusal::new(Reason::CommandNotAllowed, detail).into());
            }
            decisions.extend(self.decide_command(&argv, &program));
            steps.push(Step { argv, program: shown(&program) });
        }
        let mut parts = Parts::of(decisions);
        self.decide_what_is_no_longer_readable(&present, &mut parts);
        let direct = match &mounted {
            Some(mounted) => self.decide_mounts(mounted, &present, &mut parts)?,
            None => Direct::No,
        };
        let limits = self.ceilings.lower(&execution.limits, timeout);
        let network = self.network(&mut parts)?;
        let env = environment_variables(&image, limits.cpus_milli, &network);
        let mut plan = Plan {
            effect_class: effect_class(&network, direct.effect_class()),
            network,
            scopes: direct.scopes(),
            mounts: mounted.iter().flat_map(Mounted::shown).collect(),
            cwd: Some(engine::WORKSPACE.to_owned()),
            env: Some(env.keys().cloned().collect::<BTreeSet<_>>()),
            image: Some(image.id),
            limits: Some(limits),
            snapshot: Some(Snapshot {
                mounted: mounted.as_ref().map(|mounted| mounted.looked.digest),
                ..self.snapshot(&present)
            }),
            ..self.pure(tool, Action::ProcessExec, subjects.join(" && ").into())
        };
        parts.put_into(&mut plan);
        Ok((plan, steps))
    }

    fn all_allowed(&self, commands: &[Vec<String>]) -> Result<(), Stop> {
        let allowed = &self.manifest().execution.allow_commands;
        let listed = |argv: &Vec<String>| argv.first().is_some_and(|name| allowed.contains(name));
        if commands.iter().all(listed) {
            return Ok(());
        }
        let detail = format!("the manifest allows only these programs: {}", allowed.join(", "));
        Err(Refusal::new(Reason::CommandNotAllowed, detail).into())
    }

    pub(super) async fn image(&self) -> Result<Image, Stop> {
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

    pub(super) async fn program(
        &self,
        image: &Image,
        name: &str,
        present: &Present,
    ) -> Result<Program, Stop> {
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
    pub(super) fn decide_command(&self, argv: &[String], program: &Program) -> Vec<Decision> {
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
    pub(super) fn decide_what_is_no_longer_readable(&self, present: &Present, parts: &mut Parts) {
        for entry in &present.patch.not_carried {
            let taken = present.base.get(&entry.path).is_some();
            if taken && entry.reason == tree::Reason::ReadDenied {
                parts.add_at(&entry.path, &self.decide(Action::FsRead, &entry.path.to_subject()));
            }
        }
    }
}

pub(super) fn shown(program: &Program) -> receipt::Program {
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
