//! The two runs: one that is interrupted twice and approved twice, and one whose target changes while it waits.
use std::{fs, path::Path, time::Duration};

use acp::{AttachParams, Code, NewParams};
use event::id::{RunId, SessionId};
use tokio::time::{Instant, timeout};

use super::{
    host::Tree,
    scene::{FIRST, SECOND, Scene, TARGET, WORKSPACE},
};
use crate::{
    Error,
    error::{Exit, Explain},
    file,
    mesh::{Mesh, Service},
    output,
    session::{self, Answered, Ask, Beginning, Errand, Part, Session, Step, Verdict, render},
    target::Target,
};

/// For anything that is waited for; a container takes a second or two.
const LIMIT: Duration = Duration::from_secs(120);
/// What somebody else writes while the second run waits.
const CHANGED: &str = "changed by somebody else\n";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Turn {
    #[error("the run does not go on within {} s", LIMIT.as_secs())]
    Late,
    #[error("the run ended where it should ask")]
    Ended,
    #[error("the run asks where it should end")]
    Asked,
    #[error("an ask has no run")]
    NoRun,
    #[error("the ask is not open any more after all services were killed")]
    Forgotten,
    #[error("the answer came too late: {0}")]
    Settled(String),
    #[error("a service that was killed still runs as before")]
    Survived,
    #[error("a text is too long for the wire")]
    Text(#[from] acp::Length),
    #[error("an id is not one for the wire")]
    Id(#[from] acp::NotKebab),
}

impl Explain for Turn {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "run it again with --keep and look at the logs below state/log".to_owned()
    }
}

/// What the first run showed.
pub(crate) struct First {
    pub(crate) session: SessionId,
    pub(crate) approvals: Vec<String>,
    /// Rounds in which all services were killed and started between an ask and its answer.
    pub(crate) restarts: usize,
    /// The image that the approved plan of the command names.
    pub(crate) image: String,
    /// The events as the client received them.
    pub(crate) transcript: Vec<String>,
    pub(crate) unchanged: Result<(), String>,
    pub(crate) imported: Result<(), String>,
}

/// What the second run showed.
pub(crate) struct Second {
    pub(crate) session: SessionId,
    pub(crate) transcript: Vec<String>,
    /// The host's file is as somebody else left it.
    pub(crate) kept: Result<(), String>,
}

pub(crate) struct Story<'a> {
    scene: &'a Scene,
    mesh: &'a mut Mesh,
    target: Target,
    restarts: usize,
}

impl<'a> Story<'a> {
    pub(crate) fn new(scene: &'a Scene, mesh: &'a mut Mesh) -> Self {
        let target = Target::of_state(scene.state());
        Self { scene, mesh, target, restarts: 0 }
    }

    pub(crate) async fn first(&mut self) -> Result<First, Error> {
        output::progress(
            "first run: a command and an import, each approved after all services were killed",
        );
        let before = Tree::of(&self.scene.workspace())?;
        let mut approvals = Vec::new();
        let mut unchanged = Ok(());
        let mut image = String::new();
        let mut told = Told::of(self.begin(FIRST).await?);
        for _ in 0..2 {
            let ask = told.ask().await?;
            unchanged = unchanged.and(before.same_as(&Tree::of(&self.scene.workspace())?));
            told = self.interrupt(told, &ask).await?;
            unchanged = unchanged.and(before.same_as(&Tree::of(&self.scene.workspace())?));
            told.allow(&ask).await?;
            if let Some(named) = ask.plan.get("image").and_then(|image| image.as_str()) {
                named.clone_into(&mut image);
            }
            approvals.push(ask.action);
        }
        told.end().await?;
        let after = Tree::of(&self.scene.workspace())?;
        let content = file::read_text(&self.scene.target())?;
        let imported = before.differs_in_content_of(Path::new(TARGET), &after).and_then(|()| {
            match content.as_str() {
                "repaired\n" => Ok(()),
                other => Err(format!("{TARGET} holds {} bytes of something else", other.len())),
            }
        });
        let (session, transcript) = told.close().await;
        Ok(First {
            session,
            approvals,
            restarts: self.restarts,
            image,
            transcript,
            unchanged,
            imported,
        })
    }

    pub(crate) async fn second(&mut self) -> Result<Second, Error> {
        output::progress(
            "second run: a rule allows the command, and the import's target changes while it waits",
        );
        let mut told = Told::of(self.begin(SECOND).await?);
        let ask = told.ask().await?;
        let target = self.scene.target();
        fs::write(&target, CHANGED).map_err(file::failed("write", &target))?;
        let before = Tree::of(&self.scene.workspace())?;
        told.allow(&ask).await?;
        told.end().await?;
        let kept = before.same_as(&Tree::of(&self.scene.workspace())?);
        let (session, transcript) = told.close().await;
        Ok(Second { session, transcript, kept })
    }

    async fn begin(&self, name: &str) -> Result<Session, Error> {
        let beginning = Beginning {
            session: NewParams {
                workspace: acp::Text::new(WORKSPACE).map_err(Turn::Text)?,
                task_id: Some(acp::TaskId::new(name).map_err(Turn::Id)?),
                model: Some(acp::Text::new(name).map_err(Turn::Text)?),
                on_disconnect: None,
            },
            errand: Errand::Prompt {
                content: acp::Text::new("Repair the application.").map_err(Turn::Text)?,
                max_model_tokens: None,
                max_tool_calls: None,
            },
        };
        Ok(Session::begin(self.target.connect().await?, beginning, Part::Answers).await?)
    }

    /// Kills all five services, starts them again, and finds the same ask open.
    async fn interrupt(&mut self, told: Told, ask: &Ask) -> Result<Told, Error> {
        let run = ask.run_id.ok_or(Turn::NoRun)?;
        told.close().await;
        let before = Service::ALL.map(|service| self.mesh.pid(service));
        output::progress("killing all five services and starting them again");
        self.mesh.kill9_all().await?;
        self.mesh.start().await?;
        let after = Service::ALL.map(|service| self.mesh.pid(service));
        if before
            .iter()
            .zip(&after)
            .any(|(before, after)| before.is_none() || after.is_none() || before == after)
        {
            return Err(Turn::Survived.into());
        }
        let mut session = self.attach(run).await?;
        let open = session.open_asks();
        if open.iter().map(|ask| ask.permission_id).ne([ask.permission_id]) {
            return Err(Turn::Forgotten.into());
        }
        self.restarts += 1;
        Ok(Told::of(session))
    }

    /// Sessions are taken up one after another when a service starts.
    async fn attach(&self, run: RunId) -> Result<Session, Error> {
        let until = Instant::now() + LIMIT;
        loop {
            match Session::attach(
                self.target.connect().await?,
                AttachParams::run(run),
                Part::Answers,
            )
            .await
            {
                Err(session::Error::Refused { source, .. })
                    if source.code == Code::Unavailable && Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                attached => return Ok(attached?),
            }
        }
    }
}

/// A session with what it has told.
struct Told {
    session: Session,
    transcript: Vec<String>,
}

impl Told {
    fn of(session: Session) -> Self {
        Self { session, transcript: Vec::new() }
    }

    async fn ask(&mut self) -> Result<Ask, Error> {
        loop {
            match self.step().await? {
                Step::Ask(ask) => {
                    output::progress(&format!(
                        "asked for {} under plan {}",
                        ask.action, ask.plan_digest
                    ));
                    return Ok(ask);
                }
                Step::Ended(_) => return Err(Turn::Ended.into()),
                Step::Event { .. } => {}
            }
        }
    }

    async fn end(&mut self) -> Result<(), Error> {
        loop {
            match self.step().await? {
                Step::Ended(_) => return Ok(()),
                Step::Ask(_) => return Err(Turn::Asked.into()),
                Step::Event { .. } => {}
            }
        }
    }

    async fn allow(&mut self, ask: &Ask) -> Result<(), Error> {
        let allow = Verdict::Allow { scope: None, approval: None };
        match self.session.answer(ask, allow, None).await? {
            Answered::Accepted => Ok(()),
            Answered::Counted(_) => Err(Turn::Settled("one yes is not enough".to_owned()).into()),
            Answered::NotTheirs(how) | Answered::Settled(how) => Err(Turn::Settled(how).into()),
        }
    }

    async fn step(&mut self) -> Result<Step, Error> {
        let step = timeout(LIMIT, self.session.next()).await.map_err(|_| Turn::Late)??;
        if let Step::Event { event, text, old } = &step {
            self.transcript.push(text.clone());
            if let (false, Some(shown)) = (old, render(event)) {
                output::say(&shown);
            }
        }
        Ok(step)
    }

    async fn close(self) -> (SessionId, Vec<String>) {
        let Self { session, transcript } = self;
        let id = session.id();
        session.leave().await;
        (id, transcript)
    }
}
