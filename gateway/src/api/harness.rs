//! `harness/acp/1` on one connection: one owner of all its state, which hands work to tasks and takes their results. It
//! translates; what may be done is decided behind it.
mod call;
mod job;
mod look;
mod reply;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use acp::{Call, CallRefused, ClientCapabilities, Code, Failure, Request, RequestId};
use event::id::SessionId;
use metrics::{counter, gauge};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{Instrument as _, info, info_span};
use transport::{CancellationToken, Chain};

use crate::Desk;
use crate::authn::Person;
use crate::feed::{Entry, Fed};
use crate::refusal::Refusal;
use crate::socket::Farewell;
use crate::socket::message::Incoming;
use crate::socket::reader::{self, Reader};
use crate::socket::writer::{self, Closing, Outbound, Written};
use job::Done;
use session::{Over, Session};

/// Events that wait to be handed to the socket, over all sessions of the connection; each may be large.
const FED: usize = 8;

/// What is noted of a close frame without a code, and of an end without a close frame.
const NO_CODE: u16 = 1005;
const CUT: u16 = 1006;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Farewell(Farewell),
    ByPeer(Option<u16>),
    /// Without a word from either side.
    Gone,
    /// The writer stopped; it knows why, and tells the peer if it can.
    Unwritten,
}

impl From<Closing> for End {
    fn from(_: Closing) -> Self {
        Self::Unwritten
    }
}

/// One client. Everything is changed by its owner alone.
struct Connection {
    desk: Arc<Desk>,
    person: Arc<Person>,
    out: Outbound,
    fed: mpsc::Sender<Fed>,
    done: mpsc::Sender<Done>,
    /// Set by initialize.
    offer: Option<ClientCapabilities>,
    sessions: HashMap<SessionId, Session>,
    /// Sessions that are being opened or attached.
    opening: usize,
    /// Requests without an answer yet.
    unanswered: usize,
}

/// Speaks with a client until either side ends it.
pub(crate) async fn serve(
    desk: Arc<Desk>,
    person: Person,
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    shutdown: CancellationToken,
) {
    let span = info_span!("connection", tenant = person.tenant, subject = person.subject);
    async {
        info!("connected");
        gauge!("harness_gateway_connections").increment(1.0);
        let code = converse(desk, person, io, shutdown).await;
        gauge!("harness_gateway_connections").decrement(1.0);
        counter!("harness_gateway_closed_total", "code" => code.to_string()).increment(1);
        info!(code, "closed");
    }
    .instrument(span)
    .await;
}

/// Returns the code that the connection ended with.
async fn converse(
    desk: Arc<Desk>,
    person: Person,
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    shutdown: CancellationToken,
) -> u16 {
    let (limits, overdue) = (desk.limits, desk.overdue());
    let (read, write) = tokio::io::split(io);
    let mut reader = Reader::new(read, limits.socket);
    let (out, writer) = writer::channel(write, limits.socket);
    let mut writing = JoinSet::new();
    writing.spawn(writer.run());
    let (fed, fed_queue) = mpsc::channel(FED);
    let (done, done_queue) = mpsc::channel(acp::MAX_PENDING);
    let connection = Connection {
        desk,
        person: Arc::new(person),
        out: out.clone(),
        fed,
        done,
        offer: None,
        sessions: HashMap::new(),
        opening: 0,
        unanswered: 0,
    };
    let conversation = async {
        let end = connection.run(&mut reader, fed_queue, done_queue, shutdown).await;
        part(end, out, writing, reader).await
    };
    tokio::select! {
        code = conversation => code,
        () = overdue => CUT,
    }
}

/// Says goodbye as far as the peer can still hear it, and returns the code that it is told.
async fn part<R: AsyncRead + Unpin>(
    end: End,
    out: Outbound,
    mut writing: JoinSet<Written>,
    mut reader: Reader<R>,
) -> u16 {
    match end {
        End::Gone => CUT,
        End::Unwritten => match writing.join_next().await {
            Some(Ok(Written::Slow)) => {
                reader.hear_out().await;
                Farewell::SLOW.code
            }
            _ => CUT,
        },
        End::ByPeer(code) => match out.close(code, "").await {
            Ok(()) => {
                writing.join_next().await;
                code.unwrap_or(NO_CODE)
            }
            Err(Closing) => CUT,
        },
        End::Farewell(Farewell { code, reason }) => {
            let said = out.close(Some(code), reason).await.is_ok();
            if said && matches!(writing.join_next().await, Some(Ok(Written::Farewell))) {
                reader.hear_out().await;
            }
            code
        }
    }
}

impl Connection {
    async fn run<R: AsyncRead + Unpin>(
        mut self,
        reader: &mut Reader<R>,
        mut fed: mpsc::Receiver<Fed>,
        mut done: mpsc::Receiver<Done>,
        shutdown: CancellationToken,
    ) -> End {
        let keepalive = self.desk.limits.keepalive;
        let mut tick = interval(keepalive);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, writer) = (Instant::now(), self.out.clone());
        loop {
            let handled = tokio::select! {
                incoming = reader.next() => {
                    heard = Instant::now();
                    self.incoming(incoming).await
                }
                Some(fed) = fed.recv() => self.fed(fed).await,
                Some(done) = done.recv() => self.done(done).await,
                _ = tick.tick() => match heard.elapsed() > 3 * keepalive {
                    true => Err(End::Gone),
                    false => self.look_after().await,
                },
                () = writer.closed() => Err(End::Unwritten),
                () = shutdown.cancelled() => Err(End::Farewell(Farewell::GOING_AWAY)),
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    async fn incoming(&mut self, incoming: Result<Incoming, reader::Ended>) -> Result<(), End> {
        match incoming {
            Ok(Incoming::Text(text)) => match acp::decode_request(&text) {
                Ok(request) => self.request(request).await,
                Err(refusal) => {
                    Ok(self.out.text(reply::failure(refusal.id.as_ref(), &refusal.failure)).await?)
                }
            },
            Ok(Incoming::Ping(payload)) => {
                self.out.pong(payload);
                Ok(())
            }
            Ok(Incoming::Pong) => Ok(()),
            Ok(Incoming::Close(code)) => Err(End::ByPeer(code)),
            Err(reader::Ended::Violation(violation)) => Err(End::Farewell(violation.farewell())),
            Err(reader::Ended::Gone) => Err(End::Gone),
        }
    }

    async fn request(&mut self, request: Request) -> Result<(), End> {
        let Request { id, method, params } = request;
        if self.unanswered >= acp::MAX_PENDING {
            let failure = Failure::new(Code::Busy, "too many requests wait for an answer");
            return Ok(self.out.text(reply::failure(Some(&id), &failure)).await?);
        }
        self.unanswered += 1;
        let offer = match self.offer {
            Some(offer) => offer,
            None if method == <acp::Initialize as acp::Method>::NAME => {
                ClientCapabilities::default()
            }
            None => {
                return self
                    .refuse(&id, &Failure::new(Code::NotInitialized, "initialize first"))
                    .await;
            }
        };
        match Call::decode(&method, params.as_deref(), offer.sessions) {
            Ok(call) => self.call(id, call, offer).await,
            Err(CallRefused::MethodNotFound) => {
                self.refuse(&id, &Failure::new(Code::MethodNotFound, "there is no such method"))
                    .await
            }
            Err(CallRefused::InvalidParams(detail)) => {
                self.refuse(&id, &Failure::new(Code::InvalidParams, detail)).await
            }
            Err(CallRefused::MalformedAnswer(malformed)) => {
                self.malformed(id, malformed, offer).await
            }
        }
    }

    async fn call(
        &mut self,
        id: RequestId,
        call: Call,
        offer: ClientCapabilities,
    ) -> Result<(), End> {
        let refused = match call {
            Call::Initialize(params) => return self.initialize(id, params).await,
            Call::NewSession(params) => self.open(id.clone(), params),
            Call::Attach(params) => self.attach(id.clone(), params, offer),
            Call::Prompt(params) => self.prompt(id.clone(), params),
            Call::Respond(params) => self.respond(id.clone(), params, offer),
            Call::Cancel(params) => self.cancel(id.clone(), &params),
            Call::PatchUndo(params) => self.undo(id.clone(), params),
            Call::PatchRead(params) => self.read_patch(id.clone(), &params),
            Call::GrantList(params) => self.list_grants(id.clone(), &params),
            Call::GrantRevoke(params) => self.revoke_grant(id.clone(), &params),
        };
        match refused {
            Ok(()) => Ok(()),
            Err(failure) => self.refuse(&id, &failure).await,
        }
    }

    async fn fed(&mut self, fed: Fed) -> Result<(), End> {
        match fed {
            Fed::Entry(id, entry) => self.forward(id, entry).await,
            Fed::Outcome(id, outcome) => self.run_over(id, Over::Outcome(outcome)).await,
            Fed::Ended(_, Refusal::TooSlow) => Err(End::Farewell(Farewell::SLOW)),
            Fed::Ended(_, Refusal::Internal) => Err(End::Farewell(Farewell::INTERNAL)),
            Fed::Ended(id, refusal) => {
                info!(session = %id, error = %Chain(&refusal), "a session is followed no longer");
                self.run_over(id, Over::Lost).await
            }
        }
    }

    async fn run_over(&mut self, id: SessionId, over: Over) -> Result<(), End> {
        match self.sessions.get_mut(&id).and_then(|session| session.ended(over)) {
            Some((request, over)) => self.answer_prompt(&request, over).await,
            None => Ok(()),
        }
    }

    /// The ask counts as shown once its event is handed to the socket.
    async fn forward(&mut self, id: SessionId, entry: Entry) -> Result<(), End> {
        let Entry { seq, text, ask } = entry;
        self.out
            .text(reply::event(id, seq, text).ok_or(End::Farewell(Farewell::INTERNAL))?)
            .await?;
        if let (Some(session), Some(ask)) = (self.sessions.get_mut(&id), ask) {
            session.shown(ask);
        }
        Ok(())
    }

    async fn refuse(&mut self, id: &RequestId, failure: &Failure) -> Result<(), End> {
        self.reply(reply::failure(Some(id), failure)).await
    }

    async fn reply(&mut self, text: String) -> Result<(), End> {
        self.unanswered = self.unanswered.saturating_sub(1);
        Ok(self.out.text(text).await?)
    }

    /// A ping, the token, and sessions that nobody prompts.
    async fn look_after(&mut self) -> Result<(), End> {
        // One look at a local file's metadata; the file is read only when it has changed.
        if !self.desk.tokens.is_current(&self.person) {
            return Err(End::Farewell(Farewell::SIGNED_OUT));
        }
        let limit = self.desk.limits.unprompted;
        let idle: Vec<SessionId> = self
            .sessions
            .iter_mut()
            .filter_map(|(id, session)| session.expires(limit).then_some(*id))
            .collect();
        for id in idle {
            self.cancel_unprompted(id);
        }
        Ok(self.out.ping().await?)
    }
}
