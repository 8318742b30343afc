//! Both executors against agent-svc's own certificate: whatever a taken-over agent-svc tries, it is refused with a reason
//! of its own, each refusal is in the executor's stream, and nothing runs.

mod door;
mod hands;
mod models;
mod people;
mod policies;
mod receipts;
mod standing;

use anyhow::{Context as _, Result};
use e2e::{Admin, Books, Impostor, Line, Manifest, Outcome, Rig, Spec, Turn, manifest, until};
use event::id::{CallId, SessionId};
use event::{Digest, Scope};
use receipt::{Plan, Receipt, Signed};
use serde_json::{Value, json};
use transport::{Fault, Service};

const TOOL: &str = "process.exec";

fn argv(text: &str) -> Value {
    json!({"argv": ["sh", "-c", text]})
}

/// One impostor whose session is fenced and whose run is open, under an administrator's files.
struct Ground {
    rig: Rig,
    admin: Admin,
    impostor: Impostor,
}

/// A call as it was planned.
struct Asked {
    call: CallId,
    tool: &'static str,
    arguments: Value,
    plan: Plan,
    bytes: Vec<u8>,
}

impl Asked {
    fn digest(&self) -> Digest {
        receipt::plan_digest(&self.bytes)
    }
}

/// The rules that the attempts are about.
fn rules() -> Manifest {
    let people = json!({"roles": ["operator", "admin"], "not": "requester", "count": 2});
    let signed = json!({"roles": ["admin"], "signature": true});
    manifest("red-team").rule(
        TOOL,
        json!({
            "sh -c 'echo two'": {"effect": "ask", "approvers": people},
            "sh -c 'echo signed'": {"effect": "ask", "approvers": signed},
            "sh -c 'echo denied'": "deny",
            "*": "ask",
        }),
    )
}

impl Ground {
    async fn prepare() -> Result<Self> {
        let admin = Admin::new()?;
        let spec = Spec::new(rules(), vec![Turn::Say("nothing")]).setting(
            Service::SandboxSvc,
            "tls-reload-interval",
            "100ms",
        );
        let rig = Rig::start(admin.over(spec)).await?;
        let impostor = Impostor::enter(&rig, "red-team")?;
        impostor.fence().await?;
        impostor.open().await?;
        Ok(Self { rig, admin, impostor })
    }

    async fn asked(&self, text: &str) -> Result<Asked> {
        asked(&self.impostor, TOOL, argv(text)).await
    }

    fn receipt(&self, asked: &Asked, scope: Scope) -> Result<Receipt> {
        self.impostor.receipt(&asked.plan, &asked.bytes, scope)
    }

    /// The receipt for this call, changed before it is signed.
    fn signed(&self, asked: &Asked, change: impl FnOnce(&mut Receipt)) -> Result<Signed> {
        let mut receipt = self.receipt(asked, Scope::Once)?;
        change(&mut receipt);
        self.impostor.sign(&receipt)
    }

    async fn run(&self, asked: &Asked, receipts: &[&Signed]) -> String {
        run(&self.impostor, asked, receipts).await
    }

    /// The refusals that sandbox-svc recorded about this session are these, in this order.
    async fn recorded(&self, wanted: &[&str]) -> Result<()> {
        refusals(&self.rig, "sandbox-svc", self.impostor.session, wanted).await
    }

    async fn effects(&self) -> Result<usize> {
        effects(&self.rig, "sandbox-svc", self.impostor.session).await
    }
}

async fn asked(impostor: &Impostor, tool: &'static str, arguments: Value) -> Result<Asked> {
    let call = CallId::new();
    let (plan, bytes) = impostor.planned(call, tool, &arguments).await?;
    Ok(Asked { call, tool, arguments, plan, bytes })
}

/// How the call ended, or why it did not begin.
async fn run(impostor: &Impostor, asked: &Asked, receipts: &[&Signed]) -> String {
    let Asked { call, tool, arguments, .. } = asked;
    ending(impostor.execute_with(*call, tool, arguments, asked.digest(), receipts).await)
}

fn ending(outcome: Result<Outcome, Fault>) -> String {
    match outcome {
        Ok(Outcome::Exited(code)) => format!("exited {code}"),
        Ok(Outcome::Refused(reason)) | Err(Fault { reason, .. }) => reason,
        Ok(other) => format!("{other:?}"),
    }
}

fn reason<T>(result: Result<T, Fault>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(fault) => fault.reason,
    }
}

/// A refusal is answered before the ledger has acknowledged it, so this waits for as many as there must be.
async fn refusals(rig: &Rig, writer: &str, session: SessionId, wanted: &[&str]) -> Result<()> {
    let books = Books::open(rig)?;
    let lines = until("the refusals", || async {
        let lines = of_kind(&books, writer, session, "call.refused").await.ok()?;
        (lines.len() >= wanted.len()).then_some(lines)
    })
    .await;
    let found: Vec<&str> = lines
        .iter()
        .map(|line| line.data["reason"].as_str().context("a reason"))
        .collect::<Result<_>>()?;
    assert_eq!(found, wanted);
    Ok(())
}

async fn effects(rig: &Rig, writer: &str, session: SessionId) -> Result<usize> {
    Ok(of_kind(&Books::open(rig)?, writer, session, "call.started").await?.len())
}

async fn of_kind(books: &Books, writer: &str, session: SessionId, kind: &str) -> Result<Vec<Line>> {
    let lines = books.stream(writer, session).await?;
    Ok(lines.into_iter().filter(|line| line.kind == kind).collect())
}
