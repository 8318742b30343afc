//! What a container's first process is told to run: the approved plan, and nothing that is not in it. It is sent
//! once, whole, and after everything about it is written down.

use std::io;
use std::time::Duration;

use sandbox_init::{Command, Frame, Nonce, Stdin};
use tokio::io::AsyncWriteExt as _;
use transport::Chain;

use crate::engine::{Image, Input, WORKSPACE};
use crate::error::Error;
use crate::exec::{Run, Unsettled};
use crate::planner::environment_variables;
use crate::tool::command::stdin_of;

/// How much later than this service's clock the first process's own ends a command.
const LATER: Duration = Duration::from_secs(5);
const SEND: Duration = Duration::from_secs(10);

/// A frame that is ready to be sent.
pub(super) struct Order {
    pub(super) nonce: Nonce,
    bytes: Vec<u8>,
}

impl Run<'_> {
    /// The order and the image it is for; a cause when there is none.
    pub(super) async fn order(&self) -> Result<Result<(Image, Order), String>, Unsettled> {
        let image = match self.engine.image_by_id(self.plan.image).await {
            Ok(image) => image,
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        };
        let mut random = [0; Nonce::LENGTH];
        getrandom::fill(&mut random)
            .map_err(|error| Error::Start(format!("there are no random numbers: {error}")))?;
        let nonce = Nonce::new(random);
        let stdin = match self.stdin() {
            Ok(stdin) => stdin,
            Err(cause) => return Ok(Err(cause)),
        };
        let text = |text: String| text.into_bytes();
        let env = environment_variables(&image, self.limits.cpus_milli, &self.plan.network);
        let frame = Frame {
            nonce,
            cwd: WORKSPACE.into(),
            env: env.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
            time_limit: Duration::from_millis(self.limits.time_ms).saturating_add(LATER),
            stdin,
            commands: commands(self.plan),
        };
        Ok(match frame.to_bytes() {
            Ok(bytes) => Ok((image, Order { nonce, bytes })),
            Err(error) => Err(error.to_string()),
        })
    }

    /// What the plan shows, as the call's arguments have it; in the frame, so that a command that does not
    /// read it keeps nobody waiting.
    fn stdin(&self) -> Result<Stdin, String> {
        let Some(planned) = &self.plan.stdin else { return Ok(Stdin::Empty) };
        match stdin_of(&self.row.plan.arguments) {
            Ok(Some(text)) if receipt::Stdin::of(&text) == *planned => {
                Ok(Stdin::Bytes(text.into_bytes()))
            }
            Ok(_) => Err("the input is not the one that was planned".to_owned()),
            Err(refusal) => Err(refusal.detail),
        }
    }
}

/// The plan's one command, or its several; a frame without any is not made.
fn commands(plan: &receipt::Plan) -> Vec<Command> {
    let command = |argv: &Vec<String>, program: &receipt::Program| Command {
        program: program.path.as_bytes().to_vec(),
        argv: argv.iter().map(|word| word.clone().into_bytes()).collect(),
    };
    let one = plan.argv.iter().zip(&plan.program).map(|(argv, program)| command(argv, program));
    one.chain(plan.steps.iter().map(|step| command(&step.argv, &step.program))).collect()
}

impl Order {
    /// Nothing follows the frame.
    pub(super) async fn send(&self, mut input: Input) -> io::Result<()> {
        let send = async {
            input.write_all(&self.bytes).await?;
            input.shutdown().await
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(SEND, send).await.map_err(late)?
    }
}
