//! An approved `true`, from the request to the result with all proofs before and behind it, without and with a
//! container that waits, beside `docker run --rm` with the same flags and beside the runtime alone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Engine, Impostor, Order, Outcome, Rig, Spec, Turn, manifest, until};
use event::id::CallId;
use event::{SandboxStarted, Scope};
use proto::sandbox::v1::execute_response::Message;
use serde_json::json;
use transport::Service;

use crate::engine::Flags;
use crate::is_wanted;
use crate::runc::Bundle;
use crate::sample::Figure;

const COLD: &str = "exec.cold";
const WARM: &str = "exec.warm";
const COLD_RUNC: &str = "exec.cold.runc";
const WARM_RUNC: &str = "exec.warm.runc";

const DOCKER: &str = "docker run --rm with the same flags";
const RUNC: &str = "runc run of the same container";
const WAITS: &str = "a container waits for the next command";

#[derive(Default)]
struct Measured {
    cold: Vec<Duration>,
    warm: Vec<Duration>,
    docker: Vec<Duration>,
    runc: Vec<Duration>,
}

/// Of each bench whose name begins so.
pub(crate) async fn measure(prefix: &str, rounds: u32) -> Result<Vec<Figure>> {
    if !is_wanted(&[COLD, WARM, COLD_RUNC, WARM_RUNC], prefix) {
        return Ok(Vec::new());
    }
    let Measured { cold, warm, docker, runc } = interleaved(rounds).await?;
    let mut figures = vec![
        Figure::new(COLD, &cold, DOCKER, &docker, 0.7),
        Figure::new(WARM, &warm, DOCKER, &docker, 0.25),
        Figure::new(COLD_RUNC, &cold, RUNC, &runc, None),
        Figure::new(WARM_RUNC, &warm, RUNC, &runc, None),
    ];
    figures.retain(|figure| figure.name().starts_with(prefix));
    Ok(figures)
}

async fn interleaved(rounds: u32) -> Result<Measured> {
    let cold = Side::enter(0).await?;
    let mut warm = Side::enter(2).await?;
    let waiting = warm.waiting().await?;
    let flags = Flags::of(&waiting)?;
    let id = Engine::inspect(&waiting)?["Id"].as_str().context("an id")?.to_owned();
    let mut bundle = Bundle::like(&id, &warm.rig.image, &["/bin/true"])?;
    let mut measured = Measured::default();
    // The first round warms all of them.
    for round in 0..=rounds {
        let docker = flags.run(&["true"])?;
        let runc = bundle.run()?;
        let (cold, _) = cold.execute().await?;
        let (took, container) = warm.execute().await?;
        ensure!(container == warm.name, "{container} did not wait, {} did", warm.name);
        // What is made for the next one disturbs nobody.
        warm.waiting().await?;
        if round > 0 {
            measured.docker.push(docker);
            measured.runc.push(runc);
            measured.cold.push(cold);
            measured.warm.push(took);
        }
    }
    cold.impostor.close().await?;
    warm.impostor.close().await?;
    Ok(measured)
}

/// One mesh, with or without containers that wait.
struct Side {
    rig: Rig,
    impostor: Impostor,
    /// What was heard of containers that wait.
    heard: usize,
    /// The last one.
    name: String,
}

impl Side {
    async fn enter(waiting: i64) -> Result<Self> {
        let rules = manifest("bench").rule("process.exec", json!("ask"));
        let spec = Spec::new(rules, vec![Turn::Say("nothing")]);
        let spec = spec.setting(Service::SandboxSvc, "warm-containers", waiting);
        let rig = Rig::start(spec).await?;
        let impostor = Impostor::enter(&rig, "bench")?;
        impostor.fence().await?;
        impostor.open().await?;
        Ok(Self { rig, impostor, heard: 0, name: String::new() })
    }

    /// Until the next one is told of.
    async fn waiting(&mut self) -> Result<String> {
        let log = self.rig.mesh.layout().log(Service::SandboxSvc);
        let told = || async {
            let text = std::fs::read_to_string(&log).ok()?;
            let count = text.matches(WAITS).count();
            (count > self.heard).then_some(count)
        };
        self.heard = until(WAITS, told).await;
        let names = Engine::containers(&format!("harness.session={}", self.impostor.session))?;
        self.name = names.into_iter().next().context("a container that waits")?;
        Ok(self.name.clone())
    }

    /// A person's answer is there before the clock starts. Also says which container it was.
    async fn execute(&self) -> Result<(Duration, String)> {
        let impostor = &self.impostor;
        let (call, arguments) = (CallId::new(), json!({"argv": ["true"]}));
        let (plan, bytes) = impostor.planned(call, "process.exec", &arguments).await?;
        let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, Scope::Once)?)?;
        let order = Order {
            call,
            tool: "process.exec",
            arguments: &arguments,
            plan: receipt::plan_digest(&bytes),
            receipts: &[&receipt],
        };
        let mut started = None;
        let began = Instant::now();
        let finished = impostor
            .carry_out(&order, |message| {
                if let Message::Started(data) = message {
                    started = Some(data.data.clone());
                }
            })
            .await?;
        let took = began.elapsed();
        let outcome = Outcome::read(finished);
        ensure!(outcome == Outcome::Exited(0), "{outcome:?}");
        let started: SandboxStarted = serde_json::from_slice(&started.context("it started")?)?;
        Ok((took, started.container_name))
    }
}
