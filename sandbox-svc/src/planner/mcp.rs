//! The plan of a tool server's start, which is a command like any, and of a call, with the tool as the server defined it
//! last. What the server says of itself is shown in full and decides nothing; planning does not say a word to it.

use std::collections::BTreeSet;

use manifest::{Action, Server, exec_subject, tool_subject};
use receipt::{Effect, EffectClass, Network, Plan, ToolCall, ToolServer};

use super::command::{environment_variables, shown};
use super::parts::Parts;
use super::{Planner, Stop};
use crate::engine;
use crate::mcp::Definition;
use crate::refusal::{Reason, Refusal, named};
use crate::server::{Asked, Called};
use crate::tool::Tool;
use crate::tool::mcp::Arguments;

/// How many names a refusal tells.
const SHOWN_NAMES: usize = 50;

impl Planner<'_> {
    pub(super) async fn mcp(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, asked) = match arguments {
            Arguments::List { server, names } => self.mcp_listing(tool, server, names).await?,
            Arguments::Call { server, tool: called, arguments } => {
                let declared = self.server(&server)?;
                let definition = self.definition(&server, declared, &called)?;
                let plan = self.tool_call(tool, &server, declared, &definition).await?;
                let Definition { digest, description, hints, .. } = definition;
                let call = ToolCall {
                    tool: called.clone(),
                    definition: digest,
                    arguments: arguments.clone(),
                    description,
                    hints,
                };
                let mcp = Some(ToolServer { server: server.clone(), call: Some(call) });
                let asked = Called { server, tool: called, definition: digest, arguments };
                (Plan { mcp, ..plan }, Asked::Call(asked))
            }
        };
        Ok((plan, super::Prepared::Mcp(asked)))
    }

    /// A command of the task, but for what a server does not get: a network, dependencies, the workspace itself.
    async fn mcp_listing(
        &self,
        tool: Tool,
        server: String,
        names: Vec<String>,
    ) -> Result<(Plan, Asked), Stop> {
        let declared = self.server(&server)?;
        let argv = declared.argv.clone();
        let image = self.image().await?;
        let present = self.present().await?;
        let program = self.program(&image, &argv[0], &present).await?;
        let mut parts = Parts::of(self.decide_command(&argv, &program));
        self.decide_what_is_no_longer_readable(&present, &mut parts);
        let limits = self.limits_of(declared);
        let env = environment_variables(&image, limits.cpus_milli, &Network::None);
        let mut plan = Plan {
            effect_class: EffectClass::Staged,
            program: Some(shown(&program)),
            cwd: Some(engine::WORKSPACE.to_owned()),
            env: Some(env.keys().cloned().collect::<BTreeSet<_>>()),
            image: Some(image.id),
            limits: Some(limits),
            snapshot: Some(self.snapshot(&present)),
            mcp: Some(ToolServer { server: server.clone(), call: None }),
            ..self.pure(tool, Action::ProcessExec, exec_subject(&argv).into())
        };
        plan.argv = Some(argv);
        parts.put_into(&mut plan);
        Ok((plan, Asked::List { server, offered: declared.tools.clone(), only: names }))
    }

    /// The start was decided when it was planned; a command that is denied by now is not called on any more either.
    async fn tool_call(
        &self,
        tool: Tool,
        server: &str,
        declared: &Server,
        definition: &Definition,
    ) -> Result<Plan, Stop> {
        let subject = tool_subject(server, &definition.name);
        let image = self.image().await?;
        let present = self.present().await?;
        let program = self.program(&image, &declared.argv[0], &present).await?;
        let command = self.decide_command(&declared.argv, &program).into_iter();
        let denied = command.filter(|decision| decision.effect == Effect::Deny);
        let call = self.decide(Action::McpCall, &subject);
        let mut parts = Parts::of([call].into_iter().chain(denied));
        self.decide_what_is_no_longer_readable(&present, &mut parts);
        let mut plan = Plan {
            effect_class: EffectClass::Staged,
            limits: Some(self.limits_of(declared)),
            snapshot: Some(self.snapshot(&present)),
            ..self.pure(tool, Action::McpCall, subject.into())
        };
        parts.put_into(&mut plan);
        Ok(plan)
    }

    fn server(&self, name: &str) -> Result<&Server, Stop> {
        let servers = &self.manifest().execution.servers;
        servers.get(name).ok_or_else(|| {
            let names: Vec<_> = servers.keys().cloned().collect();
            let detail = format!("the manifest names these servers: {}", names.join(", "));
            Refusal::new(Reason::McpServerUnknown, detail).into()
        })
    }

    /// As the server listed it last, where the manifest offers it.
    fn definition(&self, server: &str, declared: &Server, tool: &str) -> Result<Definition, Stop> {
        if !declared.offers(tool) {
            let shown: Vec<_> = declared.tools.iter().take(SHOWN_NAMES).cloned().collect();
            let names = named(&shown, declared.tools.len());
            let detail = format!("the manifest offers these tools of {server}: {names}");
            return Err(Refusal::new(Reason::McpToolUnknown, detail).into());
        }
        let listed =
            self.servers.listed(self.environment.run, server).ok_or(Reason::McpNotListed)?;
        let found = listed.iter().find(|definition| definition.name == tool);
        found.cloned().ok_or_else(|| {
            let detail = format!("the server {server} does not list {tool}");
            Refusal::new(Reason::McpToolUnknown, detail).into()
        })
    }

    fn limits_of(&self, server: &Server) -> receipt::Limits {
        let wanted = &self.manifest().execution.limits;
        let limits = self.ceilings.lower(wanted, server.timeout);
        let output = server.output.map_or(limits.output, |output| output.min(limits.output));
        receipt::Limits { output, ..limits }
    }
}
