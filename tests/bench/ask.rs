//! From a person's yes to the started container, as that person's client sees it, beside the sum of its parts: the
//! start itself, four acknowledgements of the ledger and four calls between services.

use std::time::{Duration, Instant};

use acp::Decision;
use anyhow::{Context as _, Result};
use e2e::{Impostor, Person, Rig, Spec, Turn, manifest};
use event::id::{CallId, EventId, SessionId};
use event::{Data, Digest, Event, GrantIssued};
use harness::pki::Subject;
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{AppendRequest, NewEntry};
use proto::sandbox::v1::{ExecuteRequest, execute_response::Message};
use serde_json::json;
use time::OffsetDateTime;
use transport::{PeerChannel, Service};

use crate::sample::Figure;

pub(crate) const NAME: &str = "ask.to_effect";

const ACKNOWLEDGEMENTS: u32 = 4;
const CALLS: u32 = 4;

pub(crate) async fn measure(rounds: u32) -> Result<Figure> {
    let asked = Turn::Call("process.exec", json!({"argv": ["true"]}));
    let allowed = manifest("allowed").rule("process.exec", json!("allow"));
    let mut spec = Spec::new(manifest("asked"), vec![asked, Turn::Say("done")]);
    spec.manifests.push(allowed);
    let rig = Rig::start(spec).await?;
    let impostor = Impostor::enter(&rig, "allowed")?;
    impostor.fence().await?;
    impostor.open().await?;
    let gateway = rig
        .identity(&Subject::Service { service: Service::Gateway, instance: "bench".to_owned() })?;
    let ledger =
        transport::channel::connect(&gateway, &rig.endpoint(Service::AuditSvc)?, Service::AuditSvc);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let our = whole(&rig).await?;
        let their = start(&impostor).await?
            + acknowledgement(&ledger).await? * ACKNOWLEDGEMENTS
            + round_trip(&impostor).await? * CALLS;
        if round > 0 {
            ours.push(our);
            theirs.push(their);
        }
    }
    Ok(Figure::new(NAME, &ours, "a start, four acknowledgements and four calls", &theirs, 1.5))
}

async fn whole(rig: &Rig) -> Result<Duration> {
    let mut person = Person::arrive(rig).await?;
    let session = person.open("asked", None).await?;
    let prompt = person.prompt(session)?;
    let ask = person.next_ask().await?;
    let answered = Instant::now();
    person.answer(&ask, Decision::Allow).await?;
    person.next_of("sandbox.started").await?;
    let took = answered.elapsed();
    prompt.await??;
    Ok(took)
}

/// From Execute to the started container, driven directly.
async fn start(impostor: &Impostor) -> Result<Duration> {
    let call = CallId::new();
    let arguments = json!({"argv": ["true"]});
    let (_, bytes) = impostor.planned(call, "process.exec", &arguments).await?;
    let request = ExecuteRequest {
        owner: Some(impostor.owner()),
        call: Some(impostor.call(call)),
        tool: "process.exec".to_owned(),
        arguments: arguments.to_string().into_bytes(),
        plan_digest: receipt::plan_digest(&bytes).as_bytes().to_vec(),
        after_output_offset: 0,
        receipts: Vec::new(),
    };
    let began = Instant::now();
    let mut stream = impostor
        .client
        .clone()
        .execute(transport::deadline::request(request, e2e::PATIENCE))
        .await?
        .into_inner();
    let mut took = None;
    while let Some(message) = stream.message().await? {
        if let Some(Message::Started(_)) = message.message {
            took = Some(began.elapsed());
        }
    }
    took.context("the container started")
}

async fn round_trip(impostor: &Impostor) -> Result<Duration> {
    let began = Instant::now();
    let request = proto::sandbox::v1::GetExecutionRequest {
        owner: Some(impostor.owner()),
        call_id: CallId::new().to_string(),
    };
    impostor
        .client
        .clone()
        .get_execution(transport::deadline::request(request, e2e::PATIENCE))
        .await?;
    Ok(began.elapsed())
}

async fn acknowledgement(ledger: &PeerChannel) -> Result<Duration> {
    let session = SessionId::new();
    let now = OffsetDateTime::now_utc();
    let event = Event {
        id: EventId::new(),
        at: now,
        actor: None,
        data: Data::GrantIssued(GrantIssued {
            session_id: session,
            subject: "bench".to_owned(),
            manifest_digest: Digest::of(b"bench"),
            workspace: "demo".to_owned(),
            models: vec!["scripted".to_owned()],
            issued_at: now,
            expires_at: now + time::Duration::hours(1),
            grant_digest: Digest::of(b"grant"),
            renewal_of: None,
        }),
    };
    let entry = NewEntry {
        tenant: "default".to_owned(),
        session_id: session.to_string(),
        event: event::seal(&event)?.bytes,
        redactor: event::redact::REVISION.to_owned(),
        ..NewEntry::default()
    };
    let began = Instant::now();
    let request =
        transport::deadline::request(AppendRequest { entries: vec![entry] }, e2e::PATIENCE);
    AuditServiceClient::new(ledger.clone()).append(request).await?;
    Ok(began.elapsed())
}
