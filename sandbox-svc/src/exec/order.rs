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
pub(crate) struct Order {
    pub(crate) nonce: Nonce,
    bytes: Vec<u8>,
}

/// The plan's commands under a nonce of their own; a cause where there can be no such frame.
pub(crate) fn order(
    plan: &receipt::Plan,
    image: &Image,
    limits: &receipt::Limits,
    time_limit: Duration,
    stdin: Stdin,
) -> Result<Result<Order, String>, Error> {
    let mut random = [0; Nonce::LENGTH];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Start(format!("there are no random numbers: {error}")))?;
    let nonce = Nonce::of_lines(random);
    let text = |text: String| text.into_bytes();
    let env = environment_variables(image, limits.cpus_milli, &plan.network);
    let frame = Frame {
        nonce,
        cwd: WORKSPACE.into(),
        env: env.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
        time_limit,
        stdin,
        commands: commands(plan),
    };
    let bytes = frame.to_bytes().map_err(|error| error.to_string());
    Ok(bytes.map(|bytes| Order { nonce, bytes }))
}

impl Run<'_> {
    /// The order and the image it is for; a cause when there is none.
    pub(super) async fn order(&self) -> Result<Result<(Image, Order), String>, Unsettled> {
        let image = match self.engine.image_by_id(self.plan.image).await {
            Ok(image) => image,
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        };
        let stdin = match self.stdin() {
            Ok(stdin) => stdin,
            Err(cause) => return Ok(Err(cause)),
        };
        let time_limit = Duration::from_millis(self.limits.time_ms).saturating_add(LATER);
        let order = order(self.plan, &image, &self.limits, time_limit, stdin)?;
        Ok(order.map(|order| (image, order)))
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
        in_time(async {
            input.write_all(&self.bytes).await?;
            input.shutdown().await
        })
        .await
    }

    /// What follows the frame is a conversation.
    pub(crate) async fn begin(&self, input: &mut Input) -> io::Result<()> {
        in_time(async {
            input.write_all(&self.bytes).await?;
            input.flush().await
        })
        .await
    }
}

async fn in_time(sent: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(SEND, sent).await.map_err(late)?
}
