//! Work that takes time runs on the process's tracker, so that an answer which a person has given is carried through
//! although the client hangs up; its result comes back to the connection's owner.
use std::sync::Arc;

use acp::{AttachAnswer, Code, Cursor, Failure, NewAnswer, OpenAsk, RawValue, RequestId, Seq};
use event::id::SessionId;
use tokio::sync::Mutex;
use tracing::{info, warn};
use transport::Chain;

use super::session::{Over, Session};
use super::{Connection, End, reply};
use crate::Desk;
use crate::authn::Person;
use crate::feed::{Entry, Feed, Opened};
use crate::grant::Life;
use crate::refusal::Refusal;
use crate::socket::Farewell;

/// What a task brings back.
pub(super) enum Done {
    /// The text of an answer, and nothing to remember.
    Reply(String),
    Opened(RequestId, Result<(SessionId, Life, Box<Opened>), Refusal>),
    Attached(RequestId, Result<(SessionId, Life, Box<Opened>), Refusal>),
    Prompted(RequestId, SessionId, Result<(), Refusal>),
}

impl Connection {
    pub(super) fn cancel_unprompted(&mut self, session: SessionId) {
        let (desk, person) = (self.desk.clone(), self.person.clone());
        let cancel = async move {
            match desk.agent.cancel(&person, session).await {
                Ok(_) => info!(%session, "a session that nobody prompted is canceled"),
                Err(fault) => {
                    warn!(%session, error = %Chain(&fault), "a session that nobody prompted is left");
                }
            }
        };
        self.desk.spawn(cancel);
    }

    pub(super) async fn done(&mut self, done: Done) -> Result<(), End> {
        match done {
            Done::Reply(text) => self.reply(text).await,
            Done::Opened(id, opened) => {
                self.opening -= 1;
                match opened {
                    Ok((session, life, opened)) => {
                        let text = reply::success(&id, &NewAnswer { session_id: session });
                        self.sessions.insert(session, Session::opened(Arc::new(Mutex::new(life))));
                        self.reply(text).await?;
                        self.follow(opened.feed);
                        Ok(())
                    }
                    Err(refusal) => self.refuse(&id, &reply::refused(&refusal)).await,
                }
            }
            Done::Attached(id, attached) => {
                self.opening -= 1;
                match attached {
                    Ok((session, ..)) if self.sessions.contains_key(&session) => {
                        let failure = Failure::new(
                            Code::InvalidRequest,
                            "the session is on this connection already",
                        );
                        self.refuse(&id, &failure).await
                    }
                    Ok((session, life, opened)) => self.attached(&id, session, life, *opened).await,
                    Err(refusal) => self.refuse(&id, &reply::refused(&refusal)).await,
                }
            }
            Done::Prompted(id, session, prompted) => {
                let Some(known) = self.sessions.get_mut(&session) else { return Ok(()) };
                match prompted {
                    Ok(()) => match known.started(id) {
                        Some((id, over)) => self.answer_prompt(&id, over).await,
                        None => Ok(()),
                    },
                    Err(refusal) => {
                        known.not_started(matches!(refusal, Refusal::SessionAlreadyRun));
                        self.refuse(&id, &reply::refused(&refusal)).await
                    }
                }
            }
        }
    }

    pub(super) async fn answer_prompt(&mut self, id: &RequestId, over: Over) -> Result<(), End> {
        match over {
            Over::Outcome(outcome) => self.reply(reply::prompt(id, &outcome)).await,
            Over::Lost => self.refuse(id, &reply::refused(&Refusal::RunLost)).await,
        }
    }

    /// Open asks are shown by the answer itself; everything else follows as events.
    async fn attached(
        &mut self,
        id: &RequestId,
        session: SessionId,
        life: Life,
        opened: Opened,
    ) -> Result<(), End> {
        let Opened { through, open, feed } = opened;
        let mut known = Session::attached(Arc::new(Mutex::new(life)));
        let mut asks = Vec::with_capacity(open.len());
        for Entry { seq, text, ask } in open {
            let (Ok(seq), Ok(event)) = (Seq::try_from(seq), RawValue::from_string(text)) else {
                return Err(End::Farewell(Farewell::INTERNAL));
            };
            asks.push(OpenAsk { seq, event });
            if let Some(ask) = ask {
                known.shown(ask);
            }
        }
        let through =
            through.and_then(|seq| Seq::try_from(seq).ok()).map_or(Cursor::NONE, Cursor::from);
        self.sessions.insert(session, known);
        self.reply(reply::success(id, &AttachAnswer { through_seq: through, open: asks })).await?;
        self.follow(feed);
        Ok(())
    }

    fn follow(&self, feed: Feed) {
        self.desk.spawn(feed.run(self.desk.clone(), self.fed.clone()));
    }

    /// Runs a job to its end, whether or not the client stays to hear of it.
    pub(super) fn start<F>(&self, job: impl FnOnce(Arc<Desk>, Arc<Person>) -> F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let (job, done) = (job(self.desk.clone(), self.person.clone()), self.done.clone());
        // A connection that has ended takes no results.
        let report = async move { drop(done.send(job.await).await) };
        self.desk.spawn(report);
    }
}
