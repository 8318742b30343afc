//! Session grants: what a session may do, signed when it is opened and renewed with new times only. A grant exists
//! once the ledger has it.
use std::sync::Arc;

use acp::TaskId;
use event::id::SessionId;
use event::{Digest, GrantIssued};
use proto::agent::v1 as wire;
use receipt::{Grant, OnDisconnect, Signed};
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tracing::{error, info, warn};
use transport::Chain;

use crate::Desk;
use crate::authn::Person;
use crate::manifests::Reviewed;
use crate::peers::{Key, from_wire, to_wire};
use crate::record::record;
use crate::refusal::{Refusal, refused};
use crate::sign;

/// Seconds that a grant is valid unless it is renewed.
const LIFE: u64 = 12 * 60 * 60;

/// What a person asks of a new session.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) workspace: String,
    pub(crate) model: Option<String>,
    pub(crate) on_disconnect: Option<OnDisconnect>,
}

/// Whose session it is, when its grant was signed and until when that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) requester: Arc<str>,
    iat: u64,
    exp: u64,
}

impl Life {
    fn of(grant: &Grant) -> Self {
        Self { requester: grant.subject.as_str().into(), iat: grant.iat, exp: grant.exp }
    }

    fn is_past_half(&self, now: u64) -> bool {
        now >= self.iat + (self.exp - self.iat) / 2
    }
}

/// Opens a session: grant signed, in the ledger, and taken by agent-svc and the executors.
pub(crate) async fn open(
    desk: &Desk,
    person: &Person,
    reviewed: Reviewed,
    terms: Terms,
) -> Result<(SessionId, Life), Refusal> {
    let Reviewed { manifest, bytes } = reviewed;
    let Terms { workspace, model, on_disconnect } = terms;
    let (model, models) = models(&manifest.models, model)?;
    let on_disconnect = settle(manifest.interaction.on_disconnect, on_disconnect)?;
    let (session, now) = (SessionId::new(), sign::now());
    let grant = Grant {
        session,
        tenant: person.tenant.clone(),
        subject: person.subject.clone(),
        manifest_id: manifest.id,
        manifest: manifest.digest,
        workspace,
        models,
        on_disconnect,
        iat: now,
        exp: now + LIFE,
    };
    let signed = issue(desk, person, &grant, None).await?;
    let request = create(&grant, signed, bytes, model);
    desk.agent
        .create_session(person, session, &request)
        .await
        .map_err(|fault| refused("agent-svc", fault))?;
    info!(%session, manifest = grant.manifest_id, "session opened");
    Ok((session, Life::of(&grant)))
}

/// Renews the grant of a session that is past half its life. That it fails matters only once the grant has run out.
pub(crate) async fn keep(
    desk: &Desk,
    person: &Person,
    session: SessionId,
    life: &Mutex<Life>,
) -> Result<(), Refusal> {
    // Held while renewing, so that requests which come together renew once.
    let mut life = life.lock().await;
    if !life.is_past_half(sign::now()) {
        return Ok(());
    }
    match renew(desk, person, session).await {
        Ok(renewed) => {
            *life = renewed;
            Ok(())
        }
        Err(refusal) if sign::now() < life.exp => {
            warn!(%session, error = %Chain(&refusal), "the grant is not renewed; it is still valid");
            Ok(())
        }
        Err(refusal) => Err(refusal),
    }
}

async fn renew(desk: &Desk, person: &Person, session: SessionId) -> Result<Life, Refusal> {
    let found = desk
        .agent
        .session(person, Key::Session(session))
        .await
        .map_err(|fault| refused("agent-svc", fault))?;
    let found = found.session.ok_or(Refusal::Internal)?;
    let (old, grant) = held(desk, person, session, found.grant)?;
    let now = sign::now();
    if !Life::of(&grant).is_past_half(now) {
        return Ok(Life::of(&grant));
    }
    let grant = Grant { iat: now, exp: now + LIFE, ..grant };
    let signed = issue(desk, person, &grant, Some(Digest::of(&old.payload))).await?;
    let request = create(&grant, signed, unchanged(desk, &grant).await, found.model);
    desk.agent
        .create_session(person, session, &request)
        .await
        .map_err(|fault| refused("agent-svc", fault))?;
    info!(%session, "grant renewed");
    Ok(Life::of(&grant))
}

/// The manifest's bytes while its file is still the one that was granted; the file may have moved on, and agent-svc has
/// kept what it was given.
async fn unchanged(desk: &Desk, grant: &Grant) -> Vec<u8> {
    let (manifests, id) = (desk.manifests.clone(), TaskId::new(grant.manifest_id.clone()).ok());
    let loaded = tokio::task::spawn_blocking(move || manifests.load(id.as_ref())).await;
    match loaded {
        Ok(Ok(Reviewed { manifest, bytes })) if manifest.digest == grant.manifest => bytes,
        Ok(Ok(_) | Err(_)) | Err(_) => Vec::new(),
    }
}

/// The grant that agent-svc holds for a session, if it is one of ours for this session and tenant.
pub(crate) fn held(
    desk: &Desk,
    person: &Person,
    session: SessionId,
    grant: Option<proto::common::v1::Signed>,
) -> Result<(Signed, Grant), Refusal> {
    let signed = from_wire(grant.ok_or(Refusal::Internal)?);
    let grant = desk.sign.own_grant(&signed).map_err(|invalid| {
        error!(%session, error = %Chain(&invalid), "agent-svc shows a grant that no gateway signed");
        Refusal::Internal
    })?;
    match grant.session == session && grant.tenant == person.tenant {
        true => Ok((signed, grant)),
        // What belongs to somebody else does not exist.
        false => Err(Refusal::SessionNotFound),
    }
}

impl From<&Grant> for Life {
    fn from(grant: &Grant) -> Self {
        Self::of(grant)
    }
}

/// The first model is the default. A manifest without models leaves the choice to whoever opens the session.
fn models(allowed: &[String], wanted: Option<String>) -> Result<(String, Vec<String>), Refusal> {
    match (wanted, allowed) {
        (Some(wanted), []) => Ok((wanted.clone(), vec![wanted])),
        (Some(wanted), allowed) if allowed.contains(&wanted) => Ok((wanted, allowed.to_vec())),
        (Some(_), _) => Err(Refusal::ModelNotAllowed),
        (None, [first, ..]) => Ok((first.clone(), allowed.to_vec())),
        (None, []) => Err(Refusal::NoModel),
    }
}

/// A person may be stricter than the manifest, never laxer.
fn settle(
    manifest: Option<manifest::OnDisconnect>,
    wanted: Option<OnDisconnect>,
) -> Result<OnDisconnect, Refusal> {
    match (manifest, wanted) {
        (Some(manifest::OnDisconnect::Deny), Some(OnDisconnect::Hold)) => {
            Err(Refusal::HoldNotAllowed)
        }
        (_, Some(wanted)) => Ok(wanted),
        (Some(manifest::OnDisconnect::Hold), None) => Ok(OnDisconnect::Hold),
        (Some(manifest::OnDisconnect::Deny) | None, None) => Ok(OnDisconnect::Deny),
    }
}

async fn issue(
    desk: &Desk,
    person: &Person,
    grant: &Grant,
    renewal_of: Option<Digest>,
) -> Result<Signed, Refusal> {
    let signed = desk.sign.grant(grant).map_err(|malformed| {
        error!(error = %Chain(&malformed), "a grant cannot be signed");
        Refusal::Internal
    })?;
    let issued = GrantIssued {
        session_id: grant.session,
        subject: grant.subject.clone(),
        manifest_digest: grant.manifest,
        workspace: grant.workspace.clone(),
        models: grant.models.clone(),
        issued_at: moment(grant.iat),
        expires_at: moment(grant.exp),
        grant_digest: Digest::of(&signed.payload),
        renewal_of,
    };
    record(&desk.audit, person, grant.session, issued).await?;
    Ok(signed)
}

fn create(
    grant: &Grant,
    signed: Signed,
    manifest: Vec<u8>,
    model: String,
) -> wire::CreateSessionRequest {
    let on_disconnect = match grant.on_disconnect {
        OnDisconnect::Deny => wire::OnDisconnect::Deny,
        OnDisconnect::Hold => wire::OnDisconnect::Hold,
    };
    wire::CreateSessionRequest {
        session_id: grant.session.to_string(),
        grant: Some(to_wire(signed)),
        manifest,
        model,
        on_disconnect: on_disconnect.into(),
    }
}

/// Unix seconds as a moment; what no calendar holds is the beginning of time, which has expired.
pub(crate) fn moment(unix: u64) -> OffsetDateTime {
    i64::try_from(unix)
        .ok()
        .and_then(|unix| OffsetDateTime::from_unix_timestamp(unix).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_may_be_stricter_than_the_manifest_never_laxer() {
        use manifest::OnDisconnect as Says;
        for (says, wanted, expected) in [
            (None, None, Some(OnDisconnect::Deny)),
            (None, Some(OnDisconnect::Hold), Some(OnDisconnect::Hold)),
            (Some(Says::Hold), None, Some(OnDisconnect::Hold)),
            (Some(Says::Hold), Some(OnDisconnect::Deny), Some(OnDisconnect::Deny)),
            (Some(Says::Deny), None, Some(OnDisconnect::Deny)),
            (Some(Says::Deny), Some(OnDisconnect::Hold), None),
        ] {
            assert_eq!(settle(says, wanted).ok(), expected, "{says:?} {wanted:?}");
        }
    }

    #[test]
    fn a_model_must_be_one_that_the_manifest_allows() {
        let allowed = ["a".to_owned(), "b".to_owned()];
        assert_eq!(models(&allowed, None).ok(), Some(("a".to_owned(), allowed.to_vec())));
        assert_eq!(
            models(&allowed, Some("b".to_owned())).ok(),
            Some(("b".to_owned(), allowed.to_vec()))
        );
        assert!(matches!(models(&allowed, Some("c".to_owned())), Err(Refusal::ModelNotAllowed)));
        assert!(matches!(models(&[], None), Err(Refusal::NoModel)));
        assert_eq!(
            models(&[], Some("c".to_owned())).ok(),
            Some(("c".to_owned(), vec!["c".to_owned()]))
        );
    }

    #[test]
    fn a_grant_is_renewed_from_the_middle_of_its_life_on() {
        let life = Life { requester: "ada".into(), iat: 100, exp: 200 };
        assert_eq!(
            (life.is_past_half(149), life.is_past_half(150), life.is_past_half(500)),
            (false, true, true)
        );
    }
}
