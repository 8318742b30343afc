//! One call that concerns a tool server: it goes on, is asked, and stands still again before anybody is told. What it
//! answers is passed on as what it is, the word of a stranger; a server that fails once is not asked again.

use std::sync::Arc;
use std::time::Duration;

use event::{CallStatus, Digest, SandboxStatus};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::finished::Outcome as End;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::warn;
use transport::Chain;

use super::start::NotStarted;
use super::{Leased, Running};
use crate::answer;
use crate::engine::Docker;
use crate::environment::Environment;
use crate::exec::Unsettled;
use crate::mcp::{self, Broken, Definition, Failure};
use crate::planner::Stop;
use crate::refusal::{Reason, Refusal, named};
use crate::report::{Report, canceled, done, not_done};
use crate::sandbox::Sandbox;
use crate::session::{Session, now_ms};
use crate::store::ExecutionRow;

/// Of definitions in one list; the names of the others are told.
const LISTED_BYTES: usize = 128 * 1024;
const SHOWN_NAMES: usize = 50;

/// What a plan has worked out.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// All that the manifest offers, or these.
    List {
        server: String,
        offered: Vec<String>,
        only: Vec<String>,
    },
    Call(Called),
}

/// A tool as it was defined when the call was planned, and what it is called with.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) definition: Digest,
    pub(crate) arguments: Map<String, Value>,
}

/// A call that is being carried out.
pub(crate) struct Ask<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) engine: &'a Docker,
    pub(crate) session: &'a Session,
    pub(crate) environment: &'a Arc<Environment>,
    pub(crate) row: &'a ExecutionRow,
    pub(crate) plan: &'a receipt::Plan,
    pub(crate) live: &'a crate::live::Live,
    pub(crate) limits: receipt::Limits,
}

/// What came of asking.
enum Came {
    /// The server is as good as before.
    Good(Report),
    /// It is not to be asked again.
    Bad(Report),
}

impl Ask<'_> {
    pub(crate) async fn carry_out(&self, asked: &Asked) -> Result<Report, Unsettled> {
        self.sandbox.store.note_under_way(self.row.plan.call, now_ms()).await?;
        self.sandbox.failpoint.hit("server-under-way")?;
        self.environment.forget_seen();
        let report = match asked {
            Asked::List { server, offered, only } => self.list(server, offered, only).await,
            Asked::Call(called) => self.call(called).await,
        };
        self.environment.forget_seen();
        report
    }

    pub(super) fn talk(&self) -> mcp::Limits {
        let until = Instant::now() + Duration::from_millis(self.limits.time_ms);
        mcp::Limits { until, output: self.limits.output }
    }

    async fn list(
        &self,
        server: &str,
        offered: &[String],
        only: &[String],
    ) -> Result<Report, Unsettled> {
        let (mut running, leased, fresh) = match self.awake(server).await? {
            Some((running, leased)) => (running, leased, false),
            None => match self.start().await? {
                Ok((running, leased)) => (running, leased, true),
                Err(why) => return Ok(self.not_started(why)),
            },
        };
        let came = match running.client.tools(self.talk(), &self.live.cancel).await {
            Ok(listed) => {
                running.listed = listed.into();
                let told = told(server, fresh, &running.listed, offered, only);
                Came::Good(reported(&told)?)
            }
            Err(failure) => self.came_of(&running, failure),
        };
        self.settle(server, running, leased, came).await
    }

    async fn call(&self, called: &Called) -> Result<Report, Unsettled> {
        let Some((mut running, leased)) = self.awake(&called.server).await? else {
            let detail = "the server has ended and nothing was called; call mcp_tools to start it \
                          again, then call again";
            return Ok(not_done(Refusal::new(Reason::McpNotListed, detail)));
        };
        let came = self.ask(&mut running, called).await?;
        self.settle(&called.server, running, leased, came).await
    }

    /// A server that goes on from where it stood; nothing where none stands any more.
    async fn awake(&self, server: &str) -> Result<Option<(Running, Leased)>, Unsettled> {
        let taken = self.sandbox.servers.take(self.environment.run, server);
        let Some((running, leased)) = taken else { return Ok(None) };
        match self.engine.thaw(&running.id).await {
            Ok(true) => return Ok(Some((running, leased))),
            Ok(false) => (),
            Err(error) => {
                warn!(call = %self.row.plan.call, error = %Chain(&error), "a tool server does not go on");
            }
        }
        self.sandbox.end_server(running, leased, SandboxStatus::Failed).await?;
        Ok(None)
    }

    /// Asks for the list first: what was approved is called, or nothing.
    async fn ask(&self, running: &mut Running, called: &Called) -> Result<Came, Unsettled> {
        let Called { server, tool, definition, arguments } = called;
        let (limits, cancel) = (self.talk(), &self.live.cancel);
        match running.client.tools(limits, cancel).await {
            Ok(listed) => running.listed = listed.into(),
            Err(failure) => return Ok(self.came_of(running, failure)),
        }
        let now = running.listed.iter().find(|listed| listed.name == *tool);
        if now.map(|listed| listed.digest) != Some(*definition) {
            let detail = match now {
                Some(_) => {
                    "the server defines the tool otherwise than when the call was planned, so it \
                     was not called; call it again to have it decided as it is now"
                }
                None => "the server does not list the tool any more, so it was not called",
            };
            return Ok(Came::Good(not_done(Refusal::new(Reason::McpToolChanged, detail))));
        }
        self.sandbox.failpoint.hit("server-asked")?;
        let answered = running.client.call(tool, arguments.clone(), limits, cancel).await;
        self.sandbox.failpoint.hit("server-answered")?;
        match answered {
            Ok(result) => Ok(Came::Good(reported(&mcp::told(server, tool, &result))?)),
            Err(failure) => Ok(self.came_of(running, failure)),
        }
    }

    /// It stands still, or it is gone, before anybody hears of the call.
    async fn settle(
        &self,
        server: &str,
        running: Running,
        leased: Leased,
        came: Came,
    ) -> Result<Report, Unsettled> {
        let report = match came {
            Came::Good(mut report) => match self.engine.freeze(&running.id).await {
                Ok(true) => {
                    let key = (self.environment.run, server.to_owned());
                    if let Err(late) = self.sandbox.servers.put_back(key, running, leased) {
                        let (running, leased) = *late;
                        self.sandbox.end_server(running, leased, SandboxStatus::Completed).await?;
                    }
                    return Ok(report);
                }
                Ok(false) => {
                    told_too(&mut report, "it ended by itself; call mcp_tools to start it again")?;
                    report
                }
                Err(error) => {
                    warn!(call = %self.row.plan.call, error = %Chain(&error), "a tool server does not stand still");
                    told_too(
                        &mut report,
                        "it could not be made to stand still and was ended; call mcp_tools to start it again",
                    )?;
                    report
                }
            },
            Came::Bad(report) => report,
        };
        let status = match report.status {
            CallStatus::Canceled => SandboxStatus::Canceled,
            CallStatus::Completed => SandboxStatus::Completed,
            _ => SandboxStatus::Failed,
        };
        self.sandbox.end_server(running, leased, status).await?;
        Ok(report)
    }

    fn not_started(&self, why: NotStarted) -> Report {
        match why {
            NotStarted::Cause(cause) => not_done(Refusal::new(
                Reason::McpServerFailed,
                format!("it did not start: {cause}"),
            )),
            NotStarted::Failed(failure, errors) => match self.stopped(&failure) {
                Some(report) => report,
                None => failed(&failure, &errors.text(), false),
            },
        }
    }

    fn came_of(&self, running: &Running, failure: Failure) -> Came {
        if let Failure::Refused { .. } = failure {
            return Came::Good(not_done(Refusal::new(Reason::McpRefused, failure)));
        }
        Came::Bad(match self.stopped(&failure) {
            Some(report) => report,
            None => failed(&failure, &running.errors.text(), running.cgroups.oom_kills() > 0),
        })
    }

    /// Ends that a limit or a person has brought about, as a command's are told.
    fn stopped(&self, failure: &Failure) -> Option<Report> {
        let (end, status, word) = match failure {
            Failure::Canceled => return Some(canceled()),
            Failure::TimedOut(_) => {
                (End::TimedOut(common::Empty {}), CallStatus::TimedOut, "timed_out")
            }
            Failure::Broken(Broken::TooMuch | Broken::LineTooLong | Broken::Flooding) => {
                (End::OutputLimit(common::Empty {}), CallStatus::OutputLimit, "output_limit")
            }
            Failure::Broken(Broken::Closed | Broken::NotProtocol)
            | Failure::Refused { .. }
            | Failure::Unexpected(_)
            | Failure::TooMany
            | Failure::Tool(_) => return None,
        };
        // Of members that have a canonical form whatever the failure.
        let told = json!({ "status": word, "detail": failure.to_string() });
        let result_json = answer::to_bytes(&told).unwrap_or_default();
        let finished =
            wire::Finished { result_json, outcome: Some(end), ..wire::Finished::default() };
        Some(Report { finished, status, ..not_done(Reason::McpServerFailed.into()) })
    }
}

/// An answer is an answer, but its server is not there for another.
fn told_too(report: &mut Report, why: &str) -> Result<(), Unsettled> {
    let Ok(mut result) = serde_json::from_slice::<Value>(&report.finished.result_json) else {
        return Ok(());
    };
    result["serverEnded"] = why.into();
    match answer::to_bytes(&result) {
        Ok(bytes) => report.finished.result_json = bytes,
        Err(Stop::Refused(_)) => (),
        Err(Stop::Failed(error)) => return Err(error.into()),
    }
    Ok(())
}

/// The server's own doing; what it wrote beside the protocol is the only account of it.
fn failed(failure: &Failure, errors: &str, oom: bool) -> Report {
    let memory = if oom { "; it was killed for the memory it took" } else { "" };
    let beside = match errors.trim() {
        "" => String::new(),
        errors => format!("; the end of its error output, which nobody vouches for: {errors}"),
    };
    let detail = format!(
        "{failure}{memory}; it is ended, and what it did in the private copy stays there{beside}"
    );
    not_done(Refusal::new(Reason::McpServerFailed, detail))
}

fn reported(value: &Value) -> Result<Report, Unsettled> {
    match answer::to_bytes(value) {
        Ok(bytes) => Ok(done(bytes)),
        Err(Stop::Refused(refusal)) => Ok(not_done(refusal)),
        Err(Stop::Failed(error)) => Err(error.into()),
    }
}

/// What a model is told of a list: the offered tools alone, and which of those there are not.
fn told(
    server: &str,
    started: bool,
    listed: &[Definition],
    offered: &[String],
    only: &[String],
) -> Value {
    let is_meant =
        |name: &String| offered.contains(name) && (only.is_empty() || only.contains(name));
    let mut room = LISTED_BYTES;
    let (mut tools, mut by_name) = (Vec::new(), Vec::new());
    for definition in listed.iter().filter(|definition| is_meant(&definition.name)) {
        let Definition { name, digest, description, input_schema, hints } = definition;
        let tool = json!({
            "name": name,
            "definition": digest.to_string(),
            "description": description,
            "inputSchema": input_schema,
            "hints": hints,
        });
        match room.checked_sub(tool.to_string().len()) {
            Some(left) => {
                room = left;
                tools.push(tool);
            }
            None => by_name.push(name.clone()),
        }
    }
    let there = |name: &&String| listed.iter().any(|definition| definition.name == **name);
    let missing: Vec<_> =
        offered.iter().filter(|name| is_meant(name)).filter(|name| !there(name)).collect();
    let mut told = json!({
        "server": server,
        "started": started,
        "untrusted": true,
        "tools": tools,
        "notOffered": listed.iter().filter(|it| !offered.contains(&it.name)).count(),
    });
    if !by_name.is_empty() {
        told["askForByName"] = by_name.into();
    }
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().take(SHOWN_NAMES).map(ToString::to_string).collect();
        told["notListed"] = named(&names, missing.len()).into();
    }
    told
}
