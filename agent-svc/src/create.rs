//! Opens a session: its grant is verified, its id taken, its executors fenced; only then does it exist. The same request
//! again gets the same answer, and a newer grant renews the session's.

use std::sync::Arc;

use event::id::SessionId;
use event::{Data, SessionCreated};
use manifest::Manifest;
use receipt::{Grant, OnDisconnect, Payload as _, Signed};
use tracing::info;
use transport::Code;

use crate::live::{Command, Live};
use crate::obo::Caller;
use crate::peers::Offers;
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::{Error, NewSession, Opened, Owner, Session, State};
use crate::{fence, session};

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) session: SessionId,
    pub(crate) grant: Signed,
    /// Empty in the renewal of a grant: that which the session has.
    pub(crate) manifest: Vec<u8>,
    /// Empty: the grant's first.
    pub(crate) model: String,
    pub(crate) on_disconnect: OnDisconnect,
}

/// Returns through which sequence number the session can be read.
pub(crate) async fn create(
    runtime: &Arc<Runtime>,
    caller: &Caller,
    wanted: Wanted,
) -> Result<u64, Refusal> {
    let grant = runtime
        .gate
        .verify::<Grant>(&wanted.grant)
        .map_err(|invalid| refused(invalid.reason(), invalid.to_string()))?
        .into_inner();
    let manifest = manifest(runtime, caller, &wanted).await?;
    let new = granted(runtime, caller, Wanted { manifest, ..wanted }, &grant)?;
    match runtime.store.open_session(&new, runtime.node).await? {
        Opened::New(owner) => open(runtime, &new, owner).await,
        Opened::Known(known) => {
            let old = same(runtime, &known, &new, &grant).await?;
            match known.state {
                State::Opening => open(runtime, &new, known.owner).await,
                _ if known.outcome.is_none() && grant.exp > old.exp => {
                    renew(runtime, *known, &new).await
                }
                _ => acknowledged(runtime, &new, known.owner.session).await,
            }
        }
    }
}

fn refused(reason: &str, why: String) -> Refusal {
    Refusal::Grant { reason: format!("GRANT_{reason}"), why }
}

/// A grant may be renewed when its manifest's file has long changed; what the session began with counts.
async fn manifest(runtime: &Runtime, caller: &Caller, wanted: &Wanted) -> Result<Vec<u8>, Refusal> {
    if !wanted.manifest.is_empty() {
        return Ok(wanted.manifest.clone());
    }
    match runtime.store.session(&caller.tenant, wanted.session).await? {
        Some(_) => Ok(runtime.store.manifest(wanted.session).await?),
        None => Ok(Vec::new()),
    }
}

/// The session as its grant has it; what the request says besides must not go beyond that.
fn granted(
    runtime: &Runtime,
    caller: &Caller,
    wanted: Wanted,
    grant: &Grant,
) -> Result<NewSession, Refusal> {
    let Wanted { session, grant: signed, manifest: bytes, model, on_disconnect } = wanted;
    let foreign = |reason, what: &str| refused(reason, format!("it is for another {what}"));
    if grant.session != session {
        return Err(foreign("SESSION_MISMATCH", "session"));
    }
    if grant.tenant != caller.tenant {
        return Err(foreign("TENANT_MISMATCH", "tenant"));
    }
    if grant.on_disconnect != on_disconnect {
        return Err(foreign("DISCONNECT_MISMATCH", "disconnect policy"));
    }
    let unfit = |reason, why: String| Refusal::Manifest { reason, why };
    if event::Digest::of(&bytes) != grant.manifest {
        return Err(unfit("MANIFEST_MISMATCH", "its digest is not the grant's".to_owned()));
    }
    let manifest = Manifest::parse(&bytes, &grant.manifest_id)
        .map_err(|faults| unfit("MANIFEST_INVALID", faults.to_string()))?;
    if manifest.id != grant.manifest_id {
        return Err(unfit("MANIFEST_MISMATCH", "its id is not the grant's".to_owned()));
    }
    let model = match model.as_str() {
        "" => grant.models.first().ok_or(Refusal::ModelUnknown)?.clone(),
        _ => model,
    };
    let in_manifest = manifest.models.is_empty() || manifest.models.contains(&model);
    if !grant.models.contains(&model) || !in_manifest {
        return Err(Refusal::ModelUnknown);
    }
    Ok(NewSession {
        id: session,
        tenant: grant.tenant.clone(),
        subject: grant.subject.clone(),
        grant: signed
            .to_bytes()
            .map_err(|_| refused("PAYLOAD_MALFORMED", "it cannot be written down".to_owned()))?,
        manifest: bytes,
        manifest_id: grant.manifest_id.clone(),
        policy_rev: grant.manifest,
        workspace: grant.workspace.clone(),
        model,
        on_disconnect: effective(on_disconnect, &manifest),
        created_at: runtime.clock.millis(),
    })
}

/// A manifest that says deny is not overruled.
fn effective(granted: OnDisconnect, manifest: &Manifest) -> OnDisconnect {
    match manifest.interaction.on_disconnect {
        Some(manifest::OnDisconnect::Deny) => OnDisconnect::Deny,
        Some(manifest::OnDisconnect::Hold) | None => granted,
    }
}

/// The present grant, if the id is taken by this very request but for the times of its grant.
async fn same(
    runtime: &Runtime,
    known: &Session,
    new: &NewSession,
    grant: &Grant,
) -> Result<Grant, Refusal> {
    let signed = Signed::parse(&known.grant).map_err(|_| Error::Corrupt { what: "grant" })?;
    let old = Grant::parse(&signed.payload).map_err(|_| Error::Corrupt { what: "grant" })?;
    let renewed = Grant { iat: grant.iat, exp: grant.exp, ..old.clone() };
    let manifest = runtime.store.manifest(known.owner.session).await?;
    if renewed == *grant && known.model == new.model && manifest == new.manifest {
        Ok(old)
    } else {
        Err(Refusal::SessionConflict)
    }
}

async fn open(runtime: &Arc<Runtime>, new: &NewSession, owner: Owner) -> Result<u64, Refusal> {
    let offers = match raise(runtime, owner).await {
        Ok(offers) => offers,
        Err(refusal) => {
            if let Refusal::Executor { .. } = refusal {
                runtime.store.forget_session(new.id).await?;
            }
            return Err(refusal);
        }
    };
    let data = SessionCreated { session_id: new.id, workspace: Some(new.workspace.clone()) };
    let entry = session::entry(
        runtime.clock.now(),
        session::operator(&new.subject),
        Data::SessionCreated(data),
    )
    .map_err(|_| Refusal::Invalid { field: "grant", expected: "its names cannot be recorded" })?;
    let opening = runtime.opening.lock().await;
    // Another request for the same session may have been first, and then runs it already.
    if runtime.store.finish_session(owner, &entry).await? {
        info!(session = %new.id, "session created");
        let created = runtime.store.session(&new.tenant, new.id).await?;
        session::start(runtime, created.ok_or(Refusal::SessionNotFound)?, Some(offers));
    }
    drop(opening);
    acknowledged(runtime, new, owner.session).await
}

async fn raise(runtime: &Runtime, owner: Owner) -> Result<Offers, Refusal> {
    fence::raise(runtime, owner).await?.map_err(|(executor, fault)| {
        let executor = executor.as_str();
        match fault.code {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Unauthenticated => Refusal::ExecutorUnavailable { executor, fault },
            _ => Refusal::Executor { executor, fault },
        }
    })
}

/// The executors keep the old grant until both have the new one, and so does the session.
async fn renew(runtime: &Arc<Runtime>, known: Session, new: &NewSession) -> Result<u64, Refusal> {
    runtime.store.renew_grant(new.id, &new.grant).await?;
    raise(runtime, known.owner).await?;
    info!(session = %new.id, "grant renewed");
    if let Some(live) = runtime.sessions.get(new.id) {
        live.tell(Command::Renewed).await?;
    }
    acknowledged(runtime, new, new.id).await
}

/// Waits until the ledger has the session's first entry.
async fn acknowledged(runtime: &Runtime, new: &NewSession, id: SessionId) -> Result<u64, Refusal> {
    // Whoever has just created it has it running before this is free.
    drop(runtime.opening.lock().await);
    let Some(live) = runtime.sessions.get(id) else {
        let session = runtime.store.session(&new.tenant, id).await?;
        return session.and_then(|session| session.through_seq).ok_or(Refusal::Recovering);
    };
    tokio::time::timeout(runtime.spans.answer, first(&live))
        .await
        .map_err(|_| Refusal::AuditUnavailable)?
}

async fn first(live: &Live) -> Result<u64, Refusal> {
    let mut progress = live.feed.progress();
    loop {
        {
            let seen = progress.borrow_and_update();
            match (seen.through, &seen.flow) {
                (Some(through), _) => return Ok(through),
                (None, crate::feed::Flow::Frozen) => return Err(Refusal::StreamFrozen),
                (None, crate::feed::Flow::Parked) => return Err(Refusal::SessionDamaged),
                (None, _) => (),
            }
        }
        progress.changed().await.map_err(|_| Refusal::Recovering)?;
    }
}
